"""Scores of pairs of artifacts of two rounds: how likely both are of one client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Classify = Callable[
    [Tensor, Tensor, Tensor], Tensor
]  # known (S, D), their labels (S,), (M, D) -> log-probabilities (M, K)

_FAR = 3.0  # largest standardised value
_RIDGE = 0.1  # times the mean variance of an axis, added to every variance
_WEIGHT = 1.0  # simulated artifacts that count when the observed ones are centred and scaled
_MOST = 0.99  # correlation
_DECAYS = (0.0, 0.25, 0.5, 0.75, 1.0)  # how much a round counts against the next one
_DOUBT = 0.05  # how often a domain is named wrongly, whatever the discriminant says


@dataclass(frozen=True, eq=False)
class Practice:
    """Simulated clients' artifacts of both rounds.

    Attributes:
        now, before: (S, D) of the later and of the earlier round.
        domains: (S,) of their images, from 0.
    """

    now: Tensor
    before: Tensor
    domains: Tensor

    def part(self, places: slice) -> "Practice":
        """Those at these places."""
        return Practice(self.now[places], self.before[places], self.domains[places])


def links_more(practice: Practice, classify: Classify) -> bool:
    """Whether `log_odds`, learned from the first half of simulated clients, links more of the second half than `likeness`."""
    half = len(practice.domains) // 2
    learn, test = practice.part(slice(half)), practice.part(slice(half, None))
    truth = torch.arange(len(test.domains))
    learned, plain = log_odds(test.now, test.before, learn, classify), likeness(test.now, test.before)
    return int((learned.argmax(1) == truth).sum()) > int((plain.argmax(1) == truth).sum())


def log_odds(
    now: Tensor, before: Tensor, practice: Practice, classify: Classify, peers: Tensor | None = None
) -> Tensor:
    """Log odds (M, N) of "of one client" against "of two", up to a constant.

    Artifacts of one client are of one domain, and their entries deviate from that domain's mean alike: each entry's
    two deviations are taken as normal, with the correlation that simulated clients have. Entries depend on each other;
    together they count as at most as many independent ones as there are simulated clients.

    Args:
        now, before: Artifacts (M, D) and (N, D) of two rounds.
        practice: Simulated clients.
        classify: Tells domains apart, from simulated artifacts of known ones.
        peers: (P, D) the artifacts of all clients in the round of `now`, by which those are centred; `now` itself if None.
    """
    ours, our_domains = _deviations(now, now if peers is None else peers, practice.now, practice.domains, classify)
    theirs, their_domains = _deviations(before, before, practice.before, practice.domains, classify)
    r = correlations(practice)
    scale = r / (1 - r.square())
    alone = -0.5 * r * scale
    entries = (alone * ours.square()).sum(1)[:, None] + (alone * theirs.square()).sum(1) + (scale * ours) @ theirs.T
    one_domain = (1 - _DOUBT) * (our_domains @ their_domains.T) + _DOUBT / our_domains.shape[1]
    return one_domain.log() + min(1.0, len(practice.domains) / now.shape[1]) * entries


def correlations(practice: Practice) -> Tensor:
    """(D,): of each entry's deviations from the domain's mean in the two rounds, over simulated clients, in [0, 0.99]."""
    deviations = [rows - _means(rows, practice.domains)[practice.domains] for rows in (practice.now, practice.before)]
    later, earlier = (rows / (rows.square().mean(0).sqrt() + 1e-12) for rows in deviations)
    return (later * earlier).mean(0).clamp(0, _MOST)


def _deviations(
    rows: Tensor, peers: Tensor, simulated: Tensor, domains: Tensor, classify: Classify
) -> tuple[Tensor, Tensor]:
    """Deviations (M, D) of artifacts from the mean of their domain, standardised, and probabilities (M, K) of domains.

    Clients may train otherwise than simulated ones, which moves all artifacts of a domain: means and spreads are those
    of `peers`, the artifacts (P, D) of all clients, together with `_WEIGHT` simulated ones.
    """
    common, means = simulated.mean(0), _means(simulated, domains)
    center = (peers.sum(0) + _WEIGHT * common) / (len(peers) + _WEIGHT)
    centered = simulated - common
    scale = _spread(centered[:0], centered) / _spread(peers - center, centered)

    def shares(artifacts: Tensor) -> Tensor:
        return classify(centered, domains, (artifacts - center) * scale).softmax(1)

    of_peers, of_rows = shares(peers), shares(rows)
    mixed = (of_peers.T @ peers + _WEIGHT * means) / (of_peers.sum(0) + _WEIGHT)[:, None]
    spread = _spread(peers - of_peers @ mixed, simulated - means[domains])
    return ((rows - of_rows @ mixed) / spread).clamp(-_FAR, _FAR), of_rows


def _spread(rest: Tensor, simulated: Tensor) -> Tensor:
    """(D,): the root mean square of deviations (M, D) and, with `_WEIGHT` of them, (S, D) simulated ones."""
    sums = rest.square().sum(0) + _WEIGHT * simulated.square().mean(0)
    return (sums / (len(rest) + _WEIGHT)).sqrt() + 1e-12


def _means(rows: Tensor, domains: Tensor) -> Tensor:
    """(K, D): the mean of each domain's rows."""
    return torch.stack([rows[domains == domain].mean(0) for domain in range(int(domains.max()) + 1)])


def likeness(now: Tensor, before: Tensor) -> Tensor:
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, standardised and whitened."""
    ours, theirs = standard(now), standard(before)
    axes = torch.linalg.svd(theirs - theirs.mean(0), full_matrices=False)
    variance = axes.S.square() / len(theirs)
    white = axes.Vh.T / (variance + _RIDGE * variance.mean()).sqrt()
    ours, theirs = (torch.nn.functional.normalize(rows @ white, dim=1) for rows in (ours, theirs))
    return ours @ theirs.T


def remembered(rounds: Sequence[Tensor], decay: float) -> Tensor:
    """The mean (N, D) of the same clients' standardised artifacts in several rounds, the latest first.

    Each round counts `decay` times as much as the one after it.
    """
    weights = [decay**age for age in range(len(rounds))]
    total = torch.zeros_like(rounds[0])
    for weight, rows in zip(weights, rounds, strict=True):
        if weight:
            total += weight / sum(weights) * rows
    return total


def best_decay(rounds: Sequence[Tensor]) -> float:
    """The decay with which the latest of these rounds, whose clients are known, is best linked with those before it.

    That is: most clients linked, and of equally many the largest mean margin.
    """
    latest, *earlier = rounds
    itself = torch.eye(len(latest), dtype=torch.bool)

    def linked(decay: float) -> tuple[int, float]:
        scores = likeness(latest, remembered(earlier, decay))
        margin = scores.diagonal() - scores.masked_fill(itself, -torch.inf).amax(1)
        return int((margin > 0).sum()), float(margin.mean())

    return max(_DECAYS, key=linked)


def standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their median, in units of the median absolute deviation, clipped to _FAR to limit outliers."""
    center = rows.median(0).values
    spread = (rows - center).abs().median(0).values
    return ((rows - center) / (spread + 1e-2 * spread.mean() + 1e-12)).clamp(-_FAR, _FAR)
