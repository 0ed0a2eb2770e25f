"""Kinds of artifact that only some methods share; a transcript knows them all."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import LEVELS, Artifact, StyleStatistics


@dataclass(frozen=True, eq=False, kw_only=True)
class AmplitudeSpectrum(Artifact):
    """Amplitudes of the two-dimensional Fourier transform of an image, or their average over images.

    Attributes:
        amplitude: (3, H, W), frequency 0 in the corner; the whole spectrum, of which half says it all.
        behind: The unit behind it: image or client.
    """

    kind: ClassVar[str] = "amplitude_spectrum"

    amplitude: Tensor
    behind: str

    def __post_init__(self) -> None:
        if self.amplitude.ndim != 3 or self.amplitude.shape[0] != 3:
            raise ValueError(f"want amplitude (3, H, W), got {tuple(self.amplitude.shape)}")
        if self.behind not in LEVELS:
            raise ValueError(f"want behind to be one of {', '.join(LEVELS)}, got {self.behind!r}")

    @property
    def level(self) -> str:
        return self.behind


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidationMetrics(Artifact):
    """How well a model that a client was sent does on what the client holds out: accuracy () in [0, 1]."""

    kind: ClassVar[str] = "validation_metrics"

    accuracy: Tensor

    def __post_init__(self) -> None:
        if self.accuracy.shape != () or self.accuracy.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"want accuracy () float32 or float64, got {tuple(self.accuracy.shape)} {self.accuracy.dtype}"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class ValidationHistory(Artifact):
    """What one client's validation metrics of T times say together: accuracies (T,) float64; never sent as one."""

    kind: ClassVar[str] = "validation_history"

    accuracies: Tensor

    def __post_init__(self) -> None:
        if self.accuracies.ndim != 1 or self.accuracies.dtype != torch.float64:
            raise ValueError(
                f"want accuracies (T,) float64, got {tuple(self.accuracies.shape)} {self.accuracies.dtype}"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class TranslatedLatents(Artifact):
    """What a shared translator makes of public latents for one client: their moments (2p,) less all clients' mean.

    First p means, then p standard deviations; never sent as one.
    """

    kind: ClassVar[str] = "translated_latents"

    moments: Tensor

    def __post_init__(self) -> None:
        if self.moments.ndim != 1 or len(self.moments) % 2:
            raise ValueError(f"want moments (2p,), got {tuple(self.moments.shape)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ClientEmbedding(Artifact):
    """One client's coordinates for a hypernetwork, computed from its data: (e,)."""

    kind: ClassVar[str] = "client_embedding"

    vector: Tensor

    def __post_init__(self) -> None:
        if self.vector.ndim != 1:
            raise ValueError(f"want vector (e,), got {tuple(self.vector.shape)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class InterpolationStyle(Artifact):
    """One style that the server makes of its clients' styles, for all of them.

    Attributes:
        mean, std: (C,).
        at: The layer that the clients' styles come from.
        rule: By which they are taken (fdgpriv.style).
    """

    kind: ClassVar[str] = "interpolation_style"
    made_of: ClassVar[str] = StyleStatistics.kind

    mean: Tensor
    std: Tensor
    at: str
    rule: str

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(
                f"want mean and std of one shape (C,), got {tuple(self.mean.shape)}, {tuple(self.std.shape)}"
            )

    @property
    def layer(self) -> str | None:
        return self.at
