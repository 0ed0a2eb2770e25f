"""Metrics against plainer and slower references, and against values known beforehand."""

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import seeded
from scipy.linalg import sqrtm
from scipy.ndimage import correlate1d
from torch import Tensor, nn

from fdgpriv.metrics.calibration import calibration_error
from fdgpriv.metrics.matching import hungarian, pairs
from fdgpriv.metrics.perceptual import FormulaLpips, PublishedLpips, extractor_lpips
from fdgpriv.metrics.pixels import psnr_per_image, ssim_per_image
from fdgpriv.metrics.realism import FID_MINIMUM, features, fid, inception_score, kid, small_fid
from fdgpriv.metrics.score import jackknife
from fdgpriv.models.extractor import Extractor, digits_extractor
from fdgpriv.utils.torchvision_import import lpips


def images(rng: torch.Generator, count: int, side: int = 32) -> Tensor:
    return torch.rand(count, 3, side, side, generator=rng)


def pixel_extractor(classes: int = 4) -> Extractor:
    """Features are the eight pixels of a 1x8 grey image's first channel; logits its first `classes` pixels, times 1,000."""

    class First(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            return batch[:, 0].flatten(1)

    head = nn.Linear(8, classes, bias=False)
    head.weight.data = 1000 * torch.eye(8)[:classes]
    return Extractor("pixels", "ab" * 32, nn.Sequential(First()), head).eval().requires_grad_(False)


def as_pixels(values: Tensor) -> Tensor:
    """(N, 8) as images (N, 3, 1, 8)."""
    return values[:, None, None, :].expand(-1, 3, 1, 8).contiguous()


# PSNR


def test_psnr_is_minus_ten_log_mse_of_each_image() -> None:
    truth = torch.full((5, 3, 8, 8), 0.5)
    prediction = truth.clone()
    prediction[0] += 0.1  # MSE 0.01: 20 dB
    prediction[1, :, 0, 0] += 0.5  # 0.25 in one pixel of 64: MSE 1/256
    prediction[2] += 0.01
    truth[3], prediction[3] = 0.0, 1.0
    values = psnr_per_image(prediction, truth)
    assert values.tolist() == pytest.approx([20.0, 10 * math.log10(256), 40.0, 0.0, math.inf], abs=1e-4)


def test_what_is_not_defined_is_nan() -> None:
    grey = torch.full((2, 3, 16, 16), 0.5)
    broken = grey.clone()
    broken[0, 0, 0, 0] = float("nan")
    for found in (psnr_per_image(broken, grey), ssim_per_image(broken, grey)):
        assert found.isnan().tolist() == [True, False]
    assert psnr_per_image(grey[:0], grey[:0]).shape == (0,)
    assert ssim_per_image(grey[..., :8], grey[..., :8]).isnan().all()


def test_images_outside_the_range_are_refused() -> None:
    grey = torch.full((1, 3, 16, 16), 0.5)
    for metric in (psnr_per_image, ssim_per_image):
        with pytest.raises(ValueError, match=r"want images in \[0, 1\]"):
            metric(2 * grey - 1.5, grey)
        with pytest.raises(ValueError, match="want one true image per image"):
            metric(grey, grey.expand(2, -1, -1, -1))


# SSIM


def plain_ssim(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al. on one channel (H, W), by separable correlation over the windows inside the image."""
    steps = np.arange(-5, 6)
    kernel = np.exp(-(steps**2) / (2 * 1.5**2))
    kernel /= kernel.sum()

    def blur(z: np.ndarray) -> np.ndarray:
        return np.asarray(correlate1d(correlate1d(z, kernel, axis=0), kernel, axis=1))[5:-5, 5:-5]

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx**2, blur(y * y) - my**2, blur(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    return float((((2 * mx * my + c1) * (2 * cov + c2)) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean())


@pytest.mark.parametrize("side", [11, 32, 41])
def test_ssim_equals_a_plain_one(rng: torch.Generator, side: int) -> None:
    """Of noisy images, of constants, and of black against white; 11 pixels are a single window."""
    truth = images(rng, 7, side)
    noise = torch.tensor([0.05, 0.2, 0.6])[:, None, None, None] * torch.randn(truth[:3].shape, generator=rng)
    prediction = torch.cat([(truth[:3] + noise).clamp(0, 1), images(rng, 4, side)])
    prediction[1] = prediction[1].mean()
    truth[3:6] = prediction[3] = 0.3
    prediction[4] = 0.31
    truth[6], prediction[6] = 0.0, 1.0
    wanted = [
        np.mean([plain_ssim(a.double().numpy(), b.double().numpy()) for a, b in zip(x, y, strict=True)])
        for x, y in zip(prediction, truth, strict=True)
    ]
    assert ssim_per_image(prediction, truth).tolist() == pytest.approx(wanted, abs=1e-4)


# Matching


@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 5), (5, 3)])
def test_hungarian_finds_the_best_assignment(rng: torch.Generator, n: int, m: int) -> None:
    prediction, truth = images(rng, n, 4), images(rng, m, 4)
    errors = torch.stack([torch.stack([(g - t).square().mean() for t in truth]) for g in prediction])
    if n <= m:
        best = min(sum(float(errors[i, p[i]]) for i in range(n)) for p in permutations(range(m), n))
    else:
        best = min(sum(float(errors[p[j], j]) for j in range(m)) for p in permutations(range(n), m))
    found = hungarian(prediction, truth)
    assert len(found.images) == len(set(found.truth.tolist())) == min(n, m)
    assert float(errors[found.images, found.truth].sum()) == pytest.approx(best, rel=1e-5)


def test_one_pair_is_checked_like_many(rng: torch.Generator) -> None:
    one, other = torch.rand(2, 1, 3, 8, 8, generator=rng)
    assert [part.tolist() for part in hungarian(one, other)] == [[0], [0]]
    with pytest.raises(ValueError, match="finite"):
        pairs(torch.full_like(one, torch.nan), other)
    with pytest.raises(ValueError, match="one size"):
        pairs(one[..., :4], other)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        pairs(one + 1, other)


# LPIPS


def test_the_lpips_formula_by_hand() -> None:
    """Two maps: one of 2 channels whose features turn by 90 degrees at one pixel of four, one of equal features."""
    first = torch.zeros(1, 2, 2, 2)
    first[:, 0] = 3.0
    turned = first.clone()
    turned[0, :, 0, 0] = torch.tensor([0.0, 5.0])
    maps = iter([[first, first], [turned, 7 * first]])  # lengths do not matter, only directions
    distance = FormulaLpips("hand", lambda _: next(maps))
    grey = torch.zeros(1, 3, 2, 2)
    assert distance.name == "lpips[hand]"
    assert float(distance(grey, grey)) == pytest.approx(2.0 / 4, abs=1e-4)


def test_the_lpips_formula_has_a_gradient_at_zero() -> None:
    grey = torch.full((1, 3, 2, 2), -1.0, requires_grad=True)  # 0 in [0, 1]
    torch.autograd.backward(FormulaLpips("x", lambda x: [x])(grey, torch.ones(1, 3, 2, 2)).sum())
    assert grey.grad.isfinite().all()


def test_the_offline_lpips_grows_with_the_damage(rng: torch.Generator) -> None:
    distance = extractor_lpips(digits_extractor())
    truth = images(rng, 4)
    noise = torch.randn(truth.shape, generator=rng)
    damaged = [(truth + s * noise).clamp(0, 1) for s in (0, 0.05, 0.2, 0.8)]
    values = [float(distance(2 * prediction - 1, 2 * truth - 1).mean()) for prediction in damaged]
    assert distance.name == "lpips[digits-extractor-1]"
    assert values[0] == 0.0
    assert values == sorted(values)
    assert values[1] > 0
    stages = digits_extractor().stages(truth[:1])
    direct = FormulaLpips("x", lambda x: [x])(2 * truth[:1] - 1, 2 * truth[1:2] - 1)
    unit = [t / t.square().sum(1, keepdim=True).sqrt() for t in (truth[:1], truth[1:2])]
    assert len(stages) == 4
    assert float(direct) == pytest.approx(float((unit[0] - unit[1]).square().sum(1).mean()), abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*weight.*:UserWarning")
@pytest.mark.parametrize(
    ("network", "file"),
    [("alex", "alexnet-owt-7be5be79.pth"), pytest.param("vgg", "vgg16-397923af.pth", marks=pytest.mark.slow)],
)
def test_published_lpips_is_the_packages(rng: torch.Generator, tmp_path: Path, network: str, file: str) -> None:
    package = lpips.LPIPS(net=network, pnet_rand=True, verbose=False)  # its heads, a trunk of random weights
    state = {f"features.{name.split('.', 1)[1]}": tensor for name, tensor in package.net.state_dict().items()}
    torch.save({**state, "classifier.0.bias": torch.zeros(3)}, tmp_path / file)
    ours, truth = images(rng, 2, 64), images(rng, 2, 64)
    distance = PublishedLpips(network, tmp_path)
    with torch.no_grad():
        found = distance(2 * ours - 1, 2 * truth - 1)
        wanted = package(ours, truth, normalize=True).flatten()
    assert distance.name == f"lpips[{network}]"
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=1e-4)
    assert min(found) > 1e-3


def test_published_lpips_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with pytest.raises(FileNotFoundError, match=r"alexnet-owt-7be5be79\.pth.*download\.pytorch\.org.*looked"):
        PublishedLpips("alex", tmp_path)
    torch.save({"features.0.weight": torch.zeros(1)}, tmp_path / "alexnet-owt-7be5be79.pth")
    with pytest.raises(ValueError, match="want the tensors of alexnet"):
        PublishedLpips("alex", tmp_path)
    with pytest.raises(ValueError, match="want a network of alex, vgg"):
        PublishedLpips("squeeze", tmp_path)


# FID, KID, IS


def test_fid_is_the_formula_with_scipys_matrix_root(rng: torch.Generator) -> None:
    mix = torch.randn(8, 8, generator=rng) / 8
    ours = (torch.rand(FID_MINIMUM, 8, generator=rng) @ mix.abs()).clamp(0, 1)
    theirs = torch.rand(FID_MINIMUM + 100, 8, generator=rng) * 0.8
    a, b = ours.double().numpy(), theirs.double().numpy()
    root = sqrtm(np.cov(a.T) @ np.cov(b.T)).real
    wanted = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root)
    found = fid(as_pixels(ours), as_pixels(theirs), pixel_extractor())
    assert found.name == "fid[pixels:abababab]"
    assert found.measured.n == FID_MINIMUM
    assert found.value == pytest.approx(float(wanted), abs=1e-4)
    assert float(wanted) > 0.1


def test_fid_of_too_few_images_has_a_reason(rng: torch.Generator) -> None:
    few, many = as_pixels(torch.rand(100, 8, generator=rng)), as_pixels(torch.rand(FID_MINIMUM, 8, generator=rng))
    for pair in ((few, many), (many, few)):
        found = fid(*pair, pixel_extractor())
        assert (found.value, found.measured.n) == (None, 100)
        assert "2,048" in str(found.measured.reason)


def test_small_fid_of_equal_covariances_is_that_of_means(rng: torch.Generator) -> None:
    network, noise, grey = pixel_extractor(), torch.rand(4, 8, generator=rng), torch.full((4, 8), 0.5)
    for a, b in ((noise, noise), (grey, grey), (0 * grey, 2 * grey)):
        expected = float((a.mean(0) - b.mean(0)).square().sum())
        assert small_fid(as_pixels(a), as_pixels(b), network).value == pytest.approx(expected, abs=1e-3)
    assert small_fid(as_pixels(noise[:1]), as_pixels(noise), network).value is None


def plain_kid(a: Tensor, b: Tensor) -> float:
    """Double loops over all pairs of different images, and all pairs of one and the other."""

    def kernel(x: Tensor, y: Tensor) -> float:
        return (float(x.double() @ y.double()) / len(x) + 1) ** 3

    n, m = len(a), len(b)
    own = sum(kernel(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    other = sum(kernel(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return own + other - 2 * sum(kernel(x, y) for x in a for y in b) / (n * m)


def test_kid_is_a_double_loop_with_a_jackknife_interval(rng: torch.Generator) -> None:
    a, b = torch.rand(12, 8, generator=rng), torch.rand(12, 8, generator=rng) ** 2
    extractor = pixel_extractor()
    state = torch.random.get_rng_state()
    found = kid(as_pixels(a), as_pixels(b), extractor, rng)
    assert found.name == "kid[pixels:abababab]"
    assert found.value == pytest.approx(plain_kid(a, b), abs=1e-4)
    for x, y in ((a, a), (0 * a + 0.5, 0 * a + 0.5), (0 * a, 0 * a + 1)):
        assert kid(as_pixels(x), as_pixels(y), extractor, rng).value == pytest.approx(plain_kid(x, y), abs=1e-4)
    assert torch.equal(torch.random.get_rng_state(), state)
    variance = 0.0
    for left_out in (
        [plain_kid(torch.cat([a[:i], a[i + 1 :]]), b) for i in range(12)],
        [plain_kid(a, torch.cat([b[:i], b[i + 1 :]])) for i in range(12)],
    ):
        variance += float(np.var(left_out)) * 11
    assert found.measured.ci95 is not None
    low, high = found.measured.ci95
    assert (high - low) / 2 == pytest.approx(1.96 * variance**0.5, rel=1e-3)


def test_the_interval_of_kid_covers_zero_if_equal(rng: torch.Generator) -> None:
    a, b = as_pixels(torch.rand(300, 8, generator=rng)), as_pixels(torch.rand(200, 8, generator=rng))
    same = kid(a, b, pixel_extractor(), rng).measured
    other = kid(a, b * 0.7, pixel_extractor(), rng).measured
    assert same.ci95 is not None
    assert other.ci95 is not None
    assert same.ci95[0] < 0 < same.ci95[1]
    assert other.ci95[0] > 0
    assert (same.n, kid(a[:2], b, pixel_extractor(), rng).value) == (200, None)


def test_the_inception_score_runs_from_one_to_k() -> None:
    """Constant predictions give exactly 1, K balanced one-hot classes give K."""
    for classes in (2, 8):
        extractor = pixel_extractor(classes)
        for used in (1, 2, classes):
            found = inception_score(as_pixels(torch.eye(8)[:used].repeat(24, 1)), extractor)
            assert found["is"].value == pytest.approx(used, abs=1e-6)
            assert found["log_is"].value == pytest.approx(math.log(used), abs=1e-6)
            assert found["is_over_k"].value == pytest.approx(used / classes, abs=1e-6)
            assert found["is"].name == "is[pixels:abababab]"
    assert inception_score(as_pixels(torch.eye(8)[:1]), extractor)["is"].value is None


def test_the_inception_score_is_a_loop_with_a_jackknife_interval(rng: torch.Generator) -> None:
    extractor = pixel_extractor()
    batch = as_pixels(torch.rand(15, 8, generator=rng) * 3e-3)
    p = extractor.logits(batch).double().softmax(1).numpy()

    def log_is(p: np.ndarray) -> float:
        return float(np.mean([sum(a * math.log(a / b) for a, b in zip(row, p.mean(0), strict=True)) for row in p]))

    found = inception_score(batch, extractor)
    assert found["is"].value == pytest.approx(math.exp(log_is(p)), abs=1e-4)
    spread = np.std([log_is(np.delete(p, i, axis=0)) for i in range(15)]) * 14**0.5
    assert found["log_is"].measured.ci95 is not None
    assert found["log_is"].measured.ci95[1] - log_is(p) == pytest.approx(1.96 * spread, rel=1e-3)


def test_features_want_evaluation_mode(rng: torch.Generator) -> None:
    extractor = digits_extractor()
    assert features(images(rng, 70), extractor).shape == (70, 64)
    with pytest.raises(ValueError, match="evaluation mode"):
        features(images(rng, 2), extractor.train())


# Calibration


def test_calibration_error_of_known_confidences() -> None:
    """Ten certain answers of which seven are right, and ten of confidence 0.6 of which six are right: (0.3 + 0) / 2."""
    logits = torch.zeros(20, 2)
    logits[:10, 0] = 50.0
    logits[10:, 0] = math.log(0.6 / 0.4)
    labels = torch.tensor([0] * 7 + [1] * 3 + [0] * 6 + [1] * 4)
    found = calibration_error(logits, labels)
    assert found.value == pytest.approx(0.15, abs=1e-4)
    assert found.measured.n == 20


def test_the_calibration_error_has_a_jackknife_interval() -> None:
    rng = seeded(3)
    logits = torch.cat([2 * torch.randn(50, 4, generator=rng), 100 * torch.eye(4)[:3], torch.eye(4)[[0] * 7]])
    labels = torch.randint(4, (60,), generator=rng)
    found = calibration_error(logits, labels)
    each = [calibration_error(logits[torch.arange(60) != i], labels[torch.arange(60) != i]).value for i in range(60)]
    interval = jackknife(found.value or 0.0, [torch.tensor(each, dtype=torch.float64)])
    assert found.measured.ci95 == pytest.approx(interval, abs=1e-5)
    assert calibration_error(logits[:1], labels[:1]).measured.ci95 == (0.0, 1.0)


@pytest.mark.parametrize("samples", [200, 2000])
def test_the_interval_holds_the_true_calibration_error(samples: int) -> None:
    """Answers of confidence .75 that are right in half of the cases: the error is .25 for any number of samples."""
    rng, inside = seeded(5), 0
    logits = torch.tensor([math.log(3.0), 0.0]).expand(samples, 2)
    for _ in range(100):
        low, high = calibration_error(logits, torch.randint(2, (samples,), generator=rng)).measured.ci95 or (1, 0)
        inside += low <= 0.25 <= high
    assert 88 <= inside <= 100


@pytest.mark.parametrize(("samples", "most"), [(60, 0.15), (2000, 0.03)])
def test_the_calibration_error_is_biased_as_documented(samples: int, most: float) -> None:
    rng = seeded(6)
    found = []
    for _ in range(30):
        right = 0.5 + 0.5 * torch.rand(samples, generator=rng)
        labels = (torch.rand(samples, generator=rng) > right).long()
        logits = torch.stack([(right / (1 - right)).log(), torch.zeros(samples)], dim=1)
        found.append(calibration_error(logits, labels).value or 0.0)
    assert most / 2 < sum(found) / 30 < most


def plain_calibration(confidences: list[float], right: list[bool], bins: int) -> float:
    """The sum over bins ((m - 1) / M, m / M] of |mean accuracy - mean confidence| times the bin's share."""
    total = 0.0
    for m in range(1, bins + 1):
        inside = [i for i, c in enumerate(confidences) if (m - 1) / bins < c <= m / bins]
        if inside:
            accuracy, confidence = (sum(float(v[i]) for i in inside) / len(inside) for v in (right, confidences))
            total += abs(accuracy - confidence) * len(inside) / len(confidences)
    return total


def test_the_calibration_error_at_its_edges() -> None:
    for confidences, right, bins in (
        (
            [1.0, 1.0, 0.95, 0.95],
            [False, True, True, True],
            15,
        ),  # torchmetrics has a bin of its own for 1: .275 for .225
        ([1.0], [True], 15),
        ([1.0], [False], 15),
        ([0.5, 0.5], [True, False], 15),
        ([1.0] * 3, [True] * 3, 15),
        ([0.5, 0.6], [True, False], 4),  # .5 is the end of its bin and .6 in the next
    ):
        p = torch.tensor(confidences, dtype=torch.float64)
        logits = torch.stack([p.log(), (1 - p).log().clamp_min(-1e4)], dim=1)
        labels = torch.tensor([0 if correct else 1 for correct in right])
        expected = plain_calibration(confidences, right, bins)
        assert calibration_error(logits, labels, bins).value == pytest.approx(expected, abs=1e-9)
    assert calibration_error(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)).value == 0  # one class
    assert calibration_error(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).value is None
    broken = calibration_error(torch.full((2, 3), float("nan")), torch.zeros(2, dtype=torch.long))
    assert broken.value is None
    assert broken.measured.reason
