"""Domain inference: infers the source domain of the images from an artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    ModelState,
    ModelUpdate,
    RepresentationTranslator,
)
from fdgpriv.artifacts.statistics import ClientEmbedding, LabelMarginal, ValidationMetrics
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.utils.fields import TwoOrMore

from ._simulation import probe, received_models, simulated_by_domain


@dataclass(frozen=True)
class DomainInference(Attack):
    """A linear probe, trained on artifacts of the same size that are simulated from public images of each domain.

    Attributes:
        simulations: Simulated artifacts of each size.
        expensive_simulations: The same where simulating one takes a training.
    """

    reads = (
        StyleStatistics,
        ModelState,
        ModelUpdate,
        ClassifierHead,
        ImportanceWeights,
        ClientEmbedding,
        BatchNormStatistics,
        RepresentationTranslator,
        AmplitudeSpectrum,
        LabelMarginal,
        ValidationMetrics,
    )
    task = DomainLabel()
    threats = ("server",)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"expensive_simulations": 6},
        "thorough": {"simulations": 300, "expensive_simulations": 90},
    }

    simulations: TwoOrMore = 90
    expensive_simulations: TwoOrMore = 36

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        per_size = self.expensive_simulations if adversary.expensive else self.simulations
        artifacts, domains = simulated_by_domain(adversary, per_size, received_models(observations))
        n_images = torch.tensor([observation.n_images for observation in observations])
        return probe(artifacts, domains, adversary.vectors(observations), n_images, len(adversary.sources))
