"""The role Defense: protects a client's data when it is shared, and states its privacy guarantee."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import nn

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure, FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.registry import JOIN, Role
from fdgpriv.utils.defaults import Bug
from fdgpriv.utils.user_code import is_user_code

SharedContent = Artifact | StyleDraft
M = TypeVar("M", bound=FederatedMethod)


@dataclass(frozen=True)
class Guarantee:
    """The differential privacy guarantee of a defense.

    Attributes:
        epsilon: Of one unit over the whole run; None if nothing is proved.
        delta: Of the (epsilon, delta) guarantee; None if nothing is proved.
        statement: Sentences with artifact, unit, adjacency and number of releases.
        protects: The kinds of artifact that the guarantee covers.
        gaussian: Whether all noise is Gaussian, so that the tighter measured bound for it is valid.
        unit: What neighbouring datasets differ in, ``image`` or ``client``; None where nothing is proved, or not known.
    """

    epsilon: float | None
    delta: float | None
    statement: str
    protects: tuple[str, ...] = ()
    gaussian: bool = False
    unit: Literal["image", "client"] | None = None


class Defense(Role):
    """Protects clients' data in their training, in shared artifacts, or in the server's view of these.

    By default no hook changes anything; a defense overrides the hooks that it needs, and `guarantee`.

    Attributes:
        suggested: Settings that a report may suggest; the first that applies is used.
    """

    folder = "defenses"
    suggested: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def parse(cls, spec: str) -> Any:
        """The defense ``name:field=value,...``, or several joined by ``+`` and applied in this order."""
        parts = tuple(super(Defense, cls).parse(part) for part in spec.split(JOIN))
        return parts[0] if len(parts) == 1 else Combined(parts)

    def local_training(self, method: M) -> M:
        """The method `method` as its clients train under this defense.

        Raises:
            ValueError: The defense is not applicable to this method.
        """
        return method

    def bound_to(self, sharing: Disclosure) -> Self:
        """This defense, calibrated to the kinds and the number of releases of a method.

        Raises:
            ValueError: The defense is not applicable to the method's artifacts.
        """
        return self

    def with_bug(self, bug: Bug | None) -> "Defense":
        """This defense with a deliberate error in its noise, which measured epsilons must show; itself if it has no noise."""
        return self

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raises ValueError if the guarantee does not hold for clients with these numbers of images."""

    def check_model(self, model: nn.Module) -> None:
        """Raises ValueError if the defense has no effect on a federation that trains this network."""

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        """The protected content, which is shared instead of `outgoing`; runs on the client.

        A draft may be returned as a draft, so that further defenses can act on it.

        Args:
            outgoing: An artifact, or a draft with the per-image styles from which one is computed.
            rng: Random numbers of the noise.
            received: The latest model that the client received; None if it received none.
        """
        return outgoing

    def shared(self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
        """The artifact that is shared instead of `outgoing`."""
        protected = _protected(self, outgoing, rng, received)
        return protected.finish() if isinstance(protected, StyleDraft) else protected

    def withholds(self, artifact: Artifact, samples: int) -> bool:
        """Whether a client with this number of samples does not share this artifact."""
        return False

    def can_withhold(self, kind: str) -> bool:
        """Whether the defense can withhold artifacts of this kind."""
        return False

    @property
    def aggregates(self) -> bool:
        """Whether the server sees only the sum of answers, if it needs only their mean."""
        return False

    @property
    def colluding(self) -> int:
        """Number of clients that tell the server their masks."""
        return 0

    @property
    def anonymous(self) -> bool:
        """Whether the server does not learn which client sent an answer."""
        return False

    def relayed(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        """The artifact that a client receives instead of another client's, or of one computed from several clients'.

        Args:
            artifact: The artifact as the server has it.
            latest: By client, its latest artifact of that kind, or of the kind that the artifact is computed from.
        """
        return artifact

    def released(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        """`relayed`, of copies if a user wrote the defense."""
        if is_user_code(self):
            artifact, latest = artifact.copied(), {client: other.copied() for client, other in latest.items()}
        return self.relayed(artifact, latest)

    def alters(self, kind: str) -> bool:
        """Whether `protect` changes artifacts of this kind, or those that they are computed from.

        By default true of all kinds, if the defense overrides `protect`.
        """
        return type(self).protect is not Defense.protect

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Membership scores (draws,) of a run's releases in two neighbouring worlds; the first contains the canary.

        A score is the logarithm of the likelihood ratio of the run's releases, so that scores of several defenses add up.
        The worlds are the worst case for the defense. None if the defense proves nothing.

        Args:
            dim: Length of one released vector.
            draws: Number of independent runs of each world.
            rng: Random numbers of the noise.
        """
        return None

    def canaries(
        self, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Scores (m,) of canaries in one client's training or release, and whether each was among its data (m,).

        A fair coin decides whether each canary is included, or which of two opposite canaries is; higher scores mean
        "included", or the first. None if no guarantee is about single images.

        Args:
            method: The method as trained under the defense.
            federation: Builds the network.
            data: The client's data.
            rng: Random numbers of the canaries and the training.
        """
        return None

    def proving(self) -> "Sequence[Defense]":
        """The parts of this defense that have a guarantee."""
        return [self] if self.guarantee().epsilon is not None else []

    def guarantee(self) -> Guarantee:
        """The guarantee; by default, that nothing is proved."""
        return Guarantee(None, None, f"{self.name()} proves nothing: no finite epsilon.")


@dataclass(frozen=True)
class Combined(Defense):
    """Several defenses, applied one after the other."""

    parts: tuple[Defense, ...]

    def __post_init__(self) -> None:
        names = [part.name() for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"--defense: want each defense once in a combination, got {JOIN.join(names)}")

    def spec(self) -> str:
        return JOIN.join(part.spec() for part in self.parts)

    def local_training(self, method: M) -> M:
        for part in self.parts:
            method = part.local_training(method)
        return method

    def bound_to(self, sharing: Disclosure) -> "Combined":
        summed = [kind for kind in sharing.uploads if kind not in sharing.individual] if self.aggregates else []
        for part in self.parts:
            if missing := [kind for kind in summed if part.can_withhold(kind)]:
                raise ValueError(
                    f"--defense: want sums or {part.name()}: sums need every client's {missing[0]}, got {self.spec()}"
                )
        return replace(self, parts=tuple(part.bound_to(sharing) for part in self.parts))

    def with_bug(self, bug: Bug | None) -> "Combined":
        return replace(self, parts=tuple(part.with_bug(bug) for part in self.parts))

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        for part in self.parts:
            part.check_sizes(sizes)

    def check_model(self, model: nn.Module) -> None:
        for part in self.parts:
            part.check_model(model)

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        for part in self.parts:
            outgoing = _protected(part, outgoing, rng, received)
        return outgoing

    def withholds(self, artifact: Artifact, samples: int) -> bool:
        return any(part.withholds(artifact, samples) for part in self.parts)

    def can_withhold(self, kind: str) -> bool:
        return any(part.can_withhold(kind) for part in self.parts)

    @property
    def aggregates(self) -> bool:
        return any(part.aggregates for part in self.parts)

    @property
    def colluding(self) -> int:
        return max(part.colluding for part in self.parts)

    @property
    def anonymous(self) -> bool:
        return any(part.anonymous for part in self.parts)

    def relayed(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        for part in self.parts:
            artifact = part.released(artifact, latest)
        return artifact

    def alters(self, kind: str) -> bool:
        return any(part.alters(kind) for part in self.parts)

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The summed scores of the parts with a guarantee; None if one of them cannot be simulated, or there is none."""
        worlds_of_parts = [part.worlds(dim, draws, rng) for part in self.proving()]
        simulated = [worlds for worlds in worlds_of_parts if worlds is not None]
        if not simulated or len(simulated) < len(worlds_of_parts):
            return None
        with_canary, without = (torch.stack(scores).sum(0) for scores in zip(*simulated, strict=True))
        return with_canary, without

    def canaries(
        self, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The canaries of the only part with a guarantee; None if several parts have one, or none."""
        proving = self.proving()
        return proving[0].canaries(method, federation, data, rng) if len(proving) == 1 else None

    def guarantee(self) -> Guarantee:
        """The joint guarantee of all parts that have one: epsilons and deltas add up."""
        guarantees = [part.guarantee() for part in self.proving()]
        others = [part.name() for part in self.parts if part.guarantee().epsilon is None]
        statements = [guarantee.statement for guarantee in guarantees] + [f"{name} proves nothing." for name in others]
        if not guarantees:
            return Guarantee(None, None, " ".join(statements) + " No finite epsilon.")
        kinds = dict.fromkeys(kind for guarantee in guarantees for kind in guarantee.protects)
        return Guarantee(
            sum(guarantee.epsilon or 0.0 for guarantee in guarantees),
            sum(guarantee.delta or 0.0 for guarantee in guarantees),
            " ".join(statements),
            tuple(kinds),
            all(guarantee.gaussian for guarantee in guarantees),
            units.pop() if len(units := {guarantee.unit for guarantee in guarantees}) == 1 else None,
        )

    def proving(self) -> Sequence[Defense]:
        return [proving for part in self.parts for proving in part.proving()]


def _protected(
    defense: Defense, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None
) -> SharedContent:
    """What the defense makes of the content, of copies if a user wrote it: it may change in place what it is given."""
    if is_user_code(defense):
        outgoing, received = outgoing.copied(), None if received is None else received.copied()
    return defense.protect(outgoing, rng, received)


def defended(method: M, spec: str, bug: Bug | None = None) -> tuple[M, Defense]:
    """The method as its clients train under the defense `spec`, and the defense, calibrated to the method.

    `bug` is a deliberate error in its noise.

    Raises:
        ValueError: The defense is not applicable to the method.
    """
    defense: Defense = Defense.parse(spec)
    if defense != Defense.named("none")() and not method.disclosure().shares:
        raise ValueError(f"{spec}: not applicable to {method.name()}, which shares nothing that could be protected")
    if bug is not None:
        defense = defense.with_bug(bug)
    method = defense.local_training(method)
    return method, defense.bound_to(method.disclosure())
