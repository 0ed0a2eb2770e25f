"""Identification: ranks N candidate images by how likely each is among the images of a style or of BatchNorm statistics.

It tests CCST's claim that different data can have the same style.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.parameters import BatchNormStatistics
from fdgpriv.artifacts.style import AmplitudeSpectrum, InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.candidate import Candidate
from fdgpriv.tasks.copies import copies
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.fields import TwoOrMore

from ._averages import Ranking
from ._simulation import frames, simulate

_LOOKS = 3  # restyled looks that an adversary practises on; each takes the styles of all candidates and their copies


@dataclass(frozen=True)
class Identification(Attack):
    """Ranks candidates by the Gaussian likelihood of the artifact if the candidate is one of its n images.

    If x is one of the n images of an average, the artifact is mean + (style(x) - mean) / n plus a remainder: the other
    n - 1 images and the defense's noise. The remainder's covariance is estimated from simulated artifacts of the same
    size, shrunk (Ledoit and Wolf 2004); for n = 1 without noise the score is the whitened distance of styles. Of
    recomputed BatchNorm statistics the first layer is used in the same way.

    A prediction scores the candidates of each line-up (T + 3, N). The last three rows score the first line-up again,
    for an adversary that holds only a copy of each candidate: re-compressed, cropped, or flipped (`copies`).

    Attributes:
        simulations: Simulated artifacts of each size.
        expensive_simulations: The same where simulating one is expensive.
    """

    also_called: ClassVar[tuple[str, ...]] = ("reidentification",)

    reads = (StyleStatistics, InterpolationStyle, BatchNormStatistics, AmplitudeSpectrum)
    task = Candidate()
    threats = ("server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 30, "expensive_simulations": 10},
        "thorough": {"simulations": 600, "expensive_simulations": 100},
    }

    simulations: TwoOrMore = 200
    expensive_simulations: TwoOrMore = 40

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        received_model = observations[0].received_model
        simulated = simulate(
            adversary, self.expensive_simulations if adversary.expensive else self.simulations, received_model
        )
        rankings = {
            n: Ranking.of(frames(adversary, n, received_model, _LOOKS), simulated, n)
            for n in simulated.sizes.unique().tolist()
        }
        simulated_sizes = torch.tensor(sorted(rankings))
        versions = [adversary.candidates, *copies(adversary.candidates).values()]
        styles = {n: [ranking.styles(images) for images in versions] for n, ranking in rankings.items()}
        predictions: list[Prediction] = []
        for observation in observations:
            n = observation.n_images
            size = int(simulated_sizes[(simulated_sizes - n).abs().argmin()])
            line_ups = [observation.candidates, *[observation.candidates[:1]] * (len(versions) - 1)]
            artifact = adversary.vector(observation.artifact, received_model)
            scores = [
                rankings[size](artifact, n, candidate_styles, line_up)
                for candidate_styles, line_up in zip(styles[size], line_ups, strict=True)
            ]
            predictions.append(torch.cat(scores))
        size = int(simulated_sizes[0])
        return Predictions(predictions, {"mean_image": [rankings[size].typicality(adversary.candidates)]})
