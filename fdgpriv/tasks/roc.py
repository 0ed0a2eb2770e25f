"""Areas under ROC curves, and how much single images contribute to them and to their means over units.

The contributions give the variance of a mean area, or of the difference of two, that comes from images about which
several units are asked. It is the variance of a resampling of these images, computed from their influence on the mean
(infinitesimal jackknife; for areas: DeLong et al., Biometrics 1988).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fdgpriv.adversary import Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import SharedVariances, TrialAnswers

_TOGETHER = 2048  # predictions scored at once


class Candidates(NamedTuple):
    """Membership candidates of G predictions (G, n): scores, indices into the pool, and whether anyone held them out."""

    scores: Tensor
    images: Tensor
    held_out: Tensor

    @classmethod
    def of(cls, scores: Tensor, images: Tensor, held_out: Tensor, which: Tensor) -> "Candidates":
        """Those of (G, N) candidates that are chosen, equally many in each row."""
        return cls(*(values[which].view(len(which), -1) for values in (scores, images, held_out)))


def alike(
    predictions: Sequence[Prediction], truths: Sequence[GroundTruth]
) -> Iterator[tuple[Tensor, Candidates, Candidates]]:
    """Predictions with equally many members and non-members: their places (G,), their members and their non-members.

    Args:
        predictions: A score of each membership candidate (N,), or of each image of the pool (P,).
        truths: Which membership candidates are members, and which non-members.
    """
    by_counts: dict[tuple[int, int, int], list[int]] = {}
    non_members = [truth.non_members for truth in truths]
    for number, truth in enumerate(truths):
        counts = len(truth.members), int(truth.members.sum()), int(non_members[number].sum())
        by_counts.setdefault(counts, []).append(number)
    for numbers in by_counts.values():
        for chosen in torch.tensor(numbers).split(_TOGETHER):
            pairs = [(predictions[i], truths[i]) for i in chosen.tolist()]
            scores = torch.stack([candidate_scores(prediction, truth) for prediction, truth in pairs])
            images = torch.stack([truth.membership_candidates for _, truth in pairs])
            held_out = torch.stack([truth.trained_by < 0 for _, truth in pairs])
            members = torch.stack([truth.members for _, truth in pairs])
            others = torch.stack([non_members[i] for i in chosen.tolist()])
            yield chosen, *(Candidates.of(scores, images, held_out, selected) for selected in (members, others))


def candidate_scores(prediction: Prediction, truth: GroundTruth) -> Tensor:
    """(N,): the score of each membership candidate, of a prediction for them (N,) or for each image of the pool (P,)."""
    of_pool = len(prediction) != len(truth.members)
    return (prediction[truth.membership_candidates] if of_pool else prediction).double()


def area(members: Tensor, others: Tensor) -> Tensor:
    """(G,): the area under the ROC curve of G sets of scores, of members (G, m) and of others (G, o); ties count half."""
    return share_below(members, others).mean(1)


def share_below(scores: Tensor, among: Tensor) -> Tensor:
    """(G, n): for each score, the share of scores `among` (G, m) in the same row that are lower; ties count half."""
    ranked = among.sort(dim=1).values
    below, up_to = torch.searchsorted(ranked, scores), torch.searchsorted(ranked, scores, right=True)
    return (below + up_to).double() / 2 / among.shape[1]


def shared_variances(answers: Mapping[str, TrialAnswers], units: Sequence[str]) -> SharedVariances:
    """Variances of mean areas over units from resampling the images that at least two units are asked about.

    Resampled are non-members, and members that anyone held out; a client's training images travel with the client.
    Images are resampled at once for the attack and all controls.
    """
    pool = 1 + max(int(truth.membership_candidates.max()) for rows in answers.values() for _, _, truth in rows)
    influences = {name: _influence(rows, units, pool) for name, rows in answers.items()}
    asked = torch.cat([pairs for _, pairs in influences.values()]).unique()
    shared = (asked % pool).bincount(minlength=pool) > 1
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
    """The influence (P,) of each image on the mean area over units, and which images each unit is asked about: (n,) the
    unit's number times P plus the image.

    An image's influence on the area of one prediction, where it is one of n non-members, is the share of members above
    it minus the area, over n; over sqrt(n (n - 1)) here, as in an unbiased variance.
    """
    number = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
    trials_of_unit, answers_of_trial = Counter(units), Counter(target for target, _, _ in rows)
    weights = torch.tensor(
        [1 / (len(number) * trials_of_unit[units[t]] * answers_of_trial[t]) for t, _, _ in rows], dtype=torch.float64
    )
    unit = torch.tensor([number[units[t]] for t, _, _ in rows])
    influence, asked = torch.zeros(pool, dtype=torch.float64), [torch.zeros(0, dtype=torch.int64)]
    for places, members, others in alike([p for _, p, _ in rows], [truth for _, _, truth in rows]):
        if not (members.scores.shape[1] and others.scores.shape[1]):
            continue
        above, below = 1 - share_below(others.scores, members.scores), share_below(members.scores, others.scores)
        for side, shares, resampled in (
            (others, above, torch.ones_like(others.held_out)),
            (members, below, members.held_out),
        ):
            n = shares.shape[1]
            single = weights[places, None] * (shares - shares.mean(1, keepdim=True)) / max(1, n * (n - 1)) ** 0.5
            influence.index_add_(0, side.images[resampled], single[resampled])
            asked.append((unit[places, None] * pool + side.images)[resampled].unique())
    return influence, torch.cat(asked)
