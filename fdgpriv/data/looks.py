"""Images in another look, as another domain might show them."""

import torch
from torch import Tensor


def other_look(images: Tensor, rng: torch.Generator) -> Tensor:
    """The images (N, 3, H, W) in one random look, the same for all of them.

    Inverted with probability 0.5; contrast, brightness and color balance drawn at random; blurred with probability 0.5.
    """
    invert, blur = (torch.rand(2, generator=rng) < 0.5).tolist()
    scale = 0.4 + 0.6 * torch.rand(3, 1, 1, generator=rng)
    offset = (1 - scale) * torch.rand(3, 1, 1, generator=rng)
    changed = (1 - images if invert else images) * scale + offset
    if blur:
        changed = torch.nn.functional.avg_pool2d(changed, 3, stride=1, padding=1, count_include_pad=False)
    return changed.clamp(0, 1)
