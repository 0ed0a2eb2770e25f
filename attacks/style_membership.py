"""Style membership: infers whether an image is part of a shared average style, by the likelihood ratio of two Gaussians.

Reference: Homer et al. (PLoS Genetics 2008) and Sankararaman et al. (Nature Genetics 2009) on averages of genomes; here
on averages of styles (hypotheses H-S4 and H-C4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.fields import TwoOrMore

from ._averages import SizeModel
from ._simulation import simulate


@dataclass(frozen=True)
class StyleMembership(Attack):
    """The likelihood of the artifact with the membership candidate among its n images, over that without.

    With candidate x, the average of n styles has mean ((n - 1) m + style(x)) / n and covariance (n - 1) S / n^2;
    without it, m and S / n; each plus the defense's noise. m and S are those of one public domain; the domain is
    unknown, so the likelihoods are averaged over domains. The covariance with x is estimated from simulated artifacts
    around their mean given one of their images, so that it holds for any pooling rule and defense; without x it is
    larger by S / n^2.

    Styles that a client shared in several rounds are concatenated to one vector: correlations between rounds are in the
    covariances of artifacts simulated under the models of the same rounds.

    Attributes:
        simulations: Simulated artifacts of each size.
    """

    reads = (StyleStatistics, InterpolationStyle)
    task = Members()
    threats = ("server", "client", "third_party")
    ablations = ("rounds",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 30},
        "thorough": {"simulations": 600},
    }

    simulations: TwoOrMore = 200

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        simulated = simulate(adversary, self.simulations)
        models = {n: SizeModel.of(adversary, simulated, n) for n in simulated.sizes.unique().tolist()}
        known = torch.tensor(sorted(models))
        predictions: list[Prediction] = []
        for observation in observations:
            model = models[int(known[(known - observation.n_images).abs().argmin()])]
            artifact = adversary.vector(observation.artifact)[: model.test.centers.shape[1]]
            candidates = observation.membership_candidates
            predictions.append(model.log_ratio(adversary, artifact, candidates, observation.n_images))
        return Predictions(predictions, {"mean_image": [models[int(known[0])].prior]})
