"""Estimates the label shares of an update's images from the change of the last layer and of BatchNorm's statistics.

The bias of class c changes by the mean of p_c - y_c over the images. For a single image only its label's entry is negative
(Zhao et al., "iDLG", 2020). For several, a class whose bias or any weight of whose row has a negative gradient has an image,
where the layer's inputs are not negative (Yin et al., "See through gradients", CVPR 2021). Their numbers are predicted by
ridge regression from simulated updates, as the change alone tells little of images that the model already classifies well.
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

_LEAST = 20  # simulated updates
_OF_DOMAIN = 4  # held-back updates of each domain
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e4)  # in mean eigenvalues; under the last, all predictions are alike
_NEGATIVE = -1e-4  # of the row's largest weight: rounding is less


class LabelEstimator:
    """Estimates label shares from updates of one received model and one number of images.

    Args:
        adversary: Public images, and how clients train.
        received_model: What is trained.
        images: Number of images of each update.
        simulations: SGD steps to simulate; of at least `_LEAST` updates.
    """

    def __init__(self, adversary: Adversary, received_model: ModelState, images: int, simulations: int) -> None:
        self.simulator = adversary.simulator(TrainingSimulator)
        self.received_model, self.images, self.classes = received_model, images, adversary.classes
        if images > 1:
            count = max(_LEAST, simulations // max(1, self.simulator.plain.steps(images)))
            key = LabelEstimator, received_model, images, count
            self.fit: _Fit = adversary.cache.get(key, partial(self._fitted, adversary, count))

    def __call__(self, artifact: Artifact) -> Tensor:
        """The share of each label (K,), summing to 1, estimated from a client's model or update."""
        if self.images == 1:
            change = self.simulator.change(artifact, self.received_model)
            return one_hot(bias_change(change, self.simulator.last_layer).argmin(), self.classes)
        vector = self.simulator.vector(artifact, self.received_model)
        counts = allocated(self.fit(self._inputs(vector)[None])[0] * self.images, self.images, self._present(vector))
        return counts / self.images

    def _fitted(self, adversary: Adversary, count: int) -> "_Fit":
        clients = simulated(adversary, self.images, count, (self.received_model,))
        learned = [(client.vector, client.shares) for client in clients]
        held_back = [
            (self.simulator.vector(made, self.received_model), labels.bincount(minlength=self.classes) / len(labels))
            for made, _, labels in held_back_updates(adversary, self.received_model, self.images)
        ]
        rows, shares, others, true = (
            torch.stack(one) for one in (*zip(*learned, strict=True), *zip(*(held_back or learned), strict=True))
        )
        # the rule holds without weight decay, noise and negative inputs only
        certain = all(bool((share[self._negative(row)] > 0).all()) for row, share in (*learned, *held_back))
        inputs, checked = (torch.stack([self._inputs(row) for row in every]) for every in (rows, others))
        return min(
            (
                _Fit.of(inputs, shares, used, penalty, certain).measured(checked, true)
                for used in self._choices(inputs.shape[1])
                for penalty in _PENALTIES
            ),
            key=lambda fit: fit.loss,
        )

    def _last(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Changes of the last layer's weight (K, D) and bias (K,), which end an update's vector."""
        shapes = [self.received_model.state[name].shape for name in self.simulator.last_layer]
        parts = vector[-sum(shape.numel() for shape in shapes) :].split([shape.numel() for shape in shapes])
        change = {
            name: part.view(shape) for name, part, shape in zip(self.simulator.last_layer, parts, shapes, strict=True)
        }
        return change[self.simulator.last_layer[0]].flatten(1), bias_change(change, self.simulator.last_layer)

    def _negative(self, vector: Tensor) -> Tensor:
        """(K,): whether the bias of a class, or any weight of its row, has a negative gradient."""
        weight, bias = self._last(vector)
        return (bias < 0) | (weight.amin(1) < _NEGATIVE * weight.abs().max())

    def _present(self, vector: Tensor) -> Tensor:
        """(K,): whether a class surely has an image."""
        return self._negative(vector) if self.fit.certain else torch.zeros(self.classes, dtype=torch.bool)

    def _inputs(self, vector: Tensor) -> Tensor:
        """(3K + D,): change of the bias, its direction and each row's least weight, and the whole vector."""
        weight, bias = self._last(vector)
        direction = bias / bias.abs().sum().clamp_min(1e-20)
        least = weight.amin(1) / weight.norm().clamp_min(1e-20)
        return torch.cat([bias, direction, least, vector])

    def _choices(self, width: int) -> Sequence[slice]:
        """Which inputs a regression may use: the bias; its direction and the least weights; all of these and the vector."""
        k = self.classes
        return slice(0, k), slice(k, 3 * k), slice(0, width)


def held_back_updates(
    adversary: Adversary, received_model: ModelState, n: int
) -> list[tuple[Artifact, Tensor, Tensor]]:
    """Simulated updates of n images each (fewer of smaller domains), which were held back, with their images and labels.

    No two have an image in common: at most four of each domain.
    """
    found = []
    for d, domain in enumerate(adversary.held_back):
        size = max(1, min(n, len(domain)))
        order = torch.randperm(len(domain), generator=generator(adversary.seed, 54, n, d))
        for turn, index in enumerate(order[: len(domain) // size * size].split(size)[:_OF_DOMAIN]):
            rng = generator(adversary.seed, 61, n, d, turn)
            made = adversary.simulate(domain.images, domain.labels, index, rng, received_model)
            found.append((made, domain.images[index], domain.labels[index]))
    return found


@dataclass(frozen=True, eq=False)
class _Fit:
    """Ridge regression from some of the inputs to label shares.

    Attributes:
        used: Which of the inputs.
        center, spread: Of these, (D,).
        weight, offset: (D, K) and (K,).
        certain: Whether each class with a negative gradient has an image in all simulated updates.
        loss: Share of wrong labels of other updates.
    """

    used: slice
    center: Tensor
    spread: Tensor
    weight: Tensor
    offset: Tensor
    certain: bool
    loss: float = 1.0

    @classmethod
    def of(cls, inputs: Tensor, shares: Tensor, used: slice, penalty: float, certain: bool) -> "_Fit":
        """Fitted to inputs (M, ...) and shares (M, K) with this penalty."""
        center, spread = center_and_spread(inputs[:, used])
        rows, offset = ((inputs[:, used] - center) / spread).double(), shares.mean(0)
        gram = rows @ rows.T
        gram = gram + penalty * gram.diagonal().mean().clamp_min(1e-12) * torch.eye(len(gram), dtype=gram.dtype)
        weight = rows.T @ torch.linalg.solve(gram, (shares - offset).double())
        return cls(used, center, spread, weight.float(), offset, certain)

    def measured(self, inputs: Tensor, shares: Tensor) -> "_Fit":
        """The same with its loss for updates with these inputs and true shares."""
        wrong = float((self(inputs) - shares).abs().sum(1).mean()) / 2
        return _Fit(self.used, self.center, self.spread, self.weight, self.offset, self.certain, wrong)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Shares (M, K) for inputs (M, ...); not negative, summing to 1."""
        rows = ((inputs[:, self.used] - self.center) / self.spread).clamp(-10, 10)
        found = (rows @ self.weight + self.offset).clamp_min(0)
        total = found.sum(1, keepdim=True)
        return torch.where(total > 0, found / total.clamp_min(1e-9), torch.full_like(found, 1 / found.shape[1]))


def allocated(expected: Tensor, count: int, present: Tensor) -> Tensor:
    """(K,): integers that sum to `count`, near the expected numbers (K,), at least 1 for classes that are `present` (K,).

    Of more present classes than images, those with the largest expected numbers have one.
    """
    found = torch.zeros_like(expected)
    sure = present.nonzero()[:, 0]
    found[sure[expected[sure].argsort(descending=True)[:count]]] = 1
    for _ in range(count - int(found.sum())):
        found[(expected - found).argmax()] += 1
    return found
