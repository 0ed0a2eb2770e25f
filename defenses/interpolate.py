"""Interpolate: clients receive the median of all clients' styles in place of another client's style."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.utils.fields import TwoOrMore


@dataclass(frozen=True)
class Interpolate(Defense):
    """PARDON's interpolation, without its clustering, for methods whose server relays styles from client to client.

    It protects against other clients. The server still receives every client's style.

    Attributes:
        least: Clients whose styles a median needs.
    """

    least: TwoOrMore = 3

    def bound_to(self, sharing: Disclosure) -> Self:
        if sharing.interpolation is not None or not {StyleStatistics.kind, AmplitudeSpectrum.kind} & set(
            sharing.individual
        ):
            raise ValueError(f"interpolate: not applicable to {sharing.method}, whose server relays no client's style")
        return self

    def relayed(self, artifact: Artifact, latest: Mapping[str, Artifact]) -> Artifact:
        if not isinstance(artifact, StyleStatistics | AmplitudeSpectrum):
            return artifact
        same_layer = [style for style in latest.values() if style.layer == artifact.layer]
        if len(same_layer) < self.least:
            raise ValueError(f"interpolate.least: want styles of at least {self.least} clients, got {len(same_layer)}")
        facts = {**artifact.facts(), "client": SERVER}
        return type(artifact).build({**artifact.tensors(), **median_of(same_layer)}, facts)

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "Interpolation: clients receive the median of all clients' styles and no client's own. A median is "
            "deterministic: no finite epsilon; the server still receives every style.",
        )


def median_of(artifacts: list[Artifact]) -> dict[str, Tensor]:
    """By name, the median over artifacts of each number; of an even number, the mean of the two in the middle."""
    names = [name for name, tensor in artifacts[0].tensors().items() if tensor.numel()]
    return {
        name: torch.stack([artifact.tensors()[name] for artifact in artifacts]).quantile(0.5, dim=0) for name in names
    }
