"""PSNR and SSIM of each image."""

import torch
from torch import Tensor

from fdgpriv.metrics.score import check_pairs
from fdgpriv.utils.torchvision_import import torchmetrics

EXACT_DB = 60.0  # upper limit of PSNR in averages: an RMS error of 1e-3 or less, exact matches included
WINDOW = 11  # pixels, side of SSIM's window
_BATCH = 256


def psnr_per_image(images: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio, 10 log10(1 / MSE) of each image, in decibels.

    Args:
        images: (N, 3, H, W) in [0, 1].
        truth: The assigned true images, (N, 3, H, W) in [0, 1].

    Returns: (N,) float64 in (0, inf], higher leaks more; an exact match is infinite. There is no fixed chance level:
        compare with controls such as `mean_image`.

    Example:
        >>> psnr_per_image(torch.full((1, 3, 8, 8), 0.5), torch.full((1, 3, 8, 8), 0.6))
        tensor([20.0000], dtype=torch.float64)
    """
    check_pairs(images, truth)
    if len(images) == 0:
        return torch.empty(0, dtype=torch.float64)
    psnr: Tensor = torchmetrics.functional.image.peak_signal_noise_ratio(
        images.double(), truth.double(), data_range=1.0, reduction="none", dim=(1, 2, 3)
    )
    return psnr


def ssim_per_image(images: Tensor, truth: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Structural similarity with an 11x11 Gaussian window of sigma 1.5, K = (0.01, 0.03), data range 1.

    The mean over the windows inside the image, as in Wang et al. At 32 px and smaller the window covers a third of the
    side or more, so the value is insensitive to detail.

    Args:
        images: (N, 3, H, W) in [0, 1].
        truth: The assigned true images, (N, 3, H, W) in [0, 1].
        dtype: Of the computation: float32 takes a tenth of the time, with errors up to 1e-4.

    Returns: (N,) float64 in [-1, 1], higher leaks more; NaN below 11 px. There is no fixed chance level.
    Reference: Wang et al., "Image quality assessment: from error visibility to structural similarity", TIP 2004.

    Example:
        >>> ssim_per_image(torch.ones(1, 3, 16, 16), torch.ones(1, 3, 16, 16))
        tensor([1.], dtype=torch.float64)
    """
    check_pairs(images, truth)
    if min(images.shape[2:]) < WINDOW:
        return torch.full((len(images),), float("nan"), dtype=torch.float64)
    similarities = [torch.empty(0, dtype=torch.float64)]
    for part, true_part in zip(torch.split(images, _BATCH), torch.split(truth, _BATCH), strict=True):
        if len(part):
            _, full = torchmetrics.functional.image.structural_similarity_index_measure(
                part.to(dtype), true_part.to(dtype), sigma=1.5, kernel_size=WINDOW, k1=0.01, k2=0.03,
                data_range=1.0, reduction="none", return_full_image=True,
            )  # fmt: skip
            edge = WINDOW // 2
            similarities.append(full[..., edge:-edge, edge:-edge].double().mean(dim=(1, 2, 3)))
    return torch.cat(similarities)
