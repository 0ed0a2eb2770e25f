"""Task: recover the exact single-image styles of an artifact of one or two images."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task

RECOVERED = 1e-4  # absolute error; features are of the order of 1
_NOISES = 30


class ExactStyles(Task):
    """A prediction is two values of each component of a style, (2, D); their assignment to images is not scored."""

    secret = "content"
    metric = "max_abs_error"
    higher_leaks = False
    relevant = 0.1
    weighed = False
    exact = True
    needs_contributions = True

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((2, None),)

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The largest distance of a component of the images' styles from the nearer of the two predicted values."""
        return torch.stack([_error(p, t) for p, t in zip(predictions, truths, strict=True)])

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        return {"recovered": (self.score(predictions, truths) < RECOVERED).float()}

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random styles around the public mean, the public mean, and the mean style of each public domain."""
        by_domain = {d.name: torch.cat(adversary.styles(d.images, d.images), dim=1) for d in adversary.domains}
        public = torch.cat(list(by_domain.values()))
        center, spread = public.mean(0), public.std(0)
        random_styles = center + torch.randn(_NOISES, 2, len(center), generator=rng) * spread
        means = {f"domain_mean:{name}": [styles.mean(0).repeat(2, 1)] for name, styles in by_domain.items()}
        return {"noise": list(random_styles), "mean_image": [center.repeat(2, 1)], **means}


def _error(prediction: Tensor, truth: GroundTruth) -> Tensor:
    """The largest error (), over images and components, of the nearer predicted value."""
    styles = truth.contributions[:, : prediction.shape[1]]
    return (styles[:, None] - prediction).abs().amin(1).max()
