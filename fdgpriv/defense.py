"""The role Defense: what protects a client's data where it is shared, and the privacy that this guarantees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

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

SharedContent = Artifact | StyleDraft
M = TypeVar("M", bound=FederatedMethod)


@dataclass(frozen=True)
class Guarantee:
    """The differential privacy guarantee of a defense.

    Attributes:
        epsilon: For one unit over the whole run; None if nothing is proved.
        delta: Of the (epsilon, delta) guarantee; None if nothing is proved.
        statement: In words: artifact, unit, adjacency and number of releases.
        protects: The kinds of artifact that the guarantee covers.
        gaussian: Whether all noise is Gaussian, so that the tighter measured bound for it is valid.
    """

    epsilon: float | None
    delta: float | None
    statement: str
    protects: tuple[str, ...] = ()
    gaussian: bool = False


class Defense(Role):
    """Protects clients' data: in their training, in what they share, or in what the server sees of it.

    Each hook by default changes nothing; a defense overrides those it acts by, and `guarantee`.
    """

    folder = "defenses"
    suggested: ClassVar[
        tuple[str, ...]
    ] = ()  # settings that a report may suggest to try; the first that applies counts

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
        """This defense, calibrated to what the method shares and how often.

        Raises:
            ValueError: The defense is not applicable to what this method shares.
        """
        return self

    def with_bug(self, bug: Bug | None) -> "Defense":
        """This defense with a deliberate error in its noise, which measured epsilons must show; itself if it has no noise."""
        return self

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raises ValueError where the guarantee says nothing for clients of so many images."""

    def check_model(self, model: nn.Module) -> None:
        """Raises ValueError where the defense changes nothing of a federation that trains this network."""

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        """What is shared instead of `outgoing`; runs on the client. A draft stays one only if another defense may follow.

        Args:
            outgoing: An artifact, or the per-image styles that one is computed from.
            rng: Of the noise.
            received: The model that the client received last; None if it received none.
        """
        return outgoing

    def shared(self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
        """The artifact that is shared instead of `outgoing`."""
        protected = self.protect(outgoing, rng, received)
        return protected.finish() if isinstance(protected, StyleDraft) else protected

    def withholds(self, artifact: Artifact, samples: int) -> bool:
        """Whether a client with so many samples does not share this artifact."""
        return False

    def can_withhold(self, kind: str) -> bool:
        """Whether some clients may not share artifacts of this kind."""
        return False

    @property
    def aggregates(self) -> bool:
        """Whether the server sees only the sum of answers that it needs no more of than their mean."""
        return False

    @property
    def colluding(self) -> int:
        """How many clients tell the server the masks of sums."""
        return 0

    @property
    def anonymous(self) -> bool:
        """Whether the server does not learn which client sent an answer."""
        return False

    def relayed(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        """What a client receives in place of another's artifact, or of one that the server made of several clients'.

        Args:
            artifact: As the server has it.
            latest: By client, its last artifact of that kind, or of the kind that the server's is made of.
        """
        return artifact

    def alters(self, kind: str) -> bool:
        """Whether artifacts of this kind, or those that they are computed from, are changed by `protect`.

        By default all kinds, if the defense has a `protect` of its own.
        """
        return type(self).protect is not Defense.protect

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Membership scores (draws,) of a run's releases in two neighbouring worlds, the first with the canary.

        A score is the logarithm of the likelihood ratio of the run's releases, so that scores of several defenses add up.
        The worlds are the worst case for the defense, with its own noise. None if the defense proves nothing.

        Args:
            dim: Length of one released vector.
            draws: Number of independent runs of each world.
            rng: Of the noise.
        """
        return None

    def canaries(
        self, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Scores (m,) of canaries in one client's training or release, and whether each was among its data (m,).

        A fair coin includes each canary, or makes it one of two opposite ones; higher scores mean "included", or the
        first. None if no guarantee is about single images.

        Args:
            method: As trained under the defense.
            federation: Builds the network.
            data: The client's.
            rng: Of the canaries and the training.
        """
        return None

    def proving(self) -> "Sequence[Defense]":
        """The defenses that it consists of, as far as they prove something."""
        return [self] if self.guarantee().epsilon is not None else []

    def guarantee(self) -> Guarantee:
        """The guarantee; by default that nothing is proved."""
        return Guarantee(None, None, f"{self.name()} proves nothing: no finite epsilon.")


@dataclass(frozen=True)
class Combined(Defense):
    """Several defenses, each applied to what the one before it gives."""

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
            outgoing = part.protect(outgoing, rng, received)
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
            artifact = part.relayed(artifact, latest)
        return artifact

    def alters(self, kind: str) -> bool:
        return any(part.alters(kind) for part in self.parts)

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Summed scores of the parts that prove something; None if one of them cannot be simulated, or there is none."""
        worlds_of_parts = [part.worlds(dim, draws, rng) for part in self.proving()]
        simulated = [worlds for worlds in worlds_of_parts if worlds is not None]
        if not simulated or len(simulated) < len(worlds_of_parts):
            return None
        return torch.stack([first for first, _ in simulated]).sum(0), torch.stack(
            [second for _, second in simulated]
        ).sum(0)

    def canaries(
        self, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Of the one part that proves something; None if several do, or none."""
        proving = self.proving()
        return proving[0].canaries(method, federation, data, rng) if len(proving) == 1 else None

    def guarantee(self) -> Guarantee:
        """Of the parts that prove something together: their epsilons and deltas add up."""
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
        )

    def proving(self) -> Sequence[Defense]:
        return [proving for part in self.parts for proving in part.proving()]


def defended(method: M, spec: str, bug: Bug | None = None) -> tuple[M, Defense]:
    """The method as its clients train under the defense `spec`, and that defense calibrated to it, with a bug if told so.

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
