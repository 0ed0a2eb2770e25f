"""Task: decide which membership candidates are among an artifact's images."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.statistics.interval import clopper_pearson
from fdgpriv.statistics.measured import Measured
from fdgpriv.tasks.roc import area, batches_by_count, candidate_scores, shared_variances
from fdgpriv.tasks.task import Baselines, Form, Predictions, ScoredCandidate, SharedVariances, Task, TrialAnswers

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)
NOISES = 30  # random orders of the pool; one order affects many scores, since artifacts share non-members


class Members(Task):
    """A prediction scores each membership candidate, (N,), or each image of the pool, (P,); higher means "member"."""

    secret = "membership"
    metric = "auc"
    bounds: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    perfect = 1.0
    relevant = 0.1
    weighed = False
    ranks = True
    many_singles = True
    scopes: ClassVar[tuple[str, ...]] = ("client",)

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((len(truth.members),), (len(truth.pool),))

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        return auc(predictions, truths)

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Random orders of the pool, and its order by similarity to the mean public image."""
        pool = adversary.candidates
        prior = similarity_to_mean(pool, adversary.public_images[0])
        return {"noise": list(torch.rand(NOISES, len(pool), generator=rng)), "mean_image": [prior]}

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The same score for every candidate."""
        return torch.zeros_like(like)

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        return 0.5

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        return areas_by_non_members(predictions, truths)

    def shared_variances(self, answers: Mapping[str, TrialAnswers], units: Sequence[str]) -> SharedVariances:
        return shared_variances(answers, units)

    def candidates(self, prediction: Prediction, truth: GroundTruth) -> list[ScoredCandidate]:
        scored = truth.members | truth.non_members
        columns = (truth.membership_candidates, truth.members, candidate_scores(prediction, truth))
        return [ScoredCandidate(*row) for row in zip(*(column[scored].tolist() for column in columns), strict=True)]

    def of_set(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
        return tpr_at_low_fpr(predictions, truths)


class HeldOutMembers(Members):
    """As `Members`, with the images that a client holds out for validation as members."""

    of_held_out = True


def similarity_to_mean(images: Tensor, public: Tensor) -> Tensor:
    """Similarity (P,) of images (P, 3, H, W) to the mean of public images (N, 3, H, W): minus the mean squared difference."""
    return -(images - public.mean(0)).square().mean(dim=(1, 2, 3))


def auc(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """The share (M,) of pairs in which a member scores above a non-member; ties count half. 0.5 if there are no pairs.

    Args:
        predictions: A score of each membership candidate (N,), or of each image of the pool (P,); higher means
            "member".
        truths: State which membership candidates are members.
    """
    areas = torch.full((len(predictions),), 0.5, dtype=torch.float64)
    for indices, members, others in batches_by_count(predictions, truths):
        if members.scores.shape[1] and others.scores.shape[1]:
            areas[indices] = area(members.scores, others.scores)
    return areas


def areas_by_non_members(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
    """The areas (M,) against only held-out images, and against only images that other clients trained on.

    Empty if a prediction has no non-members of one kind.
    """
    areas: dict[str, list[Tensor]] = {"auc_held_out": [], "auc_other_clients": []}
    for prediction, truth in zip(predictions, truths, strict=True):
        scores, held_out = candidate_scores(prediction, truth), truth.trained_by < 0
        for kind_areas, is_kind in zip(areas.values(), (held_out, ~held_out), strict=True):
            members, others = scores[truth.members], scores[truth.non_members & is_kind]
            if not (len(members) and len(others)):
                return {}
            kind_areas.append(area(members[None], others[None]))
    return {name: torch.cat(kind_areas) for name, kind_areas in areas.items()}


def tpr_at_low_fpr(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
    """The true positive rate at low false positive rates, with one threshold over all predictions.

    The interval is Clopper and Pearson's. The value is None if fewer than three false positives are allowed: even without
    any, the rate would not be shown. An image that is a non-member for several predictions counts once for this.
    """
    batches = list(batches_by_count(predictions, truths))
    distinct = torch.cat([outside.images.flatten() for _, _, outside in batches]).unique().numel()
    members = torch.cat([inside.scores.flatten() for _, inside, _ in batches])
    others = torch.cat([outside.scores.flatten() for _, _, outside in batches])
    return {tpr_name(rate): tpr_at_fpr(members, others, rate, distinct) for rate in FALSE_POSITIVE_RATES}


def tpr_name(rate: float) -> str:
    """The name of the figure at this false positive rate."""
    return f"tpr_at_fpr_{rate}"


def tpr_at_fpr(members: Tensor, others: Tensor, rate: float, distinct: int) -> Measured:
    """The share of members (N,) above a threshold that at most `rate` of the others (M,) exceed; `rate` is chance.

    None with a reason if there are too few different others, of which there are `distinct`.
    """
    if not len(members) or rate * distinct < 3 - 1e-9:
        reason = f"a false positive rate of {rate} wants at least {round(3 / rate):,} non-members, got {distinct:,}"
        return Measured(value=None, reason=reason, n=len(members), direction="higher_leaks")
    threshold = others.sort(descending=True).values[int(rate * len(others) + 1e-9)]
    rate_interval = clopper_pearson(int((members > threshold).sum()), len(members))
    assert rate_interval.lower is not None
    assert rate_interval.upper is not None
    ends = (rate_interval.lower, rate_interval.upper)
    return Measured(value=rate_interval.value, ci95=ends, n=len(members), direction="higher_leaks")
