"""Mean image regression: ridge regression from a client's styles of some rounds to the mean of its images.

A style is nearly an average over images, and so is the mean image: of single images it tells little, of their mean more.
The mean, taken for each of the images, also answers what they look like: it has the colours and the brightness of all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.attack import Attack, GroupSizes
from fdgpriv.statistics.kernel_ridge import KernelRidge
from fdgpriv.tasks.images import Images
from fdgpriv.utils.fields import PositiveFloat, PositiveInt
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound, spaced

from ._simulation import ALPHAS, Vectors, nearest_size, probe, skewed

_TINY = 1e-8
Regression = Callable[[Tensor], Tensor]  # vectors (M, D) to images (M, P)


@dataclass(frozen=True)
class MeanImageRegression(Attack):
    """Simulates clients of its own images in some rounds, and regresses their mean image within the artifact's domain.

    The domain is that which a discriminant tells from the same artifacts. Simulated clients have skewed labels, since with
    the labels the mean image moves most. An adversary that has none of its targets' domains practises on other looks of its
    images, over all of which it fits one linear regression, by its errors on looks left out.

    Attributes:
        simulations: Simulated clients, of which more help more than further rounds do.
        rounds: Rounds of the view that are read, at most: evenly spaced, the last one included.
        penalty: Of the ridge regression of clients, in mean eigenvalues of the kernel matrix. Simulated clients share
            images, so that the error on clients left out would choose too small a one; of single images it chooses.
        looks: Number of other looks.
        in_each: Number of images in each of them.
    """

    reads = (StyleStatistics, AmplitudeSpectrum)
    task = Images()
    threats = ("insider", "server", "third_party")
    group_sizes: ClassVar[GroupSizes | None] = (1, None)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 60, "looks": 12, "in_each": 30},
        "thorough": {"simulations": 2400, "rounds": 2},
    }

    simulations: Annotated[int, Field(ge=6)] = 1200
    rounds: PositiveInt = 1
    penalty: PositiveFloat = 1.0
    looks: PositiveInt = 24
    in_each: PositiveInt = 60

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        adversary = adversary.with_looks(self.looks, self.in_each)
        views = [spaced(adversary.view(observation), self.rounds) for observation in observations]
        nearest = [nearest_size(adversary, observation) for observation in observations]
        alike: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for position, (size, view) in enumerate(zip(nearest, views, strict=True)):
            alike.setdefault((size, tuple(seen.number for seen in view)), []).append(position)
        mean_images = torch.empty(len(observations), *adversary.public_images[0].shape[1:])
        for (size, _), positions in alike.items():
            model = self._fitted(adversary, size, views[positions[0]])
            vectors = torch.stack(
                [
                    torch.cat([seen.simulator.vector(seen.artifact, None) for seen in views[position]])
                    for position in positions
                ]
            )
            mean_images[positions] = model(vectors).view(len(positions), *mean_images.shape[1:]).clamp(0, 1)
        return mean_images

    def _fitted(self, adversary: Adversary, size: int, view: Sequence[SeenRound]) -> Regression:
        """The regression for artifacts of `size` images in these rounds; cached."""
        key = (self, size, tuple(seen.number for seen in view))
        regression: Regression = adversary.cache.get(key, lambda: self._simulated(adversary, size, view))
        return regression

    def _simulated(self, adversary: Adversary, size: int, view: Sequence[SeenRound]) -> Regression:
        rows, means, domains = [], [], []
        for turn, (d, index) in enumerate(self._clients(adversary, size)):
            domain, rng = adversary.practice[d], generator(adversary.seed, 62, size, turn)
            artifacts = [
                adversary.simulate(domain.images, domain.labels, index, rng, simulator=seen.simulator) for seen in view
            ]
            rows.append(torch.cat([s.simulator.vector(a, None) for s, a in zip(view, artifacts, strict=True)]))
            means.append(domain.images[index].mean(0).flatten())
            domains.append(d)
        inputs, targets, of_domain = torch.stack(rows), torch.stack(means), torch.tensor(domains)
        if adversary.expects_other_looks:
            return _kernel_regression(inputs, targets, "linear", of_domain)
        centers = torch.stack([domain.images.mean(0).flatten() for domain in adversary.domains])
        return WithinDomains.of(inputs, targets, of_domain, centers, None if size == 1 else self.penalty)

    def _clients(self, adversary: Adversary, size: int) -> list[tuple[int, Tensor]]:
        """The domain and the images (m,) of each simulated client; each image of a domain by itself where `size` is 1."""
        if size == 1:
            return [
                (d, index[None]) for d, domain in enumerate(adversary.practice) for index in torch.arange(len(domain))
            ]
        clients = []
        for turn in range(self.simulations):
            rng, d = generator(adversary.seed, 61, size, turn), turn % len(adversary.practice)
            alpha = ALPHAS[turn // len(adversary.practice) % len(ALPHAS)]
            clients.append((d, skewed(adversary.practice[d], adversary.classes, size, alpha, rng)))
        return clients


@dataclass(frozen=True, eq=False)
class WithinDomains:
    """By domain, a regression from artifacts to how the mean image differs from that of the domain.

    Attributes:
        known: The simulated artifacts.
        domains: (S,) of each.
        centers: (K, P) the mean image of each domain.
        regressions: By domain.
    """

    known: Vectors
    domains: Tensor
    centers: Tensor
    regressions: Sequence[Regression]

    @classmethod
    def of(
        cls, inputs: Tensor, means: Tensor, domains: Tensor, centers: Tensor, penalty: float | None
    ) -> "WithinDomains":
        """Fits them to simulated artifacts (S, D) and mean images (S, P).

        Args:
            inputs, means, domains: Of simulated clients.
            centers: (K, P) the mean image of each domain.
            penalty: As of `MeanImageRegression`; None for the one that errs least on artifacts left out.
        """
        regressions = []
        for d, center in enumerate(centers):
            those = domains == d
            regressions.append(_regression(inputs[those], means[those] - center, penalty))
        return cls(Vectors(inputs, torch.ones(len(inputs))), domains, centers, regressions)

    def __call__(self, vectors: Tensor) -> Tensor:
        """The mean images (M, P) behind artifacts (M, D)."""
        single_images, count = torch.ones(len(vectors)), len(self.centers)
        domains = probe(self.known, self.domains, vectors, single_images, count).argmax(1)
        mean_images = self.centers[domains].clone()
        for d, regression in enumerate(self.regressions):
            mean_images[domains == d] += regression(vectors[domains == d])
        return mean_images


def _regression(inputs: Tensor, targets: Tensor, penalty: float | None) -> Regression:
    """Ridge regression from vectors (S, D) to targets (S, P); with the penalty left to errors on inputs left out, by kernel."""
    if penalty is None:
        return _kernel_regression(inputs, targets, "rbf")
    center, spread = inputs.mean(0), inputs.std(0) + _TINY
    standardised = (inputs - center) / spread
    gram = (standardised @ standardised.T).double()
    mean = targets.mean(0)
    ridge = penalty * gram.diagonal().mean().clamp_min(1e-12) * torch.eye(len(gram), dtype=gram.dtype)
    weights = standardised.T @ torch.linalg.solve(gram + ridge, (targets - mean).double()).float()
    return lambda vectors: (vectors - center) / spread @ weights + mean


def _kernel_regression(
    inputs: Tensor, targets: Tensor, kernel: Literal["linear", "rbf"], groups: Tensor | None = None
) -> Regression:
    """Kernel ridge regression from vectors (S, D) to targets (S, P), whose penalty errs least on groups (S,) left out."""
    center, spread = inputs.mean(0), inputs.std(0) + _TINY
    model = KernelRidge((inputs - center) / spread, targets, kernel, groups)
    return lambda vectors: model((vectors - center) / spread).float()
