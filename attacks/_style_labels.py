"""Label shares of a whole client from how its style differs from those of the other clients of its domain.

A style is, but for what BatchNorm couples, an average over the client's images. So a linear reading of single images' labels
from their influence on a style, applied to what a client's style differs from the other clients' mean, tells what its label
shares differ from theirs. The influence of an image is its mean contribution in simulated clients of its domain, less what
these clients' BatchNorm takes away again: a linear function of the mean contribution, learned by ridge regression.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn import functional as F

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.tasks.label_shares import as_shares
from fdgpriv.view import SeenRound, spaced

from ._replays import Replays
from ._simulation import nearest_size

LEAST_OTHERS = 5  # other clients of a domain without which their mean says little
_COUPLED = 0.1  # ridge penalty of the coupling, relative to the simulated clients' spread
_PENALTIES = tuple(10 ** (e / 2) for e in range(-4, 5))  # in mean squared lengths of the influences
_NEAR = 4.0  # mean squared distance from a cluster's center, in its variances, beyond which a style is not of it
_DECILE = 1.2816  # standard deviations below the mean
_SURE = 2.0  # standard errors of a spread, up to which it may be chance
_LEAST = 1e-9


class ReadStyles(NamedTuple):
    """How many styles are simulated and read.

    Attributes:
        simulations: Simulated clients of each domain and round.
        rounds: At most so many rounds are read, evenly spread.
    """

    simulations: int
    rounds: int


def reads_style(adversary: Adversary, observation: Observation) -> bool:
    """Whether this is a whole client's style, of a client of the simulated size, in which no leak is planted."""
    seen = adversary.view(observation)[-1]
    if adversary.plant is not None or not isinstance(seen.simulator, StyleSimulator):
        return False
    return 1 < adversary.typical == nearest_size(adversary, observation) and seen.simulator.template.level == "client"


def style_shares(adversary: Adversary, observation: Observation, settings: ReadStyles) -> Tensor:
    """(K,): the label distribution of a client of which `reads_style` holds.

    An adversary with images of its targets' domains compares with the other clients of the nearest domain; without, with
    the nearest cluster of the other clients' styles. Where it has neither, a style's distance from those of its own images
    is the domain's, not the labels': it predicts what it does without an artifact.
    """
    rounds = spaced(adversary.view(observation), settings.rounds)
    if adversary.expects_other_looks and len(rounds[-1].others) < LEAST_OTHERS:
        return adversary.hedged_shares
    key = (StyleReading, tuple(seen.number for seen in rounds), settings)
    reading = adversary.cache.get(key, partial(StyleReading.of, adversary, rounds, settings))
    deviation = reading.deviation(rounds, observation.n_images)
    if deviation is None:
        return adversary.hedged_shares
    return as_shares((adversary.hedged_shares + deviation)[None], torch.tensor([observation.n_images]))[0]


@dataclass(frozen=True, eq=False)
class _DomainStyles:
    """What the images of one domain do to the styles of clients.

    Attributes:
        replays: By round.
        influences: (N, F) of each image, of mean 0, over all rounds in units of `spread`.
        center: (F,) features of a client with all of the images.
        spread: (F,) standard deviation of the influences.
        noise: (M, F) what is left of simulated clients' styles, in units of `spread`.
    """

    replays: Sequence[Replays]
    influences: Tensor
    center: Tensor
    spread: Tensor
    noise: Tensor

    @classmethod
    def of(cls, replays: Sequence[Replays]) -> Self:
        influences, noise, center = (torch.cat(parts, dim=1) for parts in zip(*map(_influences, replays), strict=True))
        spread = influences.std(0) + _LEAST
        return cls(replays, influences / spread, center[0], spread, noise / spread)

    def features(self, styles: Sequence[Tensor]) -> Tensor:
        """(..., F): of styles, all moments of each round (..., V)."""
        return torch.cat([replay.moments.of_vectors(row) for replay, row in zip(self.replays, styles, strict=True)], -1)


