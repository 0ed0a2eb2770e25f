"""Artifact-free predictions of images: noise, and means of the adversary's public images."""

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.tasks.task import Baselines

_NOISES = 3  # random images, and random sets


def image_baselines(adversary: Adversary, set_size: int, rng: torch.Generator) -> Baselines:
    """Noise, and the means of the public images: of all, of each domain and of each class.

    If `set_size` is not 0, they are sets of that many images, and sets of class means are added.
    """
    images, labels = adversary.public_images
    baselines: Baselines = {
        "noise": list(torch.rand(_NOISES, *images.shape[1:], generator=rng)),
        "mean_image": [images.mean(0)],
        **{f"domain_mean:{domain.name}": [domain.images.mean(0)] for domain in adversary.domains},
        **{f"class_mean:{label}": [mean] for label, mean in class_means(images, labels).items()},
    }
    return _as_sets(baselines, set_size, rng) if set_size else baselines


def _as_sets(single: Baselines, size: int, rng: torch.Generator) -> Baselines:
    """The baselines as sets (M, 3, H, W) of `size` images, and sets of class means, ``unconditional``."""
    sets = {name: [image.expand(size, -1, -1, -1) for image in images] for name, images in single.items()}
    sets["noise"] = list(torch.rand(_NOISES, size, *sets["noise"][0].shape[1:], generator=rng))
    means = [images[0][0] for name, images in sets.items() if name.startswith("class_mean")]
    draws = [torch.randperm(len(means), generator=rng).repeat(size)[:size] for _ in range(_NOISES)]
    sets["unconditional"] = [torch.stack(means)[index] for index in draws]
    return sets


def known_mean(adversary: Adversary, domain: str | None) -> Tensor:
    """The mean (3, H, W) of the adversary's images of this domain, or of all its images if it has none of the domain."""
    mean: Tensor = adversary.cache.get(("mean image", domain), lambda: adversary.images_of(domain).mean(0))
    return mean


def class_means(images: Tensor, labels: Tensor) -> dict[int, Tensor]:
    """The mean image (3, H, W) of each class."""
    return {label: images[labels == label].mean(0) for label in labels.unique().tolist()}
