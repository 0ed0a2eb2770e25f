"""The examination of an adversary: what it is asked, what it may use, and the truth it never sees.

The evaluator lays out questions, each an artifact to read: the target's own, and those of the controls in its place, all
alike to the adversary. `View` is what the threat model grants; `Truth` stays here until the guesses are in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from fdgpriv.artifact import Artifact, ModelState
from fdgpriv.federation import Domain
from fdgpriv.once import Once
from fdgpriv.subjects import Craft, Holding, StyleCraft
from fdgpriv.threat import Capability, ThreatModel

from .heard import Heard

# an image (3, H, W), images (M, 3, H, W), scores of candidates (T, N), of suspects (N,), of domains (D,), of classes
# (K,), a distribution (K,), a layout of cells (L,), a number ()
Guess = Tensor
C = TypeVar("C", bound=Craft)


@dataclass(frozen=True, eq=False)
class Question:
    """One artifact to read.

    Attributes:
        artifact: Whose it is is not said.
        images_behind: How many images are behind it (public, as in the accounting); 0 where that is what is asked.
        candidates: (T, N) indices into `View.candidates`: T line-ups, in each of which one image may be behind it.
        suspects: (N,) indices into `View.candidates`: some of these are behind it.
        sent: The model that its sender was sent in that round, where anything hangs on it.
    """

    artifact: Artifact
    images_behind: int
    candidates: Tensor
    suspects: Tensor
    sent: ModelState | None = None


@dataclass(frozen=True, eq=False)
class Truth:
    """What a question's guess is scored against.

    Attributes:
        images: (n, 3, H, W) the images behind the target's artifact, or a fixed draw of them where there are many.
        labels: (n,) of those images.
        histogram: (K,) label distribution of all images behind it.
        domain: Index of the main domain among the sources.
        positions: (T,) where in each line-up the true image stands.
        candidates: (T, N) indices into the pool: the line-ups.
        pool: (P, 3, H, W) all candidate images, one tensor for all truths.
        members: (N,) which of the suspects are behind the artifact.
        count: How many images are behind it.
        place: Where the client's own earlier artifact stands in `View.earlier`; -1 where there is none.
        suspects: (N,) indices into the pool.
        alone: (n, D) what each of `images` contributes to the artifact, before any defense; (0, 0) where nobody wants it.
    """

    images: Tensor
    labels: Tensor
    histogram: Tensor
    domain: int
    positions: Tensor
    candidates: Tensor
    pool: Tensor
    members: Tensor
    count: int
    place: int
    suspects: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    alone: Tensor = field(default_factory=lambda: torch.empty(0, 0))

    @property
    def line_up(self) -> Tensor:
        """(N, 3, H, W): the first line-up's images."""
        return self.pool[self.candidates[0]]


@dataclass(frozen=True, eq=False)
class View:
    """What one adversary has: public facts, auxiliary data, and no more than its threat model grants.

    Attributes:
        threat: The threat model.
        classes: K.
        sources: Names of the source domains.
        sizes: The numbers of images behind artifacts that it will meet.
        image_size: H = W.
        typical: How many images a client of this federation has, in the middle of all.
        costly: Whether making an artifact takes long, so that fewer are practised on.
        seed: Of what is learned once.
        learned: By name, what adversaries with the same images learned of artifacts of this craft, whoever asked first.
        heard: What artifacts say of candidates, which hangs on no images of the adversary's, whoever asked.
    """

    threat: ThreatModel
    classes: int
    sources: tuple[str, ...]
    sizes: tuple[int, ...]
    image_size: int
    _auxiliary: tuple[Domain, ...]
    _craft: Craft
    _candidates: Tensor
    _earlier: tuple[Artifact, ...] = ()
    typical: int = 0
    costly: bool = False
    seed: int = 0
    learned: Once[Any] = field(default_factory=Once)
    heard: Heard = field(default_factory=Heard)

    @property
    def auxiliary(self) -> tuple[Domain, ...]:
        """Labelled images by domain; leaked ones of the clients among them where the threat model has pairs."""
        return self._auxiliary

    @property
    def candidates(self) -> Tensor:
        """(P, 3, H, W): the images that line-ups and suspects are made of."""
        self.threat.require(Capability.HAS_CANDIDATES)
        return self._candidates

    @property
    def earlier(self) -> tuple[Artifact, ...]:
        """What all clients shared in an earlier round, in an order of its own."""
        self.threat.require(Capability.SEES_ALL_ROUNDS)
        return self._earlier

    def craft(self, kind: type[C], using: Capability = Capability.KNOWS_DEFENSE) -> C:
        """The craft of the artifacts, which must be of this kind, to whoever may use it."""
        self.threat.require(using)
        if not isinstance(self._craft, kind):
            raise TypeError(f"want artifacts of {kind.__name__}, got {type(self._craft).__name__}")
        return self._craft

    def vector(self, artifact: Artifact, sent: ModelState | None = None) -> Tensor:
        """(D,): what readers of properties look at in an artifact."""
        return self._craft.vector(artifact, sent)

    def make(
        self, images: Tensor, labels: Tensor, index: Tensor, rng: torch.Generator, sent: ModelState | None = None
    ) -> Artifact:
        """The artifact that a client holding the images at `index` (m,) would have shared, defense included."""
        self.threat.require(Capability.KNOWS_DEFENSE)
        return self._craft.make(Holding(images, labels, sent), index, rng)

    @property
    def together(self) -> bool:
        """Whether artifacts of several clients come to be only together."""
        return self._craft.together

    def make_all(
        self, parties: Sequence[tuple[Domain, Tensor]], rng: torch.Generator, sent: ModelState | None = None
    ) -> list[Artifact]:
        """The artifacts that the clients of one federation would have shared, each holding some images of a domain."""
        self.threat.require(Capability.KNOWS_DEFENSE)
        held = [(Holding(domain.images, domain.labels, sent), index) for domain, index in parties]
        return self._craft.make_all(held, rng)

    @property
    def jointly(self) -> bool:
        """Whether artifacts are styles, and an image's depends on the other images of its client."""
        return isinstance(self._craft, StyleCraft) and self._craft.jointly

    def styles(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and std (N, C) of each image's features as clients compute them: alone, or in batches like `among`."""
        return self.craft(StyleCraft, Capability.KNOWS_ENCODER).styles(images, among)


@dataclass(frozen=True, eq=False)
class Asked:
    """One question on a target, and the truth it is scored against."""

    question: Question
    truth: Truth


@dataclass(frozen=True, eq=False)
class Item:
    """One target of the examination.

    Attributes:
        unit: The independent unit's name: a client, or one artifact of one.
        client: Whose it is.
        size: Images behind the target's artifact; None for the whole client.
        truth: Of the target.
        asked: By name, what is read in its place: ``attack``, then controls and bounds; each may be asked several
            times, and the scores are averaged.
        given: By name, guesses that need no adversary, with the truth they are scored against (``nearest_own``).
    """

    unit: str
    client: str
    size: int | None
    truth: Truth
    asked: Mapping[str, Sequence[Asked]]
    given: Mapping[str, Sequence[tuple[Guess, Truth]]]


@dataclass(frozen=True, eq=False)
class Sitting:
    """One adversary and the items it is examined on."""

    view: View
    items: Sequence[Item]
