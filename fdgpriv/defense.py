"""The role Defense: what a client does to an artifact before sharing it, and what that guarantees."""

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
    """What a defense proves.

    Attributes:
        epsilon: For one unit over the whole run, or None where it proves nothing.
        delta: Beside epsilon.
        statement: In words: of which artifact, for which unit, under which adjacency, over how many releases.
        protects: The kinds of artifact the proof covers.
    """

    epsilon: float | None
    delta: float | None
    statement: str
    protects: tuple[str, ...] = ()


class Sharing(Protocol):
    """What a defense may know of a method: how often and how its artifacts leave a client."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def style_rule(self) -> StyleRule | None:
        """How shared styles are taken and pooled; None where none are shared, or plain averages."""

    def releases(self, kind: str) -> int:
        """At most how often one client's artifact of this kind leaves it in a run."""

    def per_image(self, kind: str) -> bool:
        """Whether an artifact of this kind describes one image."""


class Defense(Role):
    """What a client does before it shares. Same kind in, same kind out."""

    folder = "defenses"

    def bound_to(self, sharing: Sharing) -> Self:
        """This defense, calibrated to how often `sharing` says artifacts leave; unchanged where nothing depends on it."""
        return self

    @abstractmethod
    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator) -> Artifact:
        """What leaves the client instead of `outgoing`; runs on the client, before the wire."""

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Scores (draws,) of the whole run's releases in two neighbouring worlds, the first with the canary.

        None where the defense proves nothing that two worlds could contradict. The worlds are the defense's own worst
        case, drawn through the code that protects.

        Args:
            dim: Length of the vector that is released.
            draws: Independent runs of each world.
            rng: Of the noise.
        """
        return None

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What it proves, or that it proves nothing."""
