"""Areas under ROC curves, and their variance due to candidate images that several units share.

The variance of a mean area, or of the difference of two, is that of a resampling of the shared images. It is computed from
their influence on the mean (infinitesimal jackknife; for areas: DeLong et al., Biometrics 1988).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fdgpriv.adversary import Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import SharedVariances, TrialAnswers

BATCH_SIZE = 2048  # predictions


class Candidates(NamedTuple):
    """Membership candidates of G predictions (G, n): scores, indices into the pool, and whether a client held them out."""

    scores: Tensor
    images: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, scores: Tensor, images: Tensor, held_out: Tensor, selected: Tensor) -> "Candidates":
        """The selected ones of (G, N) candidates, equally many in each row."""
        return cls(*(values[selected].view(len(selected), -1) for values in (scores, images, held_out)))


def batches_by_count(
    predictions: Sequence[Prediction], truths: Sequence[GroundTruth]
) -> Iterator[tuple[Tensor, Candidates, Candidates]]:
    """Batches of predictions with equal numbers of members and non-members.

    Yields the indices (G,) of the predictions, their members and their non-members.

    Args:
        predictions: A score of each membership candidate (N,), or of each image of the pool (P,).
        truths: State which membership candidates are members, and which are non-members.
    """
    by_counts: dict[tuple[int, int, int], list[int]] = {}
    non_members = [truth.non_members for truth in truths]
    for number, truth in enumerate(truths):
        counts = len(truth.members), int(truth.members.sum()), int(non_members[number].sum())
        by_counts.setdefault(counts, []).append(number)
    for numbers in by_counts.values():
        for indices in torch.tensor(numbers).split(BATCH_SIZE):
            pairs = [(predictions[i], truths[i]) for i in indices.tolist()]
            scores = torch.stack([candidate_scores(prediction, truth) for prediction, truth in pairs])
            images = torch.stack([truth.membership_candidates for _, truth in pairs])
            held_out = torch.stack([truth.trained_by < 0 for _, truth in pairs])
            members = torch.stack([truth.members for _, truth in pairs])
            others = torch.stack([non_members[i] for i in indices.tolist()])
            yield indices, *(Candidates.of(scores, images, held_out, selected) for selected in (members, others))


def candidate_scores(prediction: Prediction, truth: GroundTruth) -> Tensor:
    """(N,): the score of each membership candidate, from scores of these (N,) or of each image of the pool (P,)."""
    scores_pool = len(prediction) != len(truth.members)
    return (prediction[truth.membership_candidates] if scores_pool else prediction).double()


def area(members: Tensor, others: Tensor) -> Tensor:
    """(G,): the area under the ROC curve of G sets of scores, of members (G, m) and of others (G, o); ties count half."""
    return share_below(members, others).mean(1)


def share_below(scores: Tensor, among: Tensor) -> Tensor:
    """(G, n): for each score, the share of scores `among` (G, m) in the same row that are lower; ties count half."""
    ranked = among.sort(dim=1).values
    below, up_to = torch.searchsorted(ranked, scores), torch.searchsorted(ranked, scores, right=True)
    return (below + up_to).double() / 2 / among.shape[1]


def shared_variances(answers: Mapping[str, TrialAnswers], units: Sequence[str]) -> SharedVariances:
    """Variances of mean areas over units under resampling of the images that are candidates of at least two units.

    Non-members are resampled, and members that a client held out, but not training images that are members. The attack and
    all controls share each resample.
    """
    pool = 1 + max(int(truth.membership_candidates.max()) for rows in answers.values() for _, _, truth in rows)
    influences = {name: _influence(rows, units, pool) for name, rows in answers.items()}
    unit_images = torch.cat([pairs for _, pairs in influences.values()]).unique()
    shared = (unit_images % pool).bincount(minlength=pool) > 1
    if not shared.any():
        return SharedVariances({}, {})
    by_image = {name: influence[shared] for name, (influence, _) in influences.items()}
    return SharedVariances(
        {name: float(influence.square().sum()) for name, influence in by_image.items()},
        {
            name: float((by_image["attack"] - influence).square().sum())
            for name, influence in by_image.items()
            if name != "attack"
        },
    )


def _influence(rows: TrialAnswers, units: Sequence[str], pool: int) -> tuple[Tensor, Tensor]:
    """The influence (P,) of each image on the mean area over units, and all pairs (n,) of a unit and a candidate of it.

    A pair is the number of the unit times P plus the image.
    """
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    unit_of_answer = torch.tensor([numbers[units[trial]] for trial, _, _ in rows])
    weights = _answer_weights([trial for trial, _, _ in rows], units)
    influence, pairs = torch.zeros(pool, dtype=torch.float64), [torch.zeros(0, dtype=torch.int64)]
    for indices, members, others in batches_by_count([p for _, p, _ in rows], [truth for _, _, truth in rows]):
        if not (members.scores.shape[1] and others.scores.shape[1]):
            continue
        members_above = 1 - share_below(others.scores, members.scores)
        others_below = share_below(members.scores, others.scores)
        for images, shares, is_resampled in (
            (others.images, members_above, torch.ones_like(others.held_out)),
            (members.images, others_below, members.held_out),
        ):
            contribution = weights[indices, None] * _influence_on_area(shares)
            influence.index_add_(0, images[is_resampled], contribution[is_resampled])
            pairs.append((unit_of_answer[indices, None] * pool + images)[is_resampled].unique())
    return influence, torch.cat(pairs)


def _influence_on_area(shares: Tensor) -> Tensor:
    """(G, n): influence of n images of one class on the area, from the share of the other class that each is told from.

    It is the share minus the area, over n; here over sqrt(n (n - 1)), as in an unbiased variance.
    """
    n = shares.shape[1]
    influence: Tensor = (shares - shares.mean(1, keepdim=True)) / max(1, n * (n - 1)) ** 0.5
    return influence


def _answer_weights(trials: Sequence[int], units: Sequence[str]) -> Tensor:
    """(n,): the weight of each answer in the mean over units, of the means over their trials, of the means over answers.

    Args:
        trials: The trial of each answer (n,).
        units: The unit of each trial.
    """
    trials_of_unit, answers_of_trial = Counter(units), Counter(trials)
    weights = [1 / (len(trials_of_unit) * trials_of_unit[units[trial]] * answers_of_trial[trial]) for trial in trials]
    return torch.tensor(weights, dtype=torch.float64)
