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
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.artifacts.statistics import ClientEmbedding, LabelMarginal, ModelEvaluation, ValidationMetrics
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.federation.held_out import held_out_for
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.validation import ValidationSimulator
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.utils.fields import PositiveInt, TwoOrMore
from fdgpriv.utils.seeds import generator

from ._simulation import Vectors, probe, received_models, simulated_by_domain
from ._weight_changes import domains_by_weights, tells_by_weights

_SIMULATED_CLIENTS = 1000  # of each size and domain, whose accuracies are simulated from those on single images


@dataclass(frozen=True)
class DomainInference(Attack):
    """A linear probe, trained on artifacts of the same size that are simulated from public images of each domain.

    Accuracies and losses are means over held-out images: where no defense changes them, each public image is evaluated
    once, and thousands of clients hold out some of these images each.
    Trained models without BatchNorm statistics, and those that were trained from different models, are compared by the
    directions in which their weights changed, over several rounds.

    Attributes:
        simulations: Simulated artifacts of each size.
        expensive_simulations: The same where simulating one takes a training; where weights are compared, in each round.
        rounds: At most so many rounds are read where weights are compared, evenly spread.
    """

    also_called: ClassVar[tuple[str, ...]] = ("property_inference", "attribute_inference")

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
        ClassPrototypes,
        ModelEvaluation,
    )
    task = DomainLabel()
    threats = ("server",)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"expensive_simulations": 6, "rounds": 3},
        "thorough": {"simulations": 300, "expensive_simulations": 90, "rounds": 8},
    }

    simulations: TwoOrMore = 90
    expensive_simulations: TwoOrMore = 36
    rounds: PositiveInt = 5

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        per_size = self.expensive_simulations if adversary.expensive else self.simulations
        if tells_by_weights(adversary, observations):
            return domains_by_weights(adversary, observations, per_size, self.rounds)
        simulator = adversary.simulator(Simulator)  # type: ignore[type-abstract]
        if (
            isinstance(simulator, ValidationSimulator)
            and adversary.plant is None
            and not (simulator.defended or simulator.own_models)
        ):
            artifacts, domains = metrics_by_domain(adversary, simulator)
        else:
            artifacts, domains = simulated_by_domain(adversary, per_size, received_models(observations))
        n_images = torch.tensor([observation.n_images for observation in observations])
        return probe(artifacts, domains, adversary.vectors(observations), n_images, len(adversary.sources))


def metrics_by_domain(adversary: Adversary, simulator: ValidationSimulator) -> tuple[Vectors, Tensor]:
    """Accuracies or losses of clients of every size, each with random public images of a domain held out; the domains (M,)."""
    of_each = adversary.cache.get(
        metrics_by_domain, lambda: [simulator.of_each(domain.images, domain.labels) for domain in adversary.domains]
    )
    rng, means, sizes, domains = generator(adversary.seed, 64), [], [], []
    for size in adversary.sizes:
        count = held_out_for(size, simulator.federation.held_out)
        for d, of_images in enumerate(of_each):
            index = torch.randint(len(of_images), (_SIMULATED_CLIENTS, count), generator=rng)
            means.append(of_images[index].mean(1))
            sizes += [size] * _SIMULATED_CLIENTS
            domains += [d] * _SIMULATED_CLIENTS
    return Vectors(torch.cat(means), torch.tensor(sizes)), torch.tensor(domains)