def _influences(replay: Replays) -> tuple[Tensor, Tensor, Tensor]:
    """Influences (N, F) of the images on a client's style, the noise (M, F), and the features (1, F) without either."""
    images = replay.contributions - replay.contributions.mean(0)
    composed = replay.composed - replay.composed.mean(0)
    remainders = replay.remainders - replay.remainders.mean(0)
    unit = composed.std(0) + _LEAST
    inputs = composed / unit
    inner = inputs.T @ inputs + _COUPLED * len(inputs) * torch.eye(len(unit), dtype=inputs.dtype)
    coupling = torch.linalg.solve(inner, inputs.T @ remainders) / unit[:, None]
    center = replay.contributions.mean(0) + replay.remainders.mean(0)
    return images + images @ coupling, remainders - composed @ coupling, center[None]


@dataclass(frozen=True, eq=False)
class _LabelledInfluences:
    """Influences with labels, and rows of noise without, which keep a regression from reading what noise drowns.

    Attributes:
        rows: (N + M, F) influences of N images, and M rows of noise.
        targets: (N + M, K) labels, one-hot, less the mean of the image's domain; 0 of noise.
        domain: (N + M,) of each row.
        count: N.
        domains: Number of domains.
    """

    rows: Tensor
    targets: Tensor
    domain: Tensor
    count: int
    domains: int

    @classmethod
    def of(cls, domains: Sequence[_DomainStyles], labels: Sequence[Tensor], n: int) -> Self:
        """Of the images of these domains; the noise of a style of n images is n times as large beside one image."""
        counts = [len(domain.influences) for domain in domains]
        scales = [math.sqrt(n * count / len(domain.noise)) for count, domain in zip(counts, domains, strict=True)]
        noise = [scale * domain.noise for scale, domain in zip(scales, domains, strict=True)]
        rows = torch.cat([domain.influences for domain in domains] + noise)
        number = [torch.full((count,), d) for d, count in enumerate(counts)]
        number += [torch.full((len(of_domain),), d) for d, of_domain in enumerate(noise)]
        targets = rows.new_zeros(len(rows), labels[0].shape[1])
        targets[: sum(counts)] = torch.cat([of_domain - of_domain.mean(0) for of_domain in labels])
        return cls(rows, targets, torch.cat(number), sum(counts), len(domains))

    def regression(self, known: bool) -> tuple[Tensor, Tensor]:
        """Coefficients of the rows (N + M, K) by ridge regression, and predictions (N, K) of images that are left out.

        The penalty errs least on these.

        Args:
            known: Whether clients have one of these domains: rows of one domain then count twice for each other, and single
                images are left out; else whole domains.
        """
        gram, labels = self.rows @ self.rows.T, self.targets[: self.count]
        if known:
            gram = gram * (1 + (self.domain[:, None] == self.domain).double())
        unit = float(gram.diagonal()[: self.count].mean())
        values, vectors = torch.linalg.eigh(gram)
        groups = torch.arange(self.count) if known else self.domain[: self.count]
        least, coefficients, left_out = math.inf, self.targets, labels
        for penalty in _PENALTIES:
            weighed = vectors / (values.clamp_min(0) + penalty * unit)
            solved = weighed @ (vectors.T @ self.targets)
            predicted = labels - _errors(weighed, vectors, solved, groups)
            if (loss := float((labels - predicted).square().sum())) < least:
                least, coefficients, left_out = loss, solved, predicted
        return coefficients, left_out


