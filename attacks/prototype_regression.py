"""Prototype regression: the image behind a prototype by kernel ridge regression, a client's mean image by its label shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.attack import Attack, GroupSizes
from fdgpriv.tasks.images import Images
from fdgpriv.utils.fields import PositiveInt
from fdgpriv.view import SeenRound

from ._inversion import RowRegression
from ._prototypes import features_of, public_features, public_images
from .class_mean_regression import ClassMeans
from .prototype_labels import PrototypeLabels


@dataclass(frozen=True)
class PrototypeRegression(Attack):
    """Of one image, what its feature is expected to be of; of several, the domain's mean image, moved by their label shares.

    The regression is from features of the domain's public images, under the received model, to these images. A prototype of
    several images tells less of what they look like than their number, of which `prototype_labels` tells.

    Attributes:
        rounds: As of `prototype_labels`.
    """

    reads = (ClassPrototypes,)
    task = Images()
    threats = ("server",)
    group_sizes: ClassVar[GroupSizes | None] = (1, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"thorough": {"rounds": 16}}

    rounds: PositiveInt = 8

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        shares = PrototypeLabels(rounds=self.rounds).infer(adversary, observations, rng)
        images = [self._drawn(adversary, o, s) for o, s in zip(observations, shares, strict=True)]
        return torch.stack(images).view(-1, *adversary.public_images[0].shape[1:]).clamp(0, 1)

    def _drawn(self, adversary: Adversary, observation: Observation, shares: Tensor) -> Tensor:
        """The mean image (P,), given label shares (K,)."""
        seen, domain = adversary.view(observation)[-1], adversary.domain_of(observation)
        if observation.n_images == 1:
            key = (_regression, seen.number, id(seen.received_model), domain)
            regression: RowRegression = adversary.cache.get(key, partial(_regression, adversary, seen, domain))
            return shares @ regression(features_of(seen.artifact)).float()
        means: ClassMeans = adversary.cache.get((_class_images, domain), partial(_class_images, adversary, domain))
        return means.of_labels(shares)


def _regression(adversary: Adversary, seen: SeenRound, domain: str | None) -> RowRegression:
    features, _ = public_features(adversary, seen, domain)
    return RowRegression(features, public_images(adversary, domain)[0])


def _class_images(adversary: Adversary, domain: str | None) -> ClassMeans:
    images, labels = public_images(adversary, domain)
    means = ClassMeans.of(images.flatten(1), labels, None, adversary.classes)
    return replace(means, shares=adversary.hedged_shares)  # the domain's mean image where prototypes tell nothing
