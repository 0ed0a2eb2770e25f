"""Trains the offline extractor: a digit classifier on images of all looks."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fdgpriv.models.backbone import drawing_from
from fdgpriv.models.extractor import Extractor, small_extractor
from shipped_networks.images import LOOKS, SyntheticDigits
from shipped_networks.recipe import Descent, Recipe


@dataclass(frozen=True)
class ExtractorRecipe(Recipe):
    """Settings of the extractor.

    Attributes:
        batch: Images per step.
        steps: Training steps.
        lr: Adam's initial learning rate.
    """

    batch: int = 64
    steps: int = 1500
    lr: float = 3e-3


def train_extractor(made: SyntheticDigits, recipe: ExtractorRecipe, rng: torch.Generator) -> Extractor:
    """The trained classifier, in evaluation mode."""
    with drawing_from(rng):
        extractor = small_extractor()
    descent = Descent(list(extractor.parameters()), recipe.lr, recipe.steps)
    for _ in range(recipe.steps):
        batch = torch.randint(len(made.labels), (recipe.batch,), generator=rng)
        images = jitter(made.images[batch], rng)
        descent.step(functional.cross_entropy(extractor.logits(images), made.labels[batch], label_smoothing=0.05))
    return extractor.eval()


def jitter(images: Tensor, rng: torch.Generator) -> Tensor:
    """Images (N, 3, H, W), augmented by shifts of up to 2 pixels, random gain and Gaussian noise."""
    down, right = (int(shift) for shift in torch.randint(-2, 3, (2,), generator=rng))
    padded = functional.pad(images, (2, 2, 2, 2), mode="replicate")
    moved = padded[..., 2 + down : 2 + down + images.shape[2], 2 + right : 2 + right + images.shape[3]]
    gain = 0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, generator=rng)
    return (gain * moved + 0.03 * torch.randn(images.shape, generator=rng)).clamp(0, 1)


@torch.no_grad()
def read_figures(extractor: Extractor, held_out: SyntheticDigits) -> dict[str, float]:
    """Accuracy on held-out images, overall and by look."""
    right = (extractor.logits(held_out.images).argmax(dim=1) == held_out.labels).float()
    return {"accuracy": float(right.mean())} | {
        f"accuracy, {look}": float(right[held_out.looks == index].mean()) for index, look in enumerate(LOOKS)
    }