@dataclass(frozen=True, eq=False)
class _Reading:
    """A linear reading of labels from influences on styles.

    Attributes:
        weights: By domain, (F, K): shares per unit of influence; of an unknown domain one for all.
        explained: The share of the variance of labels of images left out that it explains, in [0, 1].
    """

    weights: Sequence[Tensor]
    explained: float

    @classmethod
    def of(cls, domains: Sequence[_DomainStyles], labels: Sequence[Tensor], n: int, known: bool) -> Self:
        """Ridge regression of the labels (N, K) of each domain's images, one-hot, on their influences.

        It is shrunk by its predictions of images left out. Each domain has a reading of its own that is drawn to that of
        all. Of an unknown domain there is only the latter, shrunk by what it can be expected to predict of another one.

        Args:
            domains: The influences, and the noise of a style of n images.
            labels: By domain.
            n: Number of images of a style.
            known: Whether clients have one of these domains.
        """
        data = _LabelledInfluences.of(domains, labels, n)
        coefficients, left_out = data.regression(known)
        along, length = (data.targets[: data.count] * left_out).sum(1), left_out.square().sum(1)
        slope = float(along.sum() / length.sum().clamp_min(_LEAST))
        low = slope
        if not known and data.domains > 1:
            of_images = [data.domain[: data.count] == d for d in range(data.domains)]
            slopes = [float(along[is_own].sum() / length[is_own].sum().clamp_min(_LEAST)) for is_own in of_images]
            low = slope - _DECILE * float(torch.tensor(slopes).std())
        shrinkage = min(1.0, max(0.0, low))
        of_all = data.rows.T @ coefficients
        weights = [shrinkage * of_all]
        if known:
            in_domain = [data.domain == d for d in range(data.domains)]
            weights = [shrinkage * (of_all + data.rows[rows].T @ coefficients[rows]) for rows in in_domain]
        explained = max(0.0, slope) * float(along.sum()) / max(float(data.targets.square().sum()), _LEAST)
        return cls(weights, explained)

    def spread(self, others: Tensor, n: int) -> float:
        """The variance of readings (M, K) of other clients, less their mean, beside that expected of n independent draws."""
        drawn = (1 - 1 / others.shape[1]) / n
        return float(others.square().sum()) / max(1, len(others) - 1) / max(self.explained * drawn, _LEAST)

    def stretch(self, others: Tensor, n: int) -> float:
        """What deviations are multiplied by where clients' labels are skewed by more than n independent draws are.

        Where a share r of the variance is explained, shares of variance v (in units of that of n draws) give readings of
        variance r^2 v + r (1 - r); least squares then wants v / (r v + 1 - r) times the reading.

        Args:
            others: (M, K) readings of other clients, less their mean.
            n: Number of images of each.
        """
        (count, classes), observed = others.shape, self.spread(others, n)
        if observed <= 1 + _SURE * math.sqrt(2 / (count * (classes - 1))):
            return 1.0
        skewed = (observed - 1 + self.explained) / max(self.explained, _LEAST)
        return skewed / (self.explained * skewed + 1 - self.explained)


def _errors(weighed: Tensor, vectors: Tensor, solved: Tensor, groups: Tensor) -> Tensor:
    """(N, K): targets of the first N rows less their prediction without their group (N,).

    Args:
        weighed, vectors: (M, M) whose product, the latter transposed, is the inverse of the penalised inner products.
        solved: (M, K) this inverse times the targets.
        groups: Of the first N rows.
    """
    count = len(groups)
    if len(groups.unique()) == count:
        return solved[:count] / (weighed[:count] * vectors[:count]).sum(1, keepdim=True)
    errors = solved[:count].clone()
    for group in groups.unique():
        members = (groups == group).nonzero().flatten()
        errors[members] = torch.linalg.solve(weighed[members] @ vectors[members].T, solved[members])
    return errors


