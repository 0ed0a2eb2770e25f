"""Simulators of artifacts: what a client with given images would share, under the defense of the run.

A simulator is public: architecture, encoder, hyperparameters, defense. Whoever holds images can simulate artifacts of
clients with these images: adversaries do so for training data, and the evaluator for artifacts of few images.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import PEER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True, eq=False)
class ClientImages:
    """Images of one party, from which artifacts are simulated.

    Attributes:
        images, labels: (n, 3, H, W) in [0, 1] and (n,).
        received_model: The model that the party received in the round of the artifact; None where artifacts do not
            depend on it.
    """

    images: Tensor
    labels: Tensor
    received_model: ModelState | None = None


class Simulator(ABC):
    """Simulates artifacts of one kind from images.

    Attributes:
        kind: Of the artifacts.
        needs_all_clients: Whether a client's artifact can only be made jointly with all other clients'.
    """

    kind: str
    needs_all_clients: ClassVar[bool] = False

    @abstractmethod
    def simulate(
        self,
        party: ClientImages,
        index: Tensor,
        rng: torch.Generator,
        *,
        granularity: str = "client",
        defended: bool = True,
    ) -> Artifact:
        """The artifact of a client with only the images at `index` (m,).

        Args:
            party: The images.
            index: Which of them.
            rng: Of the client's and the defense's randomness.
            granularity: image, cluster or client.
            defended: Whether the defense of the run is applied.
        """

    def simulate_jointly(self, parties: Sequence[tuple[ClientImages, Tensor]], rng: torch.Generator) -> list[Artifact]:
        """The artifact of each client of a federation of these parties, as `simulate`."""
        return [self.simulate(party, index, rng) for party, index in parties]

    def each(self, party: ClientImages, index: Tensor, rng: torch.Generator) -> Tensor:
        """(n, D): the undefended contribution of each image at `index` (n,) to an artifact of all of them.

        By default the vector of the artifact of a client with only that image.
        """
        single = [self.simulate(party, one, rng, granularity="image", defended=False) for one in index.split(1)]
        return torch.stack([self.vector(artifact, party.received_model) for artifact in single])

    @abstractmethod
    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """(D,): features of the artifact for property inference; the same length for every artifact of the series."""

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """(F,): the whole artifact as one vector, in coordinates in which a Gaussian is a sensible model."""
        return self.vector(artifact, received_model)

    @abstractmethod
    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        """The artifact of such a vector (F,)."""

    def random(
        self, like: Tensor, count: int, received_model: ModelState | None, rng: torch.Generator
    ) -> list[Artifact]:
        """`count` artifacts drawn from the Gaussian with the mean and covariance of the vectors `like` (M, F)."""
        noise = torch.randn(count, len(like), generator=rng) / max(1, len(like) - 1) ** 0.5
        vectors = (
            noise - noise.mean(1, keepdim=True) + 1 / len(like)
        ) @ like  # the mean, plus noise @ (like - the mean)
        return [self.from_vector(row, received_model) for row in vectors]

    def anonymised(self, artifact: Artifact, granularity: str) -> Artifact:
        """The artifact without its sender's name, so that only its values distinguish it from others."""
        return artifact.seen_as(PEER)

    def in_first_round(self) -> "InRound | None":
        """How the artifacts are simulated that clients shared in the first recorded round, if it is another and known."""
        return None

    def layers(self) -> tuple[str, ...]:
        """The layers at which artifacts of this kind could be computed; empty where they belong to no layer."""
        return ()

    def at(self, layer: str) -> "Simulator":
        """The simulator of the same kind at another layer."""
        raise ValueError(f"{self.kind} is taken at no layer, got {layer!r}")


class InRound(NamedTuple):
    """How artifacts of one round are simulated: by what, and from which received model; None where they need none."""

    simulator: Simulator
    received_model: ModelState | None


class DefendedSimulator(Simulator):
    """Simulates a client's answer, and applies the defense of the run to each artifact in it.

    Attributes:
        defense: Of the run.
    """

    defense: Defense

    @abstractmethod
    def answer(self, party: ClientImages, index: Tensor, rng: torch.Generator, granularity: str) -> Message:
        """The undefended answer of a client with only the images at `index` (m,), as for `simulate`."""

    def read(self, shared: Message, party: ClientImages) -> Artifact:
        """The artifact that an observer makes of the answer; by default its only one."""
        (artifact,) = shared
        return artifact

    def simulate(
        self,
        party: ClientImages,
        index: Tensor,
        rng: torch.Generator,
        *,
        granularity: str = "client",
        defended: bool = True,
    ) -> Artifact:
        answer = self.answer(party, index, rng, granularity)
        if defended:
            answer = [self.defense.shared(artifact, rng, party.received_model) for artifact in answer]
        return self.read(answer, party)


def client_template(clients: Mapping[str, ClientData]) -> ClientData:
    """One client's data without held-out images, for its augmentation and its position in the federation."""
    client = next(iter(clients.values()))
    return replace(client, held_out_pixels=client.pixels[:0], held_out_labels=client.labels[:0])


def answered(client: Any, verb: str, received_model: Artifact, kind: type[A]) -> A:
    """The one artifact of this kind in the client's answer to `verb`, given the received artifact."""
    answer: Message = getattr(client, verb)([received_model])
    (artifact,) = (artifact for artifact in answer if isinstance(artifact, kind))
    return artifact
