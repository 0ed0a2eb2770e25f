"""Estimates the label shares behind an update from the changes of the last layer and of BatchNorm's statistics.

The bias of class c changes by the mean of p_c - y_c over the images. For a single image only its label's entry is negative
(Zhao et al., "iDLG", 2020). For several, a class whose bias or any weight of whose row has a negative gradient has an image,
where the layer's inputs are not negative (Yin et al., "See through gradients", CVPR 2021). The number of
images of each class is predicted by ridge regression from simulated updates, since images that the model already classifies
well hardly change the layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator

from ._inversion import bias_change, one_hot
from ._simulation import center_and_spread, simulated

_MIN_UPDATES = 20  # simulated for one regression
_HELD_BACK_PER_DOMAIN = 4  # simulated updates that are held back to choose the regression
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e4)  # times the mean eigenvalue; the largest makes predictions nearly equal
_NEGATIVE = -1e-4  # times the largest weight change; rounding errors are smaller


class LabelEstimator:
    """Estimates label shares from updates of one received model and one number of images.

    Args:
        adversary: Public images, and how clients train.
        received_model: The model that clients train.
        images: Number of images of each update.
        simulations: SGD steps to simulate; of at least `_MIN_UPDATES` updates.
    """

    def __init__(self, adversary: Adversary, received_model: ModelState, images: int, simulations: int) -> None:
        self.simulator = adversary.simulator(TrainingSimulator)
        self.received_model, self.images, self.classes = received_model, images, adversary.classes
        if images > 1:
            count = max(_MIN_UPDATES, simulations // max(1, self.simulator.plain.steps(images)))
            key = LabelEstimator, received_model, images, count
            self.regression: _ShareRegression = adversary.cache.get(
                key, partial(self._fitted_regression, adversary, count)
            )

    def __call__(self, artifact: Artifact) -> Tensor:
        """The share of each label (K,), summing to 1, estimated from a client's model or update."""
        if self.images == 1:
            change = self.simulator.change(artifact, self.received_model)
            return one_hot(bias_change(change, self.simulator.last_layer).argmin(), self.classes)
        vector = self.simulator.vector(artifact, self.received_model)
        counts = allocated(
            self.regression(self._inputs(vector)[None])[0] * self.images, self.images, self._is_surely_present(vector)
        )
        return counts / self.images

    def _fitted_regression(self, adversary: Adversary, count: int) -> "_ShareRegression":
        clients = simulated(adversary, self.images, count, (self.received_model,))
        training = [(client.vector, client.shares) for client in clients]
        held_back = [
            (self.simulator.vector(update, self.received_model), labels.bincount(minlength=self.classes) / len(labels))
            for update, _, labels in held_back_updates(adversary, self.received_model, self.images)
        ]
        vectors, shares, test_vectors, test_shares = (
            torch.stack(column)
            for column in (*zip(*training, strict=True), *zip(*(held_back or training), strict=True))
        )
        # the rule fails with weight decay, noise or negative inputs
        certain = all(
            bool((label_shares[self._has_negative_gradient(vector)] > 0).all())
            for vector, label_shares in (*training, *held_back)
        )
        inputs, test_inputs = (
            torch.stack([self._inputs(vector) for vector in group]) for group in (vectors, test_vectors)
        )
        return min(
            (
                _ShareRegression.of(inputs, shares, columns, penalty, certain).with_loss(test_inputs, test_shares)
                for columns in self._input_choices(inputs.shape[1])
                for penalty in _PENALTIES
            ),
            key=lambda regression: regression.loss,
        )

    def _last_layer_change(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Changes of the last layer's weight (K, D) and bias (K,), which end an update's vector."""
        shapes = [self.received_model.state[name].shape for name in self.simulator.last_layer]
        parts = vector[-sum(shape.numel() for shape in shapes) :].split([shape.numel() for shape in shapes])
        change = {
            name: part.view(shape) for name, part, shape in zip(self.simulator.last_layer, parts, shapes, strict=True)
        }
        return change[self.simulator.last_layer[0]].flatten(1), bias_change(change, self.simulator.last_layer)

    def _has_negative_gradient(self, vector: Tensor) -> Tensor:
        """(K,): whether the bias of a class, or any weight of its row, has a negative gradient."""
        weight, bias = self._last_layer_change(vector)
        return (bias < 0) | (weight.amin(1) < _NEGATIVE * weight.abs().max())

    def _is_surely_present(self, vector: Tensor) -> Tensor:
        """(K,): whether the update surely contains an image of the class."""
        return (
            self._has_negative_gradient(vector)
            if self.regression.certain
            else torch.zeros(self.classes, dtype=torch.bool)
        )

    def _inputs(self, vector: Tensor) -> Tensor:
        """(3K + D,): change of the bias, its direction, the smallest weight change of each row, and the update's vector."""
        weight, bias = self._last_layer_change(vector)
        direction = bias / bias.abs().sum().clamp_min(1e-20)
        smallest_weights = weight.amin(1) / weight.norm().clamp_min(1e-20)
        return torch.cat([bias, direction, smallest_weights, vector])

    def _input_choices(self, width: int) -> Sequence[slice]:
        """Inputs that a regression may use: the bias; its direction and the smallest weights; or all inputs."""
        k = self.classes
        return slice(0, k), slice(k, 3 * k), slice(0, width)


def held_back_updates(
    adversary: Adversary, received_model: ModelState, n: int
) -> list[tuple[Artifact, Tensor, Tensor]]:
    """Simulated updates of n held-back images each (fewer in smaller domains), with these images and labels.

    No two updates share an image; there are at most four for each domain.
    """
    updates = []
    for d, domain in enumerate(adversary.held_back):
        size = max(1, min(n, len(domain)))
        order = torch.randperm(len(domain), generator=generator(adversary.seed, 54, n, d))
        for turn, index in enumerate(order[: len(domain) // size * size].split(size)[:_HELD_BACK_PER_DOMAIN]):
            rng = generator(adversary.seed, 61, n, d, turn)
            update = adversary.simulate(domain.images, domain.labels, index, rng, received_model)
            updates.append((update, domain.images[index], domain.labels[index]))
    return updates


@dataclass(frozen=True, eq=False)
class _ShareRegression:
    """Ridge regression from selected inputs of an update to label shares.

    Attributes:
        columns: The selected inputs.
        center, spread: Mean and standard deviation (D,) of the selected inputs.
        weight, offset: (D, K) and (K,).
        certain: Whether each class with a negative gradient has an image in all simulated updates.
        loss: Share of wrong labels on other updates.
    """

    columns: slice
    center: Tensor
    spread: Tensor
    weight: Tensor
    offset: Tensor
    certain: bool
    loss: float = 1.0

    @classmethod
    def of(cls, inputs: Tensor, shares: Tensor, columns: slice, penalty: float, certain: bool) -> "_ShareRegression":
        """Fits inputs (M, ...) to shares (M, K) with this penalty."""
        center, spread = center_and_spread(inputs[:, columns])
        rows, offset = ((inputs[:, columns] - center) / spread).double(), shares.mean(0)
        gram = rows @ rows.T
        gram = gram + penalty * gram.diagonal().mean().clamp_min(1e-12) * torch.eye(len(gram), dtype=gram.dtype)
        weight = rows.T @ torch.linalg.solve(gram, (shares - offset).double())
        return cls(columns, center, spread, weight.float(), offset, certain)

    def with_loss(self, inputs: Tensor, shares: Tensor) -> "_ShareRegression":
        """Returns this regression with its loss on updates with these inputs and true shares."""
        loss = float((self(inputs) - shares).abs().sum(1).mean()) / 2
        return _ShareRegression(self.columns, self.center, self.spread, self.weight, self.offset, self.certain, loss)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Shares (M, K) for inputs (M, ...); not negative, summing to 1."""
        rows = ((inputs[:, self.columns] - self.center) / self.spread).clamp(-10, 10)
        shares = (rows @ self.weight + self.offset).clamp_min(0)
        total = shares.sum(1, keepdim=True)
        return torch.where(total > 0, shares / total.clamp_min(1e-9), torch.full_like(shares, 1 / shares.shape[1]))


def allocated(expected: Tensor, count: int, present: Tensor) -> Tensor:
    """(K,): integers that sum to `count`, close to the expected numbers (K,), at least 1 for each class that is `present`.

    With more present classes than images, the classes with the largest expected numbers get an image.
    """
    counts = torch.zeros_like(expected)
    present_classes = present.nonzero()[:, 0]
    counts[present_classes[expected[present_classes].argsort(descending=True)[:count]]] = 1
    for _ in range(count - int(counts.sum())):
        counts[(expected - counts).argmax()] += 1
    return counts
