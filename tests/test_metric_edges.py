"""Every metric that a report prints against a plain formula at its edges: 0, 1, ties, constant inputs, one item, one class."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from factories import seeded
from scipy import stats
from test_metrics import as_pixels, pixel_extractor
from torch import Tensor

from fdgpriv.metrics.calibration import calibration_error
from fdgpriv.metrics.pixels import psnr_per_image, ssim_per_image
from fdgpriv.metrics.realism import inception_score, kid, small_fid
from fdgpriv.statistics.interval import clopper_pearson
from fdgpriv.tasks.class_label import ClassLabel
from fdgpriv.tasks.label_shares import r2
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.membership import tpr_at_fpr
from fdgpriv.tasks.roc import area


def plain_calibration(confidences: list[float], right: list[bool], bins: int = 15) -> float:
    """The sum over bins ((m - 1) / M, m / M] of |mean accuracy - mean confidence| times the bin's share."""
    total = 0.0
    for m in range(1, bins + 1):
        inside = [i for i, c in enumerate(confidences) if (m - 1) / bins < c <= m / bins]
        if inside:
            accuracy, confidence = (sum(float(v[i]) for i in inside) / len(inside) for v in (right, confidences))
            total += abs(accuracy - confidence) * len(inside) / len(confidences)
    return total


@pytest.mark.parametrize(
    ("confidences", "right"),
    [
        ([1.0, 1.0, 0.95, 0.95], [False, True, True, True]),  # torchmetrics has a bin of its own for 1: .275 for .225
        ([1.0], [True]),
        ([1.0], [False]),
        ([0.5, 0.5], [True, False]),
        ([1.0] * 3, [True] * 3),
    ],
)
def test_calibration_error(confidences: list[float], right: list[bool]) -> None:
    p = torch.tensor(confidences, dtype=torch.float64)
    logits = torch.stack([p.log(), (1 - p).log().clamp_min(-1e4)], dim=1)
    labels = torch.tensor([0 if correct else 1 for correct in right])
    assert calibration_error(logits, labels).value == pytest.approx(plain_calibration(confidences, right), abs=1e-9)
    assert calibration_error(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)).value == 0  # one class


def test_psnr() -> None:
    black, white = torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4)
    assert psnr_per_image(black, white).tolist() == [0.0]
    assert psnr_per_image(white, white).tolist() == [math.inf]
    one = black.clone()
    one[0, 0, 0, 0] = 1
    assert psnr_per_image(one, black).item() == pytest.approx(10 * math.log10(48))


