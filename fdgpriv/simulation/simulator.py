"""Simulators of artifacts: compute the artifact that a client with given images would share under the run's defense.

A simulator has only public facts: architecture, encoder, hyperparameters, defense. Adversaries simulate artifacts for
training data, and the evaluator simulates artifacts of few images.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import PEER, Artifact, Message, copied_message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.utils.user_code import is_user_code

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True, eq=False)
class ClientImages:
    """Images of one party, from which artifacts are simulated.

    Attributes:
        images, labels: (n, 3, H, W) in [0, 1] and (n,).
        received_model: The model that the party received in the round of the artifact; None if artifacts do not depend
            on it.
        held_out: The images that the party holds out for validation; None if unknown.
    """

    images: Tensor
    labels: Tensor
    received_model: ModelState | None = None
    held_out: "ClientImages | None" = None


@dataclass(frozen=True, eq=False)
class ClientSample:
    """The images of a simulated client, and the form of its artifact.

    Attributes:
        party: The party that has the images.
        index: (m,) indices of the client's images.
        granularity: image, cluster or client.
        defended: Whether the defense of the run is applied.
    """

    party: ClientImages
    index: Tensor
    granularity: str = "client"
    defended: bool = True

    @classmethod
    def all_of(cls, party: ClientImages) -> "ClientSample":
        """All images of the party."""
        return cls(party, torch.arange(len(party.images)))

    @property
    def images(self) -> Tensor:
        """(m, 3, H, W): the client's images."""
        return self.party.images[self.index]

    @property
    def labels(self) -> Tensor:
        """(m,): their labels."""
        return self.party.labels[self.index]

    @property
    def received_model(self) -> ModelState:
        """The model that the client received.

        Raises:
            ValueError: It received none.
        """
        if self.party.received_model is None:
            raise ValueError("want the model that the client received, from which its artifact is simulated, got none")
        return self.party.received_model


class Simulator(ABC):
    """Simulates artifacts of one kind from images.

    Attributes:
        kind: The kind of the artifacts.
        needs_all_clients: Whether artifacts can only be simulated for all clients together.
    """

    kind: str
    needs_all_clients: ClassVar[bool] = False

    @abstractmethod
    def simulate(self, sample: ClientSample, rng: torch.Generator) -> Artifact:
        """The artifact of a client with only the images of `sample`; client and defense draw from `rng`."""

    def simulate_jointly(self, samples: Sequence[ClientSample], rng: torch.Generator) -> list[Artifact]:
        """The artifact of each client of one federation, as `simulate`."""
        return [self.simulate(sample, rng) for sample in samples]

    def each(self, sample: ClientSample, rng: torch.Generator) -> Tensor:
        """(n, D): the undefended contribution of each of the n images to their artifact.

        By default, the vector of the artifact of a client with only that image.
        """
        single = [replace(sample, index=index, granularity="image", defended=False) for index in sample.index.split(1)]
        received_model = sample.party.received_model
        return torch.stack([self.vector(self.simulate(image, rng), received_model) for image in single])

    @abstractmethod
    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """(D,): features of the artifact for property inference; the same length for every artifact of the series."""

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """(F,): the complete artifact as one vector, in coordinates that are roughly Gaussian."""
        return self.vector(artifact, received_model)

    @abstractmethod
    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        """The artifact with this vector (F,) of `to_vector`."""

    def random(
        self, rows: Tensor, count: int, received_model: ModelState | None, rng: torch.Generator
    ) -> list[Artifact]:
        """`count` artifacts drawn from the Gaussian with the mean and covariance of the vectors `rows` (M, F)."""
        noise = torch.randn(count, len(rows), generator=rng) / max(1, len(rows) - 1) ** 0.5
        weights = noise - noise.mean(1, keepdim=True) + 1 / len(rows)  # weights @ rows = mean + noise @ (rows - mean)
        return [self.from_vector(vector, received_model) for vector in weights @ rows]

    def anonymised(self, artifact: Artifact, granularity: str) -> Artifact:
        """The artifact without its sender's name, so that only its values distinguish it from others."""
        return artifact.seen_as(PEER)

    def model_of(self, artifact: Artifact, received_model: ModelState | None) -> nn.Module | None:
        """The network in the artifact, which takes images from the CPU; None if artifacts of this kind have none."""
        return None

    def in_first_round(self) -> "InRound | None":
        """The simulator and received model of the first recorded round; None if it is the same round or unknown."""
        return None

    def layers(self) -> tuple[str, ...]:
        """The layers at which artifacts of this kind can be computed; empty if they belong to no layer."""
        return ()

    def at(self, layer: str) -> "Simulator":
        """The simulator of the same kind at another layer."""
        raise ValueError(f"{self.kind} is taken at no layer, got {layer!r}")


class InRound(NamedTuple):
    """The simulator of one round, and the received model; None if artifacts do not depend on it."""

    simulator: Simulator
    received_model: ModelState | None


class DefendedSimulator(Simulator):
    """Simulates a client's answer, and applies the defense of the run to each artifact in it.

    Attributes:
        defense: The run's defense.
    """

    defense: Defense

    @abstractmethod
    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        """The undefended answer of a client with only the images of `sample`."""

    def read(self, shared: Message, sample: ClientSample) -> Artifact:
        """The artifact of the series in the answer; by default, the only one."""
        (artifact,) = shared
        return artifact

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> Artifact:
        answer = self.answer(sample, rng)
        if sample.defended:
            answer = [self.defense.shared(artifact, rng, sample.party.received_model) for artifact in answer]
        return self.read(answer, sample)


@dataclass(frozen=True, eq=False)
class ClientSimulator(Simulator):
    """Simulates with the method's client, which answers the server's request.

    Attributes:
        method, federation, defense: As trained.
        client_template: One client's data, for its augmentation and its position in the federation.
        verb: The request.
    """

    method: FederatedMethod
    federation: Federation
    defense: Defense
    client_template: ClientData
    verb: str

    def client(self, sample: ClientSample, rng: torch.Generator, held_out: ClientSample | None = None) -> Any:
        """The method's client with the images of `sample`, and those of `held_out` for validation."""
        data = replace(self.client_template, pixels=sample.images, labels=sample.labels)
        if held_out is not None:
            data = replace(data, held_out_pixels=held_out.images, held_out_labels=held_out.labels)
        return self.method.client(self.federation, data, rng)


def answered(client: Any, verb: str, received_model: Artifact, kind: type[A]) -> A:
    """The one artifact of this kind in the client's answer to `verb`, given the received artifact."""
    (artifact,) = (artifact for artifact in asked(client, verb, [received_model]) if isinstance(artifact, kind))
    return artifact


def asked(client: Any, verb: str, message: Message) -> Message:
    """The client's answer to `verb`; a client that a user wrote gets and gives copies."""
    if not is_user_code(client):
        answer: Message = getattr(client, verb)(message)
        return answer
    return copied_message(getattr(client, verb)(copied_message(message)))
