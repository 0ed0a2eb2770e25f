"""Class probe: infers the class of the image from its single-image style.

Reference: StableFDG's Remark 1, "label information is not contained in the style statistics" (hypothesis H-S1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.class_label import ClassLabel

from ._simulation import probe, simulate


@dataclass(frozen=True)
class ClassProbe(Attack):
    """A linear probe on single-image styles; styles of several images have no single class."""

    reads = (StyleStatistics, AmplitudeSpectrum)
    task = ClassLabel()
    threats = ("server", "client", "third_party")
    group_sizes = (1,)
    ablations = ("layer",)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        simulated = simulate(adversary, 0)
        labels = simulated.labels[torch.cat(list(simulated.members))]
        vectors = adversary.vectors(observations)
        n_images = torch.tensor([observation.n_images for observation in observations])
        return probe(simulated, labels, vectors, n_images, adversary.classes)
