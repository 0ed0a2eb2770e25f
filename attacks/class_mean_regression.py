"""Class mean regression: draws a client's mean image from what its training tells of labels and of the first layer's inputs.

The mean of a client's images differs from that of its domain by its labels, of which the last layer tells, and by what
its images of each class look like, of which BatchNorm's first statistics tell: they are averages over all pixels of
functions of the images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import BatchNormStatistics, ClassifierHead, ModelState, ModelUpdate
from fdgpriv.attack import Attack, GroupSizes
from fdgpriv.data.dataset import Domain
from fdgpriv.simulation.bn_statistics import StatisticsSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.average_look import AverageLook
from fdgpriv.utils.fields import PositiveFloat, TwoOrMore

from ._batchnorm import batches_seen, bn_layers, layer_inputs, mean_squares, revealed
from ._simulation import Vectors, probe, received_models, simulated_by_domain
from .label_histogram import LabelHistogram

_SURELY = 2.0  # times the mean square that is expected, beyond which statistics are taken for noise in part
_TINY = 1e-12


@dataclass(frozen=True)
class ClassMeanRegression(Attack):
    """The domain's mean image, moved by the inferred label shares and by the first BatchNorm layer's statistics.

    Labels are those that `label_histogram` infers. The domain is the client's where the adversary knows it; else a
    discriminant tells it from the same simulated artifacts. What the other clients' statistics of the round differ from
    those of public images by more than their images let them is noise of training. A head tells of labels alone, and so
    does an artifact that no others are seen beside, or a model of which each client received other first layers.

    Attributes:
        penalty: Of the regression on statistics, in squared lengths of an image's statistics with their noise.
        expensive_simulations, last_layer_simulations: As of `label_histogram`, with which they are shared.
    """

    reads = (ModelState, ModelUpdate, ClassifierHead, BatchNormStatistics)
    task = AverageLook()
    threats = ("server",)
    group_sizes: ClassVar[GroupSizes | None] = (1, None)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"expensive_simulations": 6, "last_layer_simulations": 9},
        "thorough": {"expensive_simulations": 80, "last_layer_simulations": 60},
    }

    penalty: PositiveFloat = 2.0
    expensive_simulations: TwoOrMore = 32
    last_layer_simulations: TwoOrMore = 24

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        labels = LabelHistogram(
            expensive_simulations=self.expensive_simulations, last_layer_simulations=self.last_layer_simulations
        )
        shares = labels.infer(adversary, observations, rng)
        received = received_models(observations)
        simulated, domains = simulated_by_domain(adversary, self.expensive_simulations, received)
        weights = _domain_weights(adversary, observations, simulated, domains)
        predicted = []
        for observation, of_observation, weight in zip(observations, shares, weights, strict=True):
            reader = _Reader(adversary, observation.received_model, (simulated, domains), self.penalty)
            predicted.append(reader.mean_image(observation, of_observation, weight))
        return torch.stack(predicted).view(-1, *adversary.public_images[0].shape[1:]).clamp(0, 1)


def _domain_weights(
    adversary: Adversary, observations: Sequence[Observation], simulated: Vectors, domains: Tensor
) -> Tensor:
    """(M, D): 1 for the client's domain where the adversary knows it; else its probabilities by simulated artifacts.

    Args:
        adversary: What it has.
        observations: M artifacts.
        simulated: Artifacts that it simulated, of the `domains` (S,).
    """
    names = [domain.name for domain in adversary.domains]
    weights, unknown = torch.zeros(len(observations), len(names)), []
    for i, observation in enumerate(observations):
        if (domain := adversary.domain_of(observation)) in names:
            weights[i, names.index(domain)] = 1.0
        else:
            unknown.append(i)
    if unknown:
        without_domain = [observations[i] for i in unknown]
        n_images = torch.tensor([observation.n_images for observation in without_domain])
        weights[unknown] = probe(simulated, domains, adversary.vectors(without_domain), n_images, len(names)).exp()
    return weights


@dataclass(frozen=True, eq=False)
class _Reader:
    """Draws the mean images behind artifacts of clients that received this model.

    Attributes:
        adversary: What it has.
        received_model: That they received.
        simulated: Simulated artifacts and the domain (S,) of each.
        penalty: As of the attack.
    """

    adversary: Adversary
    received_model: Any
    simulated: tuple[Vectors, Tensor]
    penalty: float

    def mean_image(self, observation: Observation, shares: Tensor, weights: Tensor) -> Tensor:
        """(P,): the expected mean image, given label shares (K,) and the probabilities (D,) of the domains."""
        domain = int(weights.argmax())
        by_domain = [self._class_means(auxiliary_domain) for auxiliary_domain in self.adversary.domains]
        by_labels = torch.stack([class_means.of_labels(shares) for class_means in by_domain])
        predicted: Tensor = weights @ by_labels
        statistics = self.statistics(observation.artifact, self.received_model)
        noise = None if statistics is None else self._noise(observation, domain, by_domain[domain])
        if statistics is not None and noise is not None:
            n = observation.n_images
            by_statistics = by_domain[domain].of_statistics(statistics, shares, n, noise, self.penalty)
            predicted = predicted + weights[domain] * by_statistics
        return predicted

    def statistics(self, artifact: Artifact, received_model: ModelState | None) -> Tensor | None:
        """(2C,): mean and mean square of the first BatchNorm layer's inputs over a client's batches; None if not revealed.

        Args:
            artifact: The client's.
            received_model: That it received.
        """
        network = self._network
        if network is None:
            return None
        simulator = self.adversary.simulator(Simulator)  # type: ignore[type-abstract]
        if isinstance(simulator, TrainingSimulator):
            assert received_model is not None
            received, trained = received_model.state, simulator.after(artifact, received_model).state
            moments = revealed(network, trained, received, batches_seen(trained, received))
        else:
            moments = revealed(network, artifact.tensors(), None, 0)
        moments_of_layer = moments.get(next(iter(bn_layers(network))))
        return None if moments_of_layer is None else mean_squares(*moments_of_layer).nan_to_num(0.0, 0.0, 0.0)

    def _noise(self, observation: Observation, domain: int, class_means: "ClassMeans") -> Tensor | None:
        """(2C, 2C): as of `ClassMeans.noise`, by the other clients of the domain; None where none is seen."""
        seen = self.adversary.view(observation)[-1]
        rows = []
        for name, artifact in seen.others.items():
            received_model = seen.received_models.get(name)
            if not self._has_same_first_layers(received_model):
                continue
            key = (_Reader, seen.number, name)
            other_client = self.adversary.cache.get(key, partial(self._of_other, artifact, received_model))
            if other_client is not None and other_client[1] == domain:
                rows.append(other_client[0])
        if not rows or class_means.statistics is None:
            return None
        return class_means.noise(torch.stack(rows), max(1, self.adversary.typical))

    def _has_same_first_layers(self, received_model: ModelState | None) -> bool:
        """Whether this model equals the received one in all tensors before the first BatchNorm layer."""
        if received_model is self.received_model:
            return True
        if received_model is None or self.received_model is None or (network := self._network) is None:
            return False
        first, ours, theirs = next(iter(bn_layers(network))), self.received_model.state, received_model.state
        before = takewhile(lambda name: not name.startswith(f"{first}."), ours)
        return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in before)

    def _of_other(self, artifact: Artifact, received_model: ModelState | None) -> tuple[Tensor, int] | None:
        """Statistics (2C,) and domain of another client, from its artifact and the model that it received."""
        statistics = self.statistics(artifact, received_model)
        if statistics is None:
            return None
        artifacts, domains = self.simulated
        vector = self.adversary.vector(artifact, received_model)[None]
        n_images = torch.tensor([self.adversary.typical])
        return statistics, int(probe(artifacts, domains, vector, n_images, len(self.adversary.domains)).argmax())

    @property
    def _network(self) -> nn.Module | None:
        """The received model in evaluation mode, where it has a BatchNorm layer whose statistics artifacts can tell."""
        network: nn.Module | None = self.adversary.cache.get(("first layer", self.received_model), self._loaded)
        return network

    def _loaded(self) -> nn.Module | None:
        simulator = self.adversary.simulator(Simulator)  # type: ignore[type-abstract]
        if not isinstance(simulator, TrainingSimulator | StatisticsSimulator):
            return None
        network = simulator.network().eval()
        self.received_model.load_into(network)
        return network if bn_layers(network) else None

    def _class_means(self, domain: Domain) -> "ClassMeans":
        network, classes = self._network, self.adversary.classes

        def computed() -> ClassMeans:
            statistics = None if network is None else first_statistics(network, domain.images)
            return ClassMeans.of(domain.images.flatten(1), domain.labels, statistics, classes)

        class_means: ClassMeans = self.adversary.cache.get((ClassMeans, self.received_model, domain.name), computed)
        return class_means


@torch.no_grad()
def first_statistics(network: nn.Module, images: Tensor) -> Tensor:
    """(N, 2C): by image (N, 3, H, W), means and mean squares over the pixels of the first BatchNorm layer's inputs."""
    inputs = layer_inputs(network, next(iter(bn_layers(network).values())), images)
    inputs = inputs.reshape(*inputs.shape[:2], -1)  # BatchNorm1d has inputs (N, C)
    variance, mean = torch.var_mean(inputs, dim=2, correction=0)
    return mean_squares(mean, variance).nan_to_num(0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """How the mean of some images of a domain follows from their label shares and the mean of their statistics.

    Attributes:
        shares: (K,) of each class among the adversary's images.
        images: Their mean (P,), and of each class its difference from it (K, P).
        statistics: The same of their statistics (F,) and (K, F); None where none are read.
        spread: (F,) standard deviation of the images' statistics.
        rest: The images (N, P) and their statistics (N, F), less the means of their classes.
    """

    shares: Tensor
    images: tuple[Tensor, Tensor]
    statistics: tuple[Tensor, Tensor] | None
    spread: Tensor
    rest: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, statistics: Tensor | None, classes: int) -> Self:
        """From images (N, P), their labels (N,), and their statistics (N, F) or None."""
        counts = labels.bincount(minlength=classes).float()
        center, by_class = shrunk_means(images, labels, counts)
        rest = images - center - by_class[labels]
        if statistics is None:
            return cls(counts / len(labels), (center, by_class), None, torch.empty(0), (rest, torch.empty(0)))
        level, level_by_class = shrunk_means(statistics, labels, counts)
        away = statistics - level - level_by_class[labels]
        spread = statistics.std(0) + _TINY
        return cls(counts / len(labels), (center, by_class), (level, level_by_class), spread, (rest, away))

    def of_labels(self, shares: Tensor) -> Tensor:
        """(P,): the mean of images with these label shares (K,)."""
        center, by_class = self.images
        return center + (shares - self.shares) @ by_class

    def noise(self, statistics: Tensor, n: int) -> Tensor:
        """(F, F): what the statistics (M, F) of clients of n images vary by beyond what images do, in units of `spread`.

        Their mean products of differences from the mean of the adversary's images, less what both vary by as means of
        images of a class; directions in which that is negative count as without noise.
        """
        assert self.statistics is not None
        deviations, residuals = (
            (rows / self.spread).double() for rows in (statistics - self.statistics[0], self.rest[1])
        )
        of_images = residuals.T @ residuals / len(residuals) * (1 / n + 1 / len(residuals))
        values, vectors = torch.linalg.eigh(deviations.T @ deviations / len(deviations) - of_images)
        covariance: Tensor = (vectors * values.clamp_min(0)) @ vectors.T
        return covariance

    def of_statistics(self, statistics: Tensor, shares: Tensor, n: int, noise: Tensor, penalty: float) -> Tensor:
        """(P,): what statistics tell of the mean of n images beyond its labels, by ridge regression.

        Statistics that are further from what is expected than chance allows count less.

        Args:
            statistics: (F,) the mean over the images, with noise.
            shares: (K,) of their labels.
            n: Number of the images.
            noise: (F, F) covariance of the noise, in units of `spread`.
            penalty: In mean squared lengths of an image's statistics, classes and noise included.
        """
        assert self.statistics is not None
        level, by_class = self.statistics
        root = torch.linalg.cholesky(torch.eye(len(level), dtype=torch.float64) + n * noise)
        rows = torch.cat([(statistics - level - (shares - self.shares) @ by_class)[None], self.rest[1]]) / self.spread
        whitened = torch.linalg.solve_triangular(root, rows.double().T, upper=False).T
        deviation, inputs = whitened[0], whitened[1:]
        deviation = deviation * min(1.0, _SURELY / max(_TINY, n * float(deviation.square().mean()))) ** 0.5
        ridge = penalty * len(deviation) * torch.eye(len(inputs), dtype=inputs.dtype)
        weights: Tensor = torch.linalg.solve(inputs @ inputs.T + ridge, inputs @ deviation).float()
        return weights @ self.rest[0]


def shrunk_means(rows: Tensor, labels: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (F,) of rows (N, F), and by class (K, F) the difference of its mean, shrunk by what is chance in it.

    The variance between classes is that of their means, less what the variance within classes lets these differ by.
    """
    center = rows.mean(0)
    sums = torch.zeros(len(counts), rows.shape[1]).index_add_(0, labels, rows - center)
    differences = sums / counts.clamp_min(1)[:, None]
    freedom = max(1, len(rows) - int(counts.count_nonzero()))
    within = float((rows - center - differences[labels]).square().sum()) / freedom / rows.shape[1]
    present = counts > 0
    chance = within / counts[present]
    between = max(0.0, float((differences[present].square().mean(1) - chance).mean()))
    shrunk = torch.zeros_like(differences)
    shrunk[present] = differences[present] * (between / (between + chance).clamp_min(_TINY))[:, None]
    return center, shrunk
