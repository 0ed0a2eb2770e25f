"""Kernel ridge regression against plain loops over widths, penalties and inputs left out."""

from typing import Literal

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fdgpriv.statistics import kernel_ridge
from fdgpriv.statistics.kernel_ridge import KernelRidge, RegressionLoss


def gram(kernel: str, one: Tensor, other: Tensor, width: float) -> Tensor:
    if kernel == "linear":
        return (one[:, None] * other).sum(2).double()
    return (-(one[:, None] - other).square().sum(2) / width).exp().double()


def on_the_others(
    kernel: str, inputs: Tensor, targets: Tensor, center: Tensor, ridge: float, width: float
) -> tuple[Tensor, Tensor]:
    """Each row's prediction by the regression on all others, and the errors' mean square."""
    found, whole = [], gram(kernel, inputs, inputs, width)
    for i in range(len(inputs)):
        rest = torch.arange(len(inputs)) != i
        within = whole[rest][:, rest] + ridge * torch.eye(len(inputs) - 1)
        weights = torch.linalg.solve(within, targets[rest] - center)
        found.append(whole[i, rest] @ weights + center)
    return torch.stack(found), (torch.stack(found) - targets).square().mean()


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_ridge_has_the_least_leave_one_out_error(
    kernel: Literal["linear", "rbf"], rng: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every width and penalty is tried with every row left out; one target at a time."""
    monkeypatch.setattr(kernel_ridge, "_BATCH_SIZE", 1)
    inputs = torch.randn(14, 3, generator=rng)
    targets = inputs[:, :2].sin() + 0.3 * torch.randn(14, 2, generator=rng)
    found = KernelRidge(inputs, targets, kernel)
    inputs, targets = inputs.double(), targets.double()
    center = targets.mean(0)
    pairs = torch.stack([(a - b).square().sum() for a in inputs for b in inputs])
    widths = [1.0] if kernel == "linear" else [w * float(pairs[pairs > 1e-9].median()) for w in kernel_ridge.WIDTHS]
    tried = {
        (width, penalty * float(gram(kernel, inputs, inputs, width).trace()) / 14)
        for width in widths
        for penalty in kernel_ridge.PENALTIES
    }
    loops = {one: on_the_others(kernel, inputs, targets, center, one[1], one[0]) for one in tried}
    width, ridge = min(loops, key=lambda one: float(loops[one][1]))
    assert found.width == pytest.approx(width)
    torch.testing.assert_close(found.left_out.double(), loops[width, ridge][0], atol=1e-5, rtol=1e-5)
    asked = torch.randn(4, 3, generator=rng)
    answers, asked = found(asked).double(), asked.double()
    if kernel == "linear":  # a plain ridge at the same penalty
        x, y = inputs.numpy(), (targets - center).numpy()
        weights = np.linalg.solve(x.T @ x + ridge * np.eye(3), x.T @ y)
        wanted = torch.from_numpy(asked.numpy() @ weights) + center
    else:
        within = gram(kernel, inputs, inputs, width) + ridge * torch.eye(14)
        wanted = gram(kernel, asked, inputs, width) @ torch.linalg.solve(within, targets - center) + center
    torch.testing.assert_close(answers, wanted, atol=1e-4, rtol=1e-4)


def without_each_group(
    kernel: str, inputs: Tensor, targets: Tensor, groups: Tensor, ridge: float, width: float
) -> Tensor:
    """Each row's prediction by the regression on the rows of other groups; the targets' mean is of all rows."""
    center, found = targets.mean(0), torch.empty_like(targets)
    for group in groups.unique():
        rest = groups != group
        within = gram(kernel, inputs[rest], inputs[rest], width)
        weights = torch.linalg.solve(within + ridge * torch.eye(len(within)), targets[rest] - center)
        found[~rest] = gram(kernel, inputs[~rest], inputs[rest], width) @ weights + center
    return found


def absolute(predicted: Tensor, targets: Tensor) -> Tensor:
    return (predicted.round() - targets).abs().mean()


def squared(predicted: Tensor, targets: Tensor) -> Tensor:
    return (predicted - targets).square().mean()


@pytest.mark.parametrize("loss", [None, absolute])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_settings_are_chosen_by_leave_group_out(
    kernel: Literal["linear", "rbf"], loss: RegressionLoss | None, rng: torch.Generator
) -> None:
    """Every width and penalty is tried with every group left out, in a loop; the groups differ in a shift of the inputs."""
    groups = torch.arange(18) % 3
    inputs = torch.randn(18, 3, generator=rng) + 2.0 * groups[:, None]
    targets = 3 * inputs[:, :1].sin() + 0.5 * torch.randn(3, 1, generator=rng)[groups]
    found = KernelRidge(inputs, targets, kernel, groups, loss)
    wide, wanted = inputs.double(), targets.double()
    center = wanted.mean(0)
    pairs = torch.stack([(a - b).square().sum() for a in wide for b in wide])
    widths = [1.0] if kernel == "linear" else [w * float(pairs[pairs > 1e-9].median()) for w in kernel_ridge.WIDTHS]
    errors = {}
    for width in widths:
        mean = float(gram(kernel, wide, wide, width).trace()) / 18
        for penalty in kernel_ridge.PENALTIES:
            left_out = without_each_group(kernel, wide, wanted, groups, penalty * mean, width)
            errors[width, penalty] = float((loss or squared)(left_out, wanted))
    width, penalty = min(errors, key=lambda one: (errors[one], -one[1]))  # of equal ones the larger penalty
    assert found.width == pytest.approx(width)
    assert found.loss == pytest.approx(errors[width, penalty], rel=1e-4)
    ridge = penalty * float(gram(kernel, wide, wide, width).trace()) / 18
    weights = torch.linalg.solve(gram(kernel, wide, wide, width) + ridge * torch.eye(18), wanted - center)
    torch.testing.assert_close(
        found(inputs).double(), gram(kernel, wide, wide, width) @ weights + center, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize(("kernel", "dimensions"), [("linear", 3), ("linear", 30), ("rbf", 3)])
def test_the_error_leaves_each_group_out(
    kernel: Literal["linear", "rbf"], dimensions: int, rng: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_ridge, "MAX_CHOICE_INPUTS", 6)
    groups = torch.arange(18) % 5
    inputs = torch.randn(18, dimensions, generator=rng)
    targets = inputs[:, :2].sin() + 0.1 * torch.randn(18, 2, generator=rng)
    some = kernel_ridge.choice_indices(18)
    assert len(some) == 6
    rest = torch.ones(18).index_fill(0, some, 0).bool()
    targets[rest] += targets[some].mean(0) - targets[rest].mean(0)  # those chosen on have the mean of all
    found = KernelRidge(inputs, targets, kernel, groups)
    few = KernelRidge(inputs[some], targets[some], kernel, groups[some])
    assert (found.width, found.penalty) == (pytest.approx(few.width), few.penalty)
    inputs, targets = inputs.double(), targets.double()
    ridge = found.penalty * float(gram(kernel, inputs, inputs, found.width).trace()) / 18
    left_out = without_each_group(kernel, inputs, targets, groups, ridge, found.width)
    assert found.loss == pytest.approx(float(squared(left_out, targets)), rel=1e-4)


@pytest.mark.parametrize("turns", [2, 3, 4, 6, 12])
def test_inputs_that_come_in_turns_are_all_chosen_on(turns: int) -> None:
    for count in (600, 1000, 3000):
        chosen = (kernel_ridge.choice_indices(count) % turns).bincount(minlength=turns)
        assert int(chosen.sum()) == kernel_ridge.MAX_CHOICE_INPUTS
        assert stats.chisquare(chosen.numpy()).pvalue > 1e-3
    assert kernel_ridge.choice_indices(5).tolist() == [0, 1, 2, 3, 4]


def test_a_radial_kernel_fits_what_no_line_does(rng: torch.Generator) -> None:
    inputs, asked = torch.randn(80, 2, generator=rng), torch.randn(50, 2, generator=rng)
    error = {
        kernel: float((KernelRidge(inputs, inputs.square(), kernel)(asked) - asked.square()).square().mean())
        for kernel in ("linear", "rbf")
    }
    assert error["rbf"] < 0.2 * error["linear"]


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_uninformative_vectors_predict_the_mean(kernel: str, rng: torch.Generator) -> None:
    targets = torch.rand(6, 5, generator=rng)
    found = KernelRidge(torch.zeros(6, 4), targets, kernel)
    torch.testing.assert_close(found(torch.zeros(2, 4)), targets.mean(0).expand(2, -1))
    assert bool(found.left_out.isfinite().all())


@pytest.mark.parametrize(("kernel", "dimensions"), [("linear", 3), ("linear", 30), ("rbf", 3)])
def test_on_many_inputs_the_penalty_is_a_local_optimum(
    kernel: Literal["linear", "rbf"], dimensions: int, rng: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fewer inputs than all, a larger penalty is chosen; every penalty is tried on all in a loop."""
    monkeypatch.setattr(kernel_ridge, "MAX_CHOICE_INPUTS", 6)
    inputs = torch.randn(18, dimensions, generator=rng)
    targets = inputs[:, :2].sin() + 0.1 * torch.randn(18, 2, generator=rng)
    found = KernelRidge(inputs, targets, kernel)
    some = kernel_ridge.choice_indices(18)
    few = KernelRidge(inputs[some], targets[some], kernel)
    assert found.width == pytest.approx(few.width)
    inputs, targets = inputs.double(), targets.double()
    center, mean = targets.mean(0), float(gram(kernel, inputs, inputs, found.width).trace()) / 18
    loops = [
        on_the_others(kernel, inputs, targets, center, penalty * mean, found.width)
        for penalty in kernel_ridge.PENALTIES
    ]
    place = kernel_ridge.PENALTIES.index(found.penalty)
    torch.testing.assert_close(found.left_out.double(), loops[place][0], atol=1e-5, rtol=1e-5)
    errors = [float(error) for _, error in loops]
    assert errors[place] == min(errors[max(0, place - 1) : place + 2])
    assert errors[place] <= errors[kernel_ridge.PENALTIES.index(few.penalty)]