@dataclass(frozen=True, eq=False)
class StyleReading:
    """Reads label shares from the style of a client beside those of others, with the images of one adversary.

    Attributes:
        domains: Of the images that it practises on.
        known: Whether these are the domains of the clients.
        reading: Learned from these images.
        clusters: Number of domains that clients may have.
        seed: Of the clustering.
    """

    domains: Sequence[_DomainStyles]
    known: bool
    reading: _Reading
    clusters: int
    seed: int

    @classmethod
    def of(cls, adversary: Adversary, rounds: Sequence[SeenRound], settings: ReadStyles) -> Self:
        """Learns from the images that the adversary practises on; of other looks it simulates half as many clients."""
        domains, labels, known = [], [], not adversary.expects_other_looks
        for number, domain in enumerate(adversary.practice):
            count = settings.simulations if known or not number else max(2, settings.simulations // 2)
            replays = [Replays.of(adversary, seen, domain.images, adversary.typical, count) for seen in rounds]
            domains.append(_DomainStyles.of(replays))
            labels.append(F.one_hot(domain.labels, adversary.classes).double())
        reading = _Reading.of(domains, labels, adversary.typical, known)
        return cls(domains, known, reading, len(adversary.sources), adversary.seed)

    def deviation(self, rounds: Sequence[SeenRound], n: int) -> Tensor | None:
        """(K,): what the observed client's shares differ by from the mean of the other clients of its domain.

        Where there are too few of these, from those of its own images of the domain; None where it has none.
        """
        others = sorted(set[str].intersection(*(set(seen.others) for seen in rounds)))
        styles = [_vectors([seen.artifact, *(seen.others[name] for name in others)]) for seen in rounds]
        if self.known:
            away = torch.stack([(d.features(styles) - d.center) / d.spread for d in self.domains])  # (D, 1 + others, F)
            nearest = away.square().mean(2).argmin(0)
            domain, peers = int(nearest[0]), nearest == nearest[0]
            away, weights = away[domain], self.reading.weights[domain]
        else:
            peers = self._cluster(styles)
            if int(peers.sum()) <= LEAST_OTHERS:
                return None
            away, weights = self._within(styles, peers) * math.sqrt(1 / n), self.reading.weights[0]
        peers[0] = False
        if int(peers.sum()) < LEAST_OTHERS:
            return (away[0] @ weights).float()
        readings = (away - away[peers].mean(0)) @ weights
        factor = (
            self.reading.stretch(readings[peers], n)
            if self.known
            else 1 / max(1.0, self.reading.spread(readings[peers], n))
        )
        return (readings[0] * factor).float()

    def _cluster(self, styles: Sequence[Tensor]) -> Tensor:
        """(1 + others,): which styles are of the nearest cluster of the others' styles; none where it is far from all."""
        rows = torch.cat(list(styles), dim=1).double()
        others = (rows[1:] - rows[1:].mean(0)) / (rows[1:].std(0) + _LEAST)
        clustering = KMeans(min(self.clusters, len(others)), n_init=4, random_state=self.seed).fit(others.numpy())
        labels = torch.from_numpy(clustering.labels_)
        observed = (rows[0] - rows[1:].mean(0)) / (rows[1:].std(0) + _LEAST)
        centers = torch.from_numpy(clustering.cluster_centers_).double()
        nearest = int((observed - centers).square().sum(1).argmin())
        peers = torch.cat([torch.tensor([True]), labels == nearest])
        distances = (observed - centers[nearest]).square()
        if int(peers.sum()) < 3 or float((distances / (others[peers[1:]].var(0) + _LEAST)).median()) > _NEAR:
            peers[1:] = False  # a cluster of a single style has no variance
        return peers

    def _within(self, styles: Sequence[Tensor], peers: Tensor) -> Tensor:
        """(1 + others, F): features about the cluster's center, in units of the cluster's standard deviation."""
        others = peers.clone()
        others[0] = False
        rows = []
        for replay, vectors in zip(self.domains[0].replays, styles, strict=True):
            center = vectors[others, : len(replay.moments.center)].double().mean(0)
            rows.append(replace(replay.moments, center=center).of_vectors(vectors))
        features = torch.cat(rows, dim=1)
        return features / (features[others].std(0) + _LEAST)


def _vectors(artifacts: Sequence[Artifact]) -> Tensor:
    """(M, V): all moments of styles."""
    return torch.stack([artifact.vector() for artifact in artifacts if isinstance(artifact, StyleStatistics)])
