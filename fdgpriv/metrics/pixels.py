"""How near images are to the truth, pixel by pixel: PSNR and SSIM, one figure per image."""

import torch
from torch import Tensor

from fdgpriv._torchvision import torchvision as _torchvision  # noqa: F401  (before torchmetrics)
from fdgpriv.metrics.score import PerImage, check_pairs

# isort: split
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

EXACT_DB = 60.0  # stands for an exact match where scores are averaged, and for anything nearer than an error of 1e-3
WINDOW = 11  # pixels of SSIM's window a side
_BATCH = 256


def psnr_per_image(images: Tensor, truth: Tensor) -> PerImage:
    """Peak signal-to-noise ratio, 10 log10(1 / MSE) of each image, in decibels.

    Args:
        images: (N, 3, H, W) in [0, 1].
        truth: The image each stands for, (N, 3, H, W) in [0, 1].

    Returns: in (0, inf], higher leaks more; an exact match is infinite and marked. `mean_image` and its like are the
        chance level: there is no fixed one.

    Example:
        >>> psnr_per_image(torch.full((1, 3, 8, 8), 0.5), torch.full((1, 3, 8, 8), 0.6)).mean().value
        20.0
    """
    exact = check_pairs(images, truth)
    if len(images) == 0:
        return PerImage("psnr", torch.empty(0, dtype=torch.float64), exact, "higher_leaks")
    values = peak_signal_noise_ratio(images.double(), truth.double(), data_range=1.0, reduction="none", dim=(1, 2, 3))
    return PerImage("psnr", values, exact, "higher_leaks")


def ssim_per_image(images: Tensor, truth: Tensor, dtype: torch.dtype = torch.float64) -> PerImage:
    """Structural similarity with an 11x11 Gaussian window of sigma 1.5, K = (0.01, 0.03), data range 1.

    The mean over the windows that lie wholly inside the image, as Wang et al. take it. At 32 px and smaller the window
    covers a third of the side or more, so it says little of detail: see `ssim_caveat`.

    Args:
        images: (N, 3, H, W) in [0, 1].
        truth: The image each stands for, (N, 3, H, W) in [0, 1].
        dtype: Of the computation: float32 takes a tenth of the time and is off by up to 1e-4.

    Returns: in [-1, 1], higher leaks more; NaN below 11 px. There is no fixed chance level.
    Reference: Wang et al., "Image quality assessment: from error visibility to structural similarity", TIP 2004.

    Example:
        >>> ssim_per_image(torch.ones(1, 3, 16, 16), torch.ones(1, 3, 16, 16)).mean().value
        1.0
    """
    exact = check_pairs(images, truth)
    if min(images.shape[2:]) < WINDOW:
        values = torch.full((len(images),), float("nan"), dtype=torch.float64)
        return PerImage("ssim", values, exact, "higher_leaks")
    found = [torch.empty(0, dtype=torch.float64)]
    for ours, theirs in zip(torch.split(images, _BATCH), torch.split(truth, _BATCH), strict=True):
        if len(ours):
            _, full = structural_similarity_index_measure(
                ours.to(dtype), theirs.to(dtype), sigma=1.5, kernel_size=WINDOW, k1=0.01, k2=0.03,
                data_range=1.0, reduction="none", return_full_image=True,
            )  # fmt: skip
            edge = WINDOW // 2
            found.append(full[..., edge:-edge, edge:-edge].double().mean(dim=(1, 2, 3)))
    return PerImage("ssim", torch.cat(found), exact, "higher_leaks")


def ssim_caveat(side: int) -> str | None:
    """What a report says beside SSIM of images of `side` pixels; None where there is nothing to say."""
    if side < WINDOW:
        return f"SSIM is not defined at {side} px: its window has {WINDOW} px."
    if side <= 32:
        return f"At {side} px the {WINDOW} px window of SSIM covers {WINDOW / side:.0%} of the side: read it with care."
    return None
