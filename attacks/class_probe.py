"""Class probe: infers the class of the image from its single-image style.

Reference: StableFDG's Remark 1, "label information is not contained in the style statistics" (hypothesis H-S1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.class_label import ClassLabel

from ._simulation import SimulatedArtifacts, probe, simulate

_FLOOR = 0.05  # least spread of a domain's styles, in units of all styles' spread


@dataclass(frozen=True)
class ClassProbe(Attack):
    """Two linear probes on single-image styles, whose log-probabilities are averaged; styles of several images have no
    single class.

    One reads styles as they are. The other reads them in units of their domain's mean and spread, since domains differ by
    more than classes do; the domain of an observed style is the most likely one.
    """

    reads = (StyleStatistics,)
    task = ClassLabel()
    threats = ("server", "client", "third_party")
    group_sizes = (1,)
    ablations = ("layer",)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        vectors = adversary.vectors(observations)
        n_images = torch.tensor([observation.n_images for observation in observations])
        return class_log_probabilities(simulate(adversary, 0), vectors, n_images, adversary.classes)


def class_log_probabilities(simulated: SimulatedArtifacts, vectors: Tensor, n_images: Tensor, classes: int) -> Tensor:
    """(M, classes): of observed single-image styles (M, D), from simulated ones of known classes and domains."""
    index = torch.cat(list(simulated.members))
    labels, domains = simulated.labels[index], simulated.domains[index]
    likely = probe(simulated, domains, vectors, n_images, int(domains.max()) + 1).argmax(1)
    known, observed = simulated.standardised(simulated.inputs), simulated.standardised(vectors)
    for domain in domains.unique().tolist():
        of_domain = known[domains == domain]
        center, spread = of_domain.mean(0), of_domain.std(0).nan_to_num(0.0) + _FLOOR
        known[domains == domain] = (of_domain - center) / spread
        observed[likely == domain] = (observed[likely == domain] - center) / spread
    within = probe(replace(simulated, inputs=known), labels, observed, n_images, classes)
    return (probe(simulated, labels, vectors, n_images, classes) + within) / 2
