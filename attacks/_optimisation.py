"""Gradient descent on images, shared by all reconstruction attacks, and the total variation prior."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Objective = Callable[[Tensor], Tensor]


def descend(objective: Objective, starts: Sequence[Tensor], steps: int, lr: float, signed: bool = False) -> Tensor:
    """Images in [0, 1] that minimise an objective: Adam with cosine decay to 0, clipped to [0, 1] after each step.

    Args:
        objective: Of images (B, ..., 3, H, W), one number (B,) for each of B independent reconstructions, which share
            the passes through a network.
        starts: (B, ..., 3, H, W) in [0, 1] to begin with, once for each restart.
        steps: Of each restart.
        lr: Of the first step: about how far a pixel moves in it.
        signed: Follow the sign of the gradient only, as Geiping et al. (NeurIPS 2020) do.

    Returns: (B, ..., 3, H, W): for each reconstruction the restart that ends with the least objective.
    """
    found = [_descended(objective, start, steps, lr, signed) for start in starts]
    if len(found) == 1:
        return found[0]
    with torch.enable_grad():  # an objective may itself contain gradients
        values = torch.stack([objective(images).detach() for images in found])
    best = values.nan_to_num(torch.inf).argmin(0)
    return torch.stack(found)[best, torch.arange(len(best))]


def _descended(objective: Objective, start: Tensor, steps: int, lr: float, signed: bool) -> Tensor:
    images = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([images], lr, fused=True)
    (group,) = optimizer.param_groups
    for step in range(steps):
        group["lr"] = lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(objective(images).sum(), images)
        images.grad = (slope.sign_() if signed else slope).nan_to_num_(0, 0, 0)
        optimizer.step()
        with torch.no_grad():
            images.clamp_(0, 1)
    return images.detach()


def around(images: Tensor, restarts: int, rng: torch.Generator) -> list[Tensor]:
    """Random starts near the images (B, ..., 3, H, W), one for each restart; equal images get different starts."""
    return list((images + 0.05 * torch.randn(restarts, *images.shape, generator=rng)).clamp(0, 1))


def total_variation(images: Tensor) -> Tensor:
    """Mean absolute difference (...) of neighbouring pixels of images (..., 3, H, W), vertical plus horizontal."""
    across, down = images.diff(dim=-1).abs(), images.diff(dim=-2).abs()
    return across.mean(dim=(-3, -2, -1)) + down.mean(dim=(-3, -2, -1))
