"""Phase retrieval: an image in [0, 1] whose Fourier amplitudes are given.

References: Fienup, "Phase retrieval algorithms: a comparison", Applied Optics 1982 (hybrid input-output, error reduction).
A real image of N pixels has about N / 2 different amplitudes, so that many images share them unless most pixels are 0;
translated on the torus, or turned by 180 degrees, every image does.
"""

import torch
from torch import Tensor

BETA = 0.9  # of hybrid input-output
_LAST = 0.25  # the share of steps that are error reduction, at the end


def retrieved(amplitude: Tensor, start: Tensor, steps: int) -> Tensor:
    """Images (R, 3, H, W) in [0, 1] whose amplitudes come near (3, H, W), from `start` by hybrid input-output."""
    image, last = start, int(_LAST * steps)
    for _ in range(steps - last):
        drawn = projected(amplitude, image)
        allowed = drawn.clamp(0, 1)
        image = torch.where(drawn == allowed, drawn, image - BETA * (drawn - allowed))
    return reduced(amplitude, image, last)


def reduced(amplitude: Tensor, start: Tensor, steps: int) -> Tensor:
    """The same by error reduction, which comes no farther from the amplitudes in any step, and stays near `start`."""
    image = start
    for _ in range(steps):
        image = projected(amplitude, image).clamp(0, 1)
    return image.clamp(0, 1)


def projected(amplitude: Tensor, image: Tensor) -> Tensor:
    """The real image (R, 3, H, W) with these amplitudes and the phases of `image`, which may leave [0, 1]."""
    spectrum = torch.polar(amplitude.expand_as(image).contiguous(), torch.fft.fft2(image).angle())
    made: Tensor = torch.fft.ifft2(spectrum).real
    return made


def residual(amplitude: Tensor, images: Tensor) -> Tensor:
    """How far (R,) the amplitudes of images (R, 3, H, W) are from those given, relative to them."""
    difference = (torch.fft.fft2(images).abs() - amplitude).square().sum(dim=(1, 2, 3))
    relative: Tensor = difference / amplitude.square().sum(dim=(-3, -2, -1)).clamp_min(1e-12)
    return relative.sqrt()


def aligned_error(image: Tensor, truth: Tensor) -> Tensor:
    """The least mean squared error () of an image (3, H, W), moved on the torus and turned by 180 degrees as is best."""
    own = torch.fft.fft2(truth)
    best = torch.tensor(-torch.inf)
    for turned in (image, image.flip(1, 2)):
        overlap = torch.fft.ifft2(own * torch.fft.fft2(turned).conj()).real.sum(0)
        best = torch.maximum(best, overlap.max())
    squares = image.square().sum() + truth.square().sum() - 2 * best
    return squares.clamp_min(0) / image.numel()
