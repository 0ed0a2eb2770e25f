"""Noise on style statistics, on all statistics that clients share, or on all artifacts: which kinds, and in which unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleDraft, StyleStatistics
from fdgpriv.defense import SharedContent
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.privacy.adjacency import Unit
from fdgpriv.privacy.vectors import SCALE, ClientVectors, VectorContext
from fdgpriv.utils.fields import PositiveFloat

from ._covered import On, covered_kinds, joined
from ._noise import NoiseDefense


@dataclass(frozen=True)
class StyleNoise(NoiseDefense):
    """Base class of defenses that noise styles, or all that clients share.

    Attributes:
        scale: Public divisor of the squared moments.
        unit: What neighbouring datasets differ in: one image, or all images of a client. None for images if every covered
            kind is a mean of independent images' vectors, else for clients.
        on: ``styles``: every statistic that clients share; ``all``: model states, model updates and accuracies as well.
    """

    scale: PositiveFloat = SCALE
    unit: Unit | None = None
    on: On = "styles"

    @property
    def level(self) -> Unit:
        return self.unit or "image"

    def frame(self, received: ModelState | None) -> VectorContext:
        return VectorContext(received, self.scale, self.signed)

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        if self.unit == "image" and isinstance(outgoing, StyleDraft) and RULES[outgoing.rule].clustering is not None:
            raise ValueError(
                f"{self.name()}.unit: want client for {outgoing.rule}, whose clustered styles one image can move far; "
                "got image"
            )
        return super().protect(outgoing, rng, received)

    def bound_to(self, sharing: Disclosure) -> Self:
        covers = self.covered(sharing)
        if not covers:
            more = "" if self.on == "all" else f"; {self.name()}:on=all covers its models"
            raise ValueError(f"{self.name()}: not applicable to {sharing.method}, which shares no statistics{more}")
        single = [kind for kind in covers if sharing.per_image(kind)]
        not_by_image = [kind for kind in covers if not _image_level(kind, sharing)]
        unit: Unit = self.unit or ("client" if not_by_image else "image")
        if unit == "image" and not_by_image:
            raise ValueError(
                f"{self.name()}.unit: want client for {sharing.method}, whose {joined(not_by_image)} one image can move far; "
                "got image"
            )
        if unit == "client" and single:
            raise ValueError(
                f"{self.name()}.unit: want image where {sharing.method} shares {joined(single)} of single images, as many "
                f"as a client's size makes it; got {self._unit_setting(unit, not_by_image)}, whose budget they would overrun"
            )
        return replace(super().bound_to(sharing), unit=unit)

    def _unit_setting(self, unit: Unit, not_by_image: Sequence[str]) -> str:
        return (
            f"'{unit}'"
            if self.unit is not None
            else f"on={self.on}, which needs 'client' for its {joined(not_by_image)}"
        )

    def covered(self, sharing: Disclosure) -> tuple[str, ...]:
        return covered_kinds(sharing, self.on, self.name())

    def _mechanism(self, vectors: ClientVectors) -> NoiseDefense:
        return self if vectors.by_image else replace(self, unit="client")


def _image_level(kind: str, sharing: Disclosure) -> bool:
    """Whether an artifact is one image's, or a mean over images each of whose vectors depends on that image alone."""
    if kind == StyleStatistics.kind:
        clustered = sharing.style_rule is not None and sharing.style_rule.clustering is not None
        return not (clustered or sharing.styles.uses_batch_statistics)
    return kind == AmplitudeSpectrum.kind and sharing.per_image(kind)
