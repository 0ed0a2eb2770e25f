"""Scores pairs of artifacts from two rounds by the likelihood that both are of one client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# from known vectors (S, D), their labels (S,) and vectors (M, D) to log-probabilities (M, K)
Classify = Callable[[Tensor, Tensor, Tensor], Tensor]

_MAX_STANDARDISED = 3.0
_RIDGE = 0.1  # times the mean variance of an axis, added to every variance
_WEIGHT = 1.0  # number of simulated artifacts that count when observed ones are centred and scaled
_MAX_CORRELATION = 0.99
_DECAYS = (0.0, 0.25, 0.5, 0.75, 1.0)  # weight of a round relative to the next one
_DOMAIN_ERROR = 0.05  # assumed share of wrongly classified domains


@dataclass(frozen=True, eq=False)
class Practice:
    """Simulated clients' artifacts of both rounds.

    Attributes:
        now, before: (S, D) of the later and of the earlier round.
        domains: (S,) domains of their images, from 0.
    """

    now: Tensor
    before: Tensor
    domains: Tensor

    def part(self, indices: slice) -> "Practice":
        """The clients at these indices."""
        return Practice(self.now[indices], self.before[indices], self.domains[indices])


def links_more(practice: Practice, classify: Classify) -> bool:
    """Whether `log_odds`, learned from half of the simulated clients, links more of the other half than `likeness`."""
    half = len(practice.domains) // 2
    learn, test = practice.part(slice(half)), practice.part(slice(half, None))
    truth = torch.arange(len(test.domains))
    learned, plain = log_odds(test.now, test.before, learn, classify), likeness(test.now, test.before)
    return int((learned.argmax(1) == truth).sum()) > int((plain.argmax(1) == truth).sum())


def log_odds(
    now: Tensor, before: Tensor, practice: Practice, classify: Classify, peers: Tensor | None = None
) -> Tensor:
    """Log odds (M, N) of "both of one client" against "of two clients", up to a constant.

    Artifacts of one client are of one domain, and their entries have correlated deviations from that domain's mean. The two
    deviations of an entry are modelled as normal, with the correlation of simulated clients. Since entries depend on each
    other, they count as at most as many independent ones as there are simulated clients.

    Args:
        now, before: Artifacts (M, D) and (N, D) of two rounds.
        practice: Simulated clients.
        classify: Classifies domains, from simulated artifacts of known domains.
        peers: (P, D) the artifacts of all clients in the round of `now`, for centring; `now` itself if None.
    """
    ours, our_domains = _deviations(now, now if peers is None else peers, practice.now, practice.domains, classify)
    theirs, their_domains = _deviations(before, before, practice.before, practice.domains, classify)
    r = correlations(practice)
    scale = r / (1 - r.square())
    alone = -0.5 * r * scale
    entries = (alone * ours.square()).sum(1)[:, None] + (alone * theirs.square()).sum(1) + (scale * ours) @ theirs.T
    one_domain = (1 - _DOMAIN_ERROR) * (our_domains @ their_domains.T) + _DOMAIN_ERROR / our_domains.shape[1]
    return one_domain.log() + min(1.0, len(practice.domains) / now.shape[1]) * entries


def correlations(practice: Practice) -> Tensor:
    """(D,): each entry's correlation between its deviations from the domain's mean in the two rounds, in [0, 0.99]."""
    deviations = [rows - _means(rows, practice.domains)[practice.domains] for rows in (practice.now, practice.before)]
    later, earlier = (rows / (rows.square().mean(0).sqrt() + 1e-12) for rows in deviations)
    return (later * earlier).mean(0).clamp(0, _MAX_CORRELATION)


def _deviations(
    rows: Tensor, peers: Tensor, simulated: Tensor, domains: Tensor, classify: Classify
) -> tuple[Tensor, Tensor]:
    """Standardised deviations (M, D) of artifacts from the mean of their domain, and probabilities (M, K) of domains.

    Clients may train differently from simulated ones, which moves all artifacts of a domain: means and spreads are those of
    `peers`, the artifacts (P, D) of all clients, together with `_WEIGHT` simulated ones.
    """
    common, means = simulated.mean(0), _means(simulated, domains)
    center = (peers.sum(0) + _WEIGHT * common) / (len(peers) + _WEIGHT)
    centered = simulated - common
    scale = _spread(centered[:0], centered) / _spread(peers - center, centered)

    def domain_probabilities(artifacts: Tensor) -> Tensor:
        return classify(centered, domains, (artifacts - center) * scale).softmax(1)

    peer_domains, row_domains = domain_probabilities(peers), domain_probabilities(rows)
    domain_means = (peer_domains.T @ peers + _WEIGHT * means) / (peer_domains.sum(0) + _WEIGHT)[:, None]
    spread = _spread(peers - peer_domains @ domain_means, simulated - means[domains])
    return ((rows - row_domains @ domain_means) / spread).clamp(-_MAX_STANDARDISED, _MAX_STANDARDISED), row_domains


def _spread(deviations: Tensor, simulated: Tensor) -> Tensor:
    """(D,): the root mean square of deviations (M, D) and of simulated ones (S, D), which count as `_WEIGHT` rows."""
    sums = deviations.square().sum(0) + _WEIGHT * simulated.square().mean(0)
    return (sums / (len(deviations) + _WEIGHT)).sqrt() + 1e-12


def _means(rows: Tensor, domains: Tensor) -> Tensor:
    """(K, D): the mean of each domain's rows."""
    return torch.stack([rows[domains == domain].mean(0) for domain in range(int(domains.max()) + 1)])


def likeness(now: Tensor, before: Tensor) -> Tensor:
    """Cosines (M, N) of the artifacts (M, D) of one round with those (N, D) of another, standardised and whitened."""
    later, earlier = standard(now), standard(before)
    axes = torch.linalg.svd(earlier - earlier.mean(0), full_matrices=False)
    variance = axes.S.square() / len(earlier)
    whitening = axes.Vh.T / (variance + _RIDGE * variance.mean()).sqrt()
    later, earlier = (torch.nn.functional.normalize(rows @ whitening, dim=1) for rows in (later, earlier))
    return later @ earlier.T


def remembered(rounds: Sequence[Tensor], decay: float) -> Tensor:
    """The weighted mean (N, D) of the same clients' standardised artifacts in several rounds, the latest first.

    Each round has `decay` times the weight of the next one.
    """
    weights = [decay**age for age in range(len(rounds))]
    total = torch.zeros_like(rounds[0])
    for weight, rows in zip(weights, rounds, strict=True):
        if weight:
            total += weight / sum(weights) * rows
    return total


def best_decay(rounds: Sequence[Tensor]) -> float:
    """The decay that links most clients of the latest of these rounds with the rounds before it.

    The rounds have the same clients in the same order. Among equal decays, the one with the largest mean margin.
    """
    latest, *earlier = rounds
    itself = torch.eye(len(latest), dtype=torch.bool)

    def linked(decay: float) -> tuple[int, float]:
        scores = likeness(latest, remembered(earlier, decay))
        margin = scores.diagonal() - scores.masked_fill(itself, -torch.inf).amax(1)
        return int((margin > 0).sum()), float(margin.mean())

    return max(_DECAYS, key=linked)


def standard(rows: Tensor) -> Tensor:
    """Rows (M, D) about their median, in units of the median absolute deviation, clipped to limit outliers."""
    center = rows.median(0).values
    spread = (rows - center).abs().median(0).values
    return ((rows - center) / (spread + 1e-2 * spread.mean() + 1e-12)).clamp(-_MAX_STANDARDISED, _MAX_STANDARDISED)
