"""Style artifacts: style statistics, amplitude spectra and the interpolation style; and per-image drafts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import LEVELS, Artifact, out_of_range
from fdgpriv.artifacts.moments import RULES


@dataclass(frozen=True, eq=False, kw_only=True)
class StyleStatistics(Artifact):
    """Channel-wise style of features, averaged over images.

    Attributes:
        mean: (C,) average over images of the channel means.
        std: (C,) average over images of the channel standard deviations.
        mean_var: (C,) variance over images of the channel means, or empty (0,) where only mean and std are shared.
        std_var: (C,) variance over images of the channel standard deviations, or empty likewise.
        granularity: The unit that it describes: image, cluster or client.
        at: The layer of the features.
        rule: Name of the `StyleRule` (fdgpriv.artifacts.moments).
    """

    kind: ClassVar[str] = "style_statistics"
    aggregated_from: ClassVar[str] = "style_statistics"

    mean: Tensor
    std: Tensor
    mean_var: Tensor
    std_var: Tensor
    granularity: str
    at: str
    rule: str

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(
                f"want mean and std of one shape (C,), got {tuple(self.mean.shape)}, {tuple(self.std.shape)}"
            )
        if self.mean_var.shape != self.std_var.shape or self.mean_var.shape not in ((0,), self.mean.shape):
            raise ValueError(
                f"want mean_var and std_var both {tuple(self.mean.shape)} or both (0,), "
                f"got {tuple(self.mean_var.shape)}, {tuple(self.std_var.shape)}"
            )
        if self.granularity not in LEVELS:
            raise ValueError(f"want granularity to be one of {', '.join(LEVELS)}, got {self.granularity!r}")

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        for name in ("std", "mean_var", "std_var"):
            yield from out_of_range(name, self.tensors()[name], 0)

    @property
    def level(self) -> str:
        return self.granularity

    @property
    def layer(self) -> str | None:
        return self.at

    def vector(self) -> Tensor:
        """All moments concatenated: (2C,) or (4C,)."""
        return torch.cat([self.mean, self.std, self.mean_var, self.std_var])


@dataclass(frozen=True, eq=False, kw_only=True)
class StyleDraft:
    """Per-image styles from which a client's StyleStatistics is computed; not an artifact, it never crosses the wire.

    The client's defense turns the draft into the shared artifact: bounding the influence of one image requires the
    per-image values.

    Attributes:
        mean, std: (n, C) channel means and standard deviations of each image.
        maps: (n, D) flattened feature maps, or vectors with equal inner products, if the rule clusters by them.
        variances: Whether the variances over images are shared too.
    """

    client: str
    round: int
    mean: Tensor
    std: Tensor
    variances: bool
    granularity: str
    at: str
    rule: str
    maps: Tensor | None = None

    def pooled(self, mean: Tensor, std: Tensor, mean_var: Tensor, std_var: Tensor) -> StyleStatistics:
        """The artifact with these moments; the variances are dropped unless `variances`."""
        if not self.variances:
            mean_var, std_var = mean.new_empty(0), mean.new_empty(0)
        return StyleStatistics(
            client=self.client,
            round=self.round,
            mean=mean,
            std=std,
            mean_var=mean_var,
            std_var=std_var,
            granularity=self.granularity,
            at=self.at,
            rule=self.rule,
        )

    def copied(self) -> "StyleDraft":
        """A copy that shares no tensor with the draft."""
        maps = None if self.maps is None else self.maps.clone()
        return replace(self, mean=self.mean.clone(), std=self.std.clone(), maps=maps)

    def finish(self) -> StyleStatistics:
        """The undefended artifact: pooled moments by the rule, and biased variances over images (StableFDG Eq. 2)."""
        mean, std = RULES[self.rule].combine(self.mean, self.std, self.maps)
        return self.pooled(mean, std, self.mean.var(0, correction=0), self.std.var(0, correction=0))


ClientReply = Sequence[Artifact | StyleDraft]


@dataclass(frozen=True, eq=False, kw_only=True)
class AmplitudeSpectrum(Artifact):
    """Amplitudes of the two-dimensional Fourier transform of an image, or their average over images.

    Attributes:
        amplitude: (3, H, W), frequency 0 in the corner; the full, symmetric spectrum.
        granularity: The unit that it describes: image or client.
    """

    kind: ClassVar[str] = "amplitude_spectrum"
    aggregated_from: ClassVar[str] = "amplitude_spectrum"

    amplitude: Tensor
    granularity: str

    def __post_init__(self) -> None:
        if self.amplitude.ndim != 3 or self.amplitude.shape[0] != 3:
            raise ValueError(f"want amplitude (3, H, W), got {tuple(self.amplitude.shape)}")
        if self.granularity not in LEVELS:
            raise ValueError(f"want granularity to be one of {', '.join(LEVELS)}, got {self.granularity!r}")

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from out_of_range("amplitude", self.amplitude, 0)

    @property
    def level(self) -> str:
        return self.granularity


@dataclass(frozen=True, eq=False, kw_only=True)
class InterpolationStyle(Artifact):
    """One style that the server computes from its clients' styles and broadcasts.

    Attributes:
        mean, std: (C,).
        at: The layer of the clients' styles.
        rule: Name of their `StyleRule` (fdgpriv.artifacts.moments).
    """

    kind: ClassVar[str] = "interpolation_style"
    aggregated_from: ClassVar[str] = StyleStatistics.kind

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
