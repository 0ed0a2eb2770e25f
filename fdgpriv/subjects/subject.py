"""What is examined: artifacts of one kind that crossed the wire, and the craft of making more of them.

The craft is public: architecture, encoder, hyperparameters, defense. Whoever holds images can make artifacts as a client
would have; adversaries practise so, and the evaluator makes artifacts of few images so. The subject is the evaluator's.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fdgpriv.artifact import PEER, Artifact, ModelState
from fdgpriv.federation import LocalData
from fdgpriv.once import Once
from fdgpriv.threat import Capability, ThreatModel


@dataclass(frozen=True, eq=False)
class Holding:
    """Images that one party holds, of which an artifact may be made.

    Attributes:
        images, labels: (n, 3, H, W) in [0, 1] and (n,).
        sent: The model that the party was sent in the round of the artifact; None where nothing hangs on it.
    """

    images: Tensor
    labels: Tensor
    sent: ModelState | None = None


class Craft(ABC):
    """How artifacts of one kind come to be of images.

    Attributes:
        kind: Of the artifacts.
        together: Whether a client's comes to be only with all other clients'.
    """

    kind: str
    together: ClassVar[bool] = False

    @abstractmethod
    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        """What a client with only the images at `index` (m,) would have shared.

        Args:
            held: The images.
            index: Which of them.
            rng: Of the client's and the defense's randomness.
            behind: image, cluster or client.
            defended: Through the defense of the run, or bare.
        """

    def make_all(self, parties: Sequence[tuple[Holding, Tensor]], rng: torch.Generator) -> list[Artifact]:
        """What each client of a federation of such parties would have shared, as `make`."""
        return [self.make(held, index, rng) for held, index in parties]

    def each(self, held: Holding, index: Tensor, rng: torch.Generator) -> Tensor:
        """(n, D): what each of the images at `index` (n,) contributes to an artifact of all of them, before any defense.

        Here the vector of the artifact that a client with that image alone would have.
        """
        alone = [self.make(held, one, rng, behind="image", defended=False) for one in index.split(1)]
        return torch.stack([self.vector(artifact, held.sent) for artifact in alone])

    @abstractmethod
    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """(D,): what readers of properties look at; the same length for every artifact of the subject."""

    def flat(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """(F,): all that the artifact says, in one row, such that a Gaussian of rows makes sense."""
        return self.vector(artifact, sent)

    @abstractmethod
    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        """The artifact of such a row (F,)."""

    def random(self, like: Tensor, count: int, sent: ModelState | None, rng: torch.Generator) -> list[Artifact]:
        """`count` artifacts drawn from the Gaussian with the mean and covariance of the rows `like` (M, F)."""
        noise = torch.randn(count, len(like), generator=rng) / max(1, len(like) - 1) ** 0.5
        drawn = (noise - noise.mean(1, keepdim=True) + 1 / len(like)) @ like  # the mean, plus noise @ (like - the mean)
        return [self.unflat(row, sent) for row in drawn]

    def alike(self, artifact: Artifact, behind: str) -> Artifact:
        """The artifact without its sender's name: nothing but its numbers tells it from others."""
        return artifact.seen_as(PEER)

    def layers(self) -> tuple[str, ...]:
        """The layers at which artifacts of this kind could be taken; none where the question makes no sense."""
        return ()

    def at(self, layer: str) -> "Craft":
        """The craft of the same kind at another layer."""
        raise ValueError(f"{self.kind} is taken at no layer, got {layer!r}")


def like_any(clients: Mapping[str, LocalData]) -> LocalData:
    """One client's data, for its augmentation and its place in the federation, with nothing held out."""
    one = next(iter(clients.values()))
    return replace(one, held_out_images=one.images[:0], held_out_labels=one.labels[:0])


C = TypeVar("C", bound=Craft)


@dataclass(frozen=True, eq=False)
class Subject(Generic[C]):
    """Artifacts of one kind in one trained federation.

    Attributes:
        craft: Of making them.
        level: Of the artifact on the wire: image, client or group.
        wire: By client, what it shared last; of a group's artifact, what stands for it. Empty where only artifacts of
            single images crossed.
        clients: All that shared one.
        sent: By client or shadow, the model it was sent in that round, where anything hangs on it.
        receiver: By client, another client that was sent its artifact.
        earlier: By client, what it shared in the first round of which any is kept, if that is another.
        needs: What an adversary must be granted to see them.
        costly: Whether making or reading one takes long, so that fewer stand for each control.
        name: What it is called where that is not its kind.
        repeated: The same of all rounds together that are kept, where clients shared in several.
    """

    craft: C
    level: str
    wire: Mapping[str, Artifact]
    clients: Sequence[str]
    sent: Mapping[str, ModelState] = field(default_factory=dict)
    receiver: Mapping[str, str] = field(default_factory=dict)
    earlier: Mapping[str, Artifact] = field(default_factory=dict)
    needs: frozenset[Capability] = frozenset()
    costly: bool = False
    name: str = ""
    repeated: "Subject[Craft] | None" = None
    _at: "Once[Subject[Craft]]" = field(default_factory=Once, init=False)

    @property
    def kind(self) -> str:
        """Of the artifacts."""
        return self.craft.kind

    @property
    def called(self) -> str:
        """Its name: the kind of its artifacts, or one of its own beside another subject of that kind."""
        return self.name or self.kind

    @property
    def alone(self) -> bool:
        """Whether one artifact stands for all clients, so that none of them can stand in for another."""
        return self.level == "group"

    @property
    def together(self) -> bool:
        """Whether a client's comes to be only with all other clients', so that none is made of a few images."""
        return self.craft.together

    @property
    def own_models(self) -> bool:
        """Whether clients were sent models of their own, so that what is computed for one does not serve another."""
        return len({id(model) for model in self.sent.values()}) > 1

    def refused(self, threat: ThreatModel) -> str | None:
        """Why this adversary does not see them, or None."""
        missing = sorted(self.needs - threat.capabilities)
        return f"the {threat.role} is not granted {', '.join(missing)}" if missing else None

    def at(self, layer: str) -> "Subject[Craft]":
        """The same at another layer, where nothing crossed; one object for each layer."""
        return self._at.get(
            layer,
            lambda: Subject(self.craft.at(layer), "client", {}, self.clients, self.sent, self.receiver, {}, self.needs),
        )
