"""Kernel ridge regression whose kernel width and penalty are chosen by a loss on inputs left out, by default the error."""

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
CHOSEN_ON = 500  # inputs that width and penalty are chosen on
_LEAST = 1e-12  # mean eigenvalue, where all vectors are zero
_CHECKED = 64  # targets that width and penalty are chosen by
_AT_ONCE = 4096  # targets; photographs have many, and twice as many bytes in double precision

RegressionLoss = Callable[[Tensor, Tensor], Tensor]  # of predictions and targets (M, P): a number, ()


def some_of(count: int) -> Tensor:
    """At most `CHOSEN_ON` indices below `count`, in order: random ones, since inputs may come in turns (of domains, say)."""
    return torch.randperm(count, generator=generator(count))[:CHOSEN_ON].sort().values


class KernelRidge:
    """Kernel ridge regression from vectors (D,) to targets (P,); width and penalty by the loss on inputs left out.

    Both are chosen on at most `CHOSEN_ON` of the inputs; on all, the penalty is moved as long as the loss falls.

    Args:
        inputs: (M, D) standardised vectors of simulated artifacts.
        targets: (M, P).
        kernel: ``linear`` (ridge regression), or ``rbf`` with a width around the median distance.
        groups: (M,) of inputs that are left out together: those of one look, where the observed artifacts will have yet
            another, or of one image. Then width and penalty stay as they were chosen.
        loss: What is to be small, and of equal ones the larger penalty; None for the mean squared error, of some targets.

    Attributes:
        loss: The loss on inputs left out, each by itself or with its group.
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
        every = max(1, targets.shape[1] // _CHECKED) if loss is None else 1
        left_out = _LeftOut(targets[:, ::every].double(), self.center[::every].double(), groups, loss or _mean_square)
        few = some_of(len(inputs))
        fit = self._chosen(inputs[few], left_out.among(few))
        if len(inputs) > CHOSEN_ON:
            fit = self._refitted(fit, left_out)
        self.width, self.penalty, self.loss = fit.width, fit.penalty, fit.loss
        diagonal = fit.inverse.diagonal()[:, None]
        self.left_out, self.weights = (empty_in_file(*targets.shape) for _ in range(2))
        for first in range(0, targets.shape[1], _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            weights = fit.inverse @ (targets[:, part] - self.center[part]).double()
            self.left_out[:, part] = targets[:, part] - weights / diagonal
            self.weights[:, part] = weights

    def __call__(self, inputs: Tensor) -> Tensor:
        """The predictions (N, P) for vectors (N, D)."""
        predictions: Tensor = self._gram(inputs, self.inputs, self.width) @ self.weights + self.center
        return predictions

    def _chosen(self, inputs: Tensor, left_out: "_LeftOut") -> "_KernelFit":
        """The fit to these inputs whose width and penalty lose least; all penalties by one eigendecomposition."""
        fits = []
        for width in self._widths(inputs):
            gram = self._gram(inputs.double(), inputs.double(), width)
            values, vectors = torch.linalg.eigh(gram)
            for penalty in PENALTIES:
                inverse = (vectors / (values.clamp_min(0) + penalty * _mean_eigenvalue(gram))) @ vectors.T
                fits.append(_KernelFit(left_out.measured(inverse), width, penalty, inverse))
        return min(fits, key=lambda fit: (fit.loss, -fit.penalty))

    def _refitted(self, chosen: "_KernelFit", left_out: "_LeftOut") -> "_KernelFit":
        """The fit to all inputs with the chosen width; its penalty the next smaller or larger while that loses less."""
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
                break  # the other direction leads back
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
    """(M, M): the inverse of inputs @ inputs.T + penalty I for inputs (M, D) of few dimensions, never formed (Woodbury).

    It is (I - inputs @ solved) / penalty, with `solved` (D, M).
    """

    inputs: Tensor
    solved: Tensor
    penalty: float

    @classmethod
    def of(cls, inputs: Tensor, penalty: float) -> "_LowRank":
        inner = inputs.T @ inputs + penalty * torch.eye(inputs.shape[1], dtype=inputs.dtype)
        return cls(inputs, torch.linalg.solve(inner, inputs.T), penalty)

    def __matmul__(self, rest: Tensor) -> Tensor:
        return (rest - self.inputs @ (self.solved @ rest)) / self.penalty

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
        center: (P,) that the regression adds.
        groups: (M,) of inputs that are left out together, or None.
        loss: Of predictions and targets.
    """

    targets: Tensor
    center: Tensor
    groups: Tensor | None
    loss: RegressionLoss

    def among(self, indices: Tensor) -> "_LeftOut":
        """The same, restricted to the inputs at these indices."""
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
    return max(float(gram.diagonal().mean()), _LEAST)
