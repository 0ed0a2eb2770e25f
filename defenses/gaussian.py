"""Gaussian mechanism on what clients share: clips vectors, adds noise, and computes the artifacts from the noised vectors.

Reference: Balle and Wang, "Improving the Gaussian mechanism", ICML 2018 (exact calibration).
"""

from dataclasses import dataclass
from typing import ClassVar

from ._noise import GaussianNoise
from ._style_noise import StyleNoise


@dataclass(frozen=True)
class Gaussian(GaussianNoise, StyleNoise):
    """(epsilon, delta)-differential privacy of all statistics that one client shares over a whole run.

    Each artifact is a vector (fdgpriv.privacy.vectors): style statistics are moments v = (mean, std, mean^2 / scale,
    std^2 / scale), the last two only if variances are shared, or v = (mean, (mean^2 + std^2) / scale) if the std is over
    all pixels of all images. v is clipped to norm C, N(0, (z Delta)^2) noise is added to each entry, and the artifact is
    computed from the noised vector (post-processing).

    The sensitivity Delta is 2C / n for the unit ``image`` (replace one image, n public). It holds only for means over images
    each of whose vectors depends on that image alone: not if images are clustered first, and not if BatchNorm normalises a
    client's images jointly. Delta is 2C for the unit ``client`` (replace all of a client's images), for every kind.
    Methods that share statistics of single images have no unit ``client``.

    By default model states, model updates and accuracies are not protected. Sample counts never are: they are public.
    """

    also_called: ClassVar[tuple[str, ...]] = ("dp", "differential_privacy", "noise", "ldp")

    suggested: ClassVar[tuple[str, ...]] = ("epsilon=8",)
