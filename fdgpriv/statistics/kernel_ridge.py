"""Kernel ridge regression; chooses kernel width and penalty by the leave-one-out loss, by default the squared error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fdgpriv.utils.file_memory import empty_in_file
from fdgpriv.utils.seeds import generator

WIDTHS = (0.5, 2.0, 8.0)  # of the kernel, in median squared distances
PENALTIES = tuple(10.0**e for e in range(-4, 4))  # in mean eigenvalues
MAX_CHOICE_INPUTS = 500  # inputs on which width and penalty are chosen
_MIN_EIGENVALUE = 1e-12  # used as the mean eigenvalue if all vectors are 0
_CHOICE_TARGETS = 64  # targets by which width and penalty are chosen
_BATCH_SIZE = 4096  # targets; photographs have many, in double precision

RegressionLoss = Callable[[Tensor, Tensor], Tensor]  # of predictions and targets (M, P): a number, ()


def choice_indices(count: int) -> Tensor:
    """At most `MAX_CHOICE_INPUTS` random indices below `count`, in ascending order."""
    return torch.randperm(count, generator=generator(count))[:MAX_CHOICE_INPUTS].sort().values


class KernelRidge:
    """Kernel ridge regression from vectors (D,) to targets (P,); width and penalty minimise the loss on inputs left out.

    Both are chosen on at most `MAX_CHOICE_INPUTS` inputs; on all inputs, the penalty is then changed while the loss falls.

    Args:
        inputs: (M, D) standardised vectors of simulated artifacts.
        targets: (M, P).
        kernel: ``linear`` (ridge regression), or ``rbf`` with a width around the median distance.
        groups: (M,) groups of inputs that are left out together, for example of one look or one image. The penalty is then
            not changed on all inputs.
        loss: The loss to minimise, with the larger penalty among equal losses; None for the mean squared error of a selection
            of targets.

    Attributes:
        loss: The loss on inputs left out, each alone or with its group.
        left_out: (M, P) the prediction for each input by the regression on all others; in a file if it is large.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        kernel: Literal["linear", "rbf"],
        groups: Tensor | None = None,
        loss: RegressionLoss | None = None,
    ) -> None:
        self.inputs, self.kernel = inputs, kernel
        self.center = targets.mean(0)
        stride = max(1, targets.shape[1] // _CHOICE_TARGETS) if loss is None else 1
        left_out = _LeftOut(targets[:, ::stride].double(), self.center[::stride].double(), groups, loss or _mean_square)
        indices = choice_indices(len(inputs))
        fit = self._chosen(inputs[indices], left_out.among(indices))
        if len(inputs) > MAX_CHOICE_INPUTS:
            fit = self._refitted(fit, left_out)
        self.width, self.penalty, self.loss = fit.width, fit.penalty, fit.loss
        diagonal = fit.inverse.diagonal()[:, None]
        self.left_out, self.weights = (empty_in_file(*targets.shape) for _ in range(2))
        for first in range(0, targets.shape[1], _BATCH_SIZE):
            part = slice(first, first + _BATCH_SIZE)
            weights = fit.inverse @ (targets[:, part] - self.center[part]).double()
            self.left_out[:, part] = targets[:, part] - weights / diagonal
            self.weights[:, part] = weights

    def __call__(self, inputs: Tensor) -> Tensor:
        """The predictions (N, P) for vectors (N, D)."""
        predictions: Tensor = self._gram(inputs, self.inputs, self.width) @ self.weights + self.center
        return predictions

    def _chosen(self, inputs: Tensor, left_out: "_LeftOut") -> "_KernelFit":
        """The fit to these inputs with the smallest loss; one eigendecomposition serves all penalties."""
        fits = []
        for width in self._widths(inputs):
            gram = self._gram(inputs.double(), inputs.double(), width)
            values, vectors = torch.linalg.eigh(gram)
            for penalty in PENALTIES:
                inverse = (vectors / (values.clamp_min(0) + penalty * _mean_eigenvalue(gram))) @ vectors.T
                fits.append(_KernelFit(left_out.measured(inverse), width, penalty, inverse))
        return min(fits, key=lambda fit: (fit.loss, -fit.penalty))

    def _refitted(self, chosen: "_KernelFit", left_out: "_LeftOut") -> "_KernelFit":
        """The fit to all inputs with the chosen width; moves the penalty up or down while the loss falls."""
        gram = self._gram(self.inputs.double(), self.inputs.double(), chosen.width)

        def fit_with(index: int) -> _KernelFit:
            penalty = PENALTIES[index]
            inverse = self._inverse(gram, penalty * _mean_eigenvalue(gram))
            return _KernelFit(left_out.measured(inverse), chosen.width, penalty, inverse)

        index = PENALTIES.index(chosen.penalty)
        best = fit_with(index)
        for step in (1, -1) if left_out.groups is None else ():
            while 0 <= index + step < len(PENALTIES) and (fit := fit_with(index + step)).loss < best.loss:
                best, index = fit, index + step
            if best.penalty != chosen.penalty:
                break  # the other direction was worse
        return best

    def _inverse(self, gram: Tensor, penalty: float) -> "Tensor | _LowRank":
        """(M, M): the inverse of the kernel matrix plus `penalty` on its diagonal."""
        if self.kernel == "linear" and self.inputs.shape[1] < len(gram):
            return _LowRank.of(self.inputs.double(), penalty)
        factor: Tensor = torch.linalg.cholesky(gram + penalty * torch.eye(len(gram), dtype=gram.dtype))
        return torch.cholesky_inverse(factor)

    def _widths(self, inputs: Tensor) -> Sequence[float]:
        """The widths to choose from; the linear kernel has none."""
        if self.kernel == "linear":
            return [1.0]
        squares = torch.cdist(inputs, inputs).square()
        median = float(squares[squares > 0].median()) if bool((squares > 0).any()) else 1.0
        return [width * median for width in WIDTHS]

    def _gram(self, inputs: Tensor, others: Tensor, width: float) -> Tensor:
        """(N, M): the kernel between vectors (N, D) and (M, D)."""
        if self.kernel == "linear":
            return inputs @ others.T
        return (-torch.cdist(inputs, others).square() / width).exp()


class _LowRank(NamedTuple):
    """The inverse (M, M) of inputs @ inputs.T + penalty I for inputs (M, D) with D < M, in factors (Woodbury).

    It is (I - inputs @ solved) / penalty, with `solved` (D, M).
    """

    inputs: Tensor
    solved: Tensor
    penalty: float

    @classmethod
    def of(cls, inputs: Tensor, penalty: float) -> "_LowRank":
        inner = inputs.T @ inputs + penalty * torch.eye(inputs.shape[1], dtype=inputs.dtype)
        return cls(inputs, torch.linalg.solve(inner, inputs.T), penalty)

    def __matmul__(self, other: Tensor) -> Tensor:
        return (other - self.inputs @ (self.solved @ other)) / self.penalty

    def diagonal(self) -> Tensor:
        return (1 - (self.inputs * self.solved.T).sum(1)) / self.penalty

    def block(self, indices: Tensor) -> Tensor:
        """(m, m): the rows and columns at `indices` (m,)."""
        return (
            torch.eye(len(indices), dtype=self.inputs.dtype) - self.inputs[indices] @ self.solved[:, indices]
        ) / self.penalty


class _KernelFit(NamedTuple):
    """A width and a penalty, their loss on inputs left out, and the inverse (M, M) of the penalised kernel matrix."""

    loss: float
    width: float
    penalty: float
    inverse: Tensor | _LowRank


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """The loss on inputs that are left out.

    Attributes:
        targets: (M, P).
        center: (P,) mean targets, which the regression adds.
        groups: (M,) groups of inputs that are left out together, or None.
        loss: The loss of predictions and targets.
    """

    targets: Tensor
    center: Tensor
    groups: Tensor | None
    loss: RegressionLoss

    def among(self, indices: Tensor) -> "_LeftOut":
        """The loss on the inputs at these indices."""
        return replace(
            self, targets=self.targets[indices], groups=None if self.groups is None else self.groups[indices]
        )

    def measured(self, inverse: Tensor | _LowRank) -> float:
        """The loss of the regression with this inverse (M, M) of the penalised kernel matrix."""
        weights = inverse @ (self.targets - self.center)
        return float(self.loss(self.targets - self._errors(inverse, weights), self.targets))

    @cached_property
    def _groups_of_several(self) -> list[Tensor]:
        """The indices (m,) of each group of several inputs."""
        if self.groups is None:
            return []
        groups, counts = self.groups.unique(return_counts=True)
        return [(self.groups == group).nonzero().flatten() for group in groups[counts > 1]]

    def _errors(self, inverse: Tensor | _LowRank, weights: Tensor) -> Tensor:
        """(M, P): each target minus its prediction by the regression on the inputs of other groups."""
        errors = weights / inverse.diagonal()[:, None]
        for group in self._groups_of_several:
            block = inverse.block(group) if isinstance(inverse, _LowRank) else inverse[group[:, None], group]
            errors[group] = torch.linalg.solve(block, weights[group])
        return errors


def _mean_square(predicted: Tensor, targets: Tensor) -> Tensor:
    return (predicted - targets).square().mean()


def _mean_eigenvalue(gram: Tensor) -> float:
    return max(float(gram.diagonal().mean()), _MIN_EIGENVALUE)
