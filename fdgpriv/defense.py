"""The role Defense: transforms a client's artifact before it is shared, and states the privacy guarantee."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, Self

import torch

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import StyleRule
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.registry import Role


@dataclass(frozen=True)
class Guarantee:
    """The differential privacy guarantee of a defense.

    Attributes:
        epsilon: For one unit over the whole run; None if nothing is proved.
        delta: Of the (epsilon, delta) guarantee; None if nothing is proved.
        statement: In words: artifact, unit, adjacency and number of releases.
        protects: The kinds of artifact that the guarantee covers.
    """

    epsilon: float | None
    delta: float | None
    statement: str
    protects: tuple[str, ...] = ()


class Sharing(Protocol):
    """The facts about a method that defenses use: number of releases and style definition."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def style_rule(self) -> StyleRule | None:
        """Definition of the shared styles; None if none are shared, or plain averages."""

    def releases(self, kind: str) -> int:
        """Maximum number of releases of this kind per client and run."""

    def per_image(self, kind: str) -> bool:
        """Whether an artifact of this kind describes one image."""


class Defense(Role):
    """Transforms a client's artifact before it is shared; the kind of artifact is preserved."""

    folder = "defenses"

    def bound_to(self, sharing: Sharing) -> Self:
        """This defense, calibrated to the number of releases; unchanged if nothing depends on it."""
        return self

    @abstractmethod
    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator) -> Artifact:
        """The artifact that is shared instead of `outgoing`; runs on the client."""

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Membership scores (draws,) of a run's releases in two neighbouring worlds, the first with the canary.

        The worlds are the worst case for the defense, simulated with `protect`. None if the defense proves nothing.

        Args:
            dim: Length of one released vector.
            draws: Number of independent runs of each world.
            rng: Of the noise.
        """
        return None

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The guarantee, with epsilon None if nothing is proved."""
