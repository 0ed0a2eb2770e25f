"""What an adversary that draws images says without any artifact: noise, and the means of the images it holds."""

import torch
from torch import Tensor

from fdgpriv.exam import Guess, View

from ._reading import held, public_images


def blind(view: View, rng: torch.Generator) -> dict[str, list[Guess]]:
    """Single images (3, H, W) by control: noise, the mean image, and the means of each domain and class."""
    domains, (images, labels) = held(view), public_images(view)
    means = class_means(images, labels)
    return {
        "noise": list(torch.rand(3, *images.shape[1:], generator=rng)),
        "mean_image": [images.mean(0)],
        **{f"domain_mean:{domain.name}": [domain.images.mean(0)] for domain in domains},
        **{f"class_mean:{label}": [mean] for label, mean in means.items()},
    }


def blind_sets(view: View, many: int, rng: torch.Generator) -> dict[str, list[Guess]]:
    """The same as sets (M, 3, H, W) of `many` images, to be matched as the attack's are; and sets of class means."""
    found: dict[str, list[Guess]] = {}
    for name, guesses in blind(view, rng).items():
        found[name] = [guess.expand(many, -1, -1, -1) for guess in guesses]
    found["noise"] = list(torch.rand(3, many, *found["noise"][0].shape[1:], generator=rng))
    means = [ones[0][0] for name, ones in found.items() if name.startswith("class_mean")]
    drawn = [torch.randperm(len(means), generator=rng).repeat(many)[:many] for _ in range(3)]
    found["unconditional"] = [torch.stack(means)[index] for index in drawn]
    return found


def class_means(images: Tensor, labels: Tensor) -> dict[int, Tensor]:
    """The mean image (3, H, W) of each class."""
    return {label: images[labels == label].mean(0) for label in labels.unique().tolist()}