def plain_ssim(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Of two images (3, 11, 11): one window, Gaussian weights of sigma 1.5, K = (.01, .03); the mean over channels."""
    line = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    w = np.outer(line, line) / line.sum() ** 2
    values = []
    for x, y in zip(a, b, strict=True):
        mx, my = (w * x).sum(), (w * y).sum()
        vx, vy, c = (w * x * x).sum() - mx**2, (w * y * y).sum() - my**2, (w * x * y).sum() - mx * my
        values.append((2 * mx * my + 1e-4) * (2 * c + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))
    return float(np.mean(values))


@pytest.mark.parametrize("case", ["black and white", "equal", "constant and noise", "noise", "two constants"])
def test_ssim(case: str) -> None:
    rng = seeded(0)
    flat, noise, other = torch.full((3, 11, 11), 0.3), *torch.rand(2, 3, 11, 11, generator=rng)
    a, b = {
        "black and white": (torch.zeros(3, 11, 11), torch.ones(3, 11, 11)),
        "equal": (flat, flat),
        "constant and noise": (flat, noise),
        "noise": (noise, other),
        "two constants": (flat, torch.full((3, 11, 11), 0.31)),
    }[case]
    found = ssim_per_image(a[None], b[None]).item()
    assert found == pytest.approx(plain_ssim(a.double().numpy(), b.double().numpy()), abs=1e-9)
    assert math.isnan(ssim_per_image(a[None, :, :10, :10], b[None, :, :10, :10]).item())  # smaller than the window


def plain_kid(x: Tensor, y: Tensor) -> float:
    def kernel(a: Tensor, b: Tensor) -> float:
        return float((float(a @ b) / len(a) + 1) ** 3)

    n = len(x)
    within = [sum(kernel(s[i], s[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1)) for s in (x, y)]
    return sum(within) - 2 * sum(kernel(a, b) for a in x for b in y) / n**2


@pytest.mark.parametrize("case", ["noise", "equal sets", "constant", "black and white"])
def test_kid_and_fid(case: str) -> None:
    rng = seeded(1)
    x, y = torch.rand(2, 4, 8, generator=rng).double()
    x, y = {
        "noise": (x, y),
        "equal sets": (x, x),
        "constant": (torch.full((4, 8), 0.5).double(), torch.full((4, 8), 0.5).double()),
        "black and white": (torch.zeros(4, 8), torch.ones(4, 8)),
    }[case]
    network = pixel_extractor()
    assert kid(as_pixels(x), as_pixels(y), network, seeded(0)).value == pytest.approx(plain_kid(x, y), abs=1e-9)
    assert kid(as_pixels(x[:2]), as_pixels(y), network, seeded(0)).value is None
    if case != "noise":  # equal covariances: what is left is the distance of the means
        expected = float((x.mean(0) - y.mean(0)).square().sum())
        assert small_fid(as_pixels(x), as_pixels(y), network).value == pytest.approx(expected, abs=1e-3)
    assert small_fid(as_pixels(x[:1]), as_pixels(y), network).value is None


@pytest.mark.parametrize(("rows", "expected"), [([0, 0, 0], 1.0), ([0, 1, 2, 3], 4.0), ([0, 0, 1, 1], 2.0)])
def test_inception_score(rows: list[int], expected: float) -> None:
    pixels = torch.eye(8)[rows]
    found = inception_score(as_pixels(pixels), pixel_extractor())
    assert found["is"].value == pytest.approx(expected, rel=1e-9)
    assert found["log_is"].value == pytest.approx(math.log(expected), abs=1e-9)
    assert inception_score(as_pixels(pixels[:1]), pixel_extractor())["is"].value is None


@pytest.mark.parametrize(
    ("members", "others"),
    [([1.0], [0.0]), ([0.0], [1.0]), ([0.5], [0.5]), ([1.0, 1.0, 0.0], [1.0, 0.0]), ([0.0] * 3, [0.0] * 4)],
)
def test_area_and_rates(members: list[float], others: list[float]) -> None:
    plain = np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others])
    assert area(torch.tensor([members]).double(), torch.tensor([others]).double()).item() == pytest.approx(plain)
    many = torch.tensor(others).repeat(400)
    accused = [t for t in {*members, *others, math.inf} if (many >= t).double().mean() <= 0.01]
    best = max(float(np.mean([m >= t for m in members])) for t in accused)
    assert tpr_at_fpr(torch.tensor(members), many, 0.01, len(many)).value == pytest.approx(best)
    assert tpr_at_fpr(torch.tensor(members), many, 0.01, 299).value is None


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 50), (25, 50)])
def test_clopper_pearson(k: int, n: int) -> None:
    """The ends are the rates at which k or more, and k or fewer, successes have probability 2.5 %."""
    found = clopper_pearson(k, n)
    assert found.lower == 0 if k == 0 else stats.binom.sf(k - 1, n, found.lower) == pytest.approx(0.025)
    assert found.upper == 1 if k == n else stats.binom.cdf(k, n, found.upper) == pytest.approx(0.025)
    assert found.value == k / n


def test_r2_of_shares() -> None:
    true = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]).double()
    assert r2(true, true).value == 1.0
    assert r2(true.mean(0).expand(3, 2), true).value == pytest.approx(0.0)
    assert r2(1 - true, true).value == pytest.approx(1 - 4.0)  # 1 - sum (2 d)^2 / sum d^2
    assert r2(true[:2], true[:2]).value is None
    assert r2(true, true[:1].expand(3, 2)).value is None


@pytest.mark.parametrize(
    ("labels", "answers", "expected"),
    [([0, 0, 0, 1], [0, 0, 0, 0], 0.5), ([1], [1], 1.0), ([1], [0], 0.0), ([2, 2], [2, 0], 0.5)],
)
def test_balanced_accuracy(labels: list[int], answers: list[int], expected: float) -> None:
    truths: Any = [SimpleNamespace(labels=torch.tensor([label])) for label in labels]
    scores = ClassLabel().score([torch.eye(3)[answer] for answer in answers], truths)
    assert float(scores.mean()) == pytest.approx(expected)


def test_ranks_count_ties_half() -> None:
    truths: Any = [SimpleNamespace(place=1)] * 3
    ties = [torch.zeros(3), torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])]
    assert LinkedClient().score(ties, truths).tolist() == [0.0, 1.0, 0.0]
    mrr = LinkedClient().details(ties, truths)["mrr"].tolist()
    assert mrr == pytest.approx([1 / 2, 1.0, 1 / 1.5])
