"""Defenses that change vectors without noise calibrated to their sensitivity, and so prove nothing."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.defense import Defense, SharedContent
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.privacy.vectors import SCALE, VectorContext, VectorKind, vectors_of
from fdgpriv.utils.fields import PositiveFloat

from ._covered import On, altered, covered_kinds


@dataclass(frozen=True)
class Transform(Defense):
    """Base class: changes the vector of each covered artifact.

    Attributes:
        on: ``styles``: every statistic that clients share; ``all``: model states, model updates and accuracies as well.
        scale: Public divisor of the squared moments of styles.
        covers: The covered kinds; set by `bound_to`.
        signed: Whether importance weights may be negative; set by `bound_to`.
    """

    on: On = "styles"
    scale: PositiveFloat = SCALE
    covers: tuple[str, ...] = (StyleStatistics.kind,)
    signed: bool = False

    def bound_to(self, sharing: Disclosure) -> Self:
        covers = covered_kinds(sharing, self.on, self.name())
        if not covers:
            more = "" if self.on == "all" else f"; {self.name()}:on=all covers its models"
            raise ValueError(f"{self.name()}: not applicable to {sharing.method}, which shares no statistics{more}")
        return replace(self, covers=covers, signed=sharing.signed_importances)

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        kind = StyleStatistics.kind if isinstance(outgoing, StyleDraft) else outgoing.kind
        if kind not in self.covers:
            return outgoing
        artifact = outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing
        vectors = vectors_of(artifact, VectorContext(received, self.scale, self.signed))
        assert vectors is not None
        return vectors.rebuild(self.changed(vectors.rows, vectors.kind, rng)[0])

    def alters(self, kind: str) -> bool:
        return altered(kind, self.covers)

    @abstractmethod
    def changed(self, rows: Tensor, kind: VectorKind, rng: torch.Generator) -> Tensor:
        """The vectors (n, D) that are shared instead of `rows` (n, D)."""
