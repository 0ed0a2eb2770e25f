"""The embedded digits: real scans, disjoint, stratified, the same for the same seed, and as legible as they claim."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from fdgpriv.data import load
from fdgpriv.data.dataset import Dataset
from fdgpriv.data.digits import blend, outline, scan, stratified_parts
from fdgpriv.utils.seeds import generator


def test_it_is_four_domains_of_coloured_images_in_eight_bits(digits: Dataset) -> None:
    assert digits.names == ("scan", "blend", "type", "outline")
    assert digits.default_target in digits.names
    assert digits.classes == tuple("0123456789")
    assert not digits.flip
    for domain in digits.domains:
        assert domain.images.shape == (len(domain), 3, 32, 32)
        assert domain.images.dtype == torch.float32
        assert 0 <= float(domain.images.min()) < float(domain.images.max()) <= 1
        levels = domain.images * 255
        assert float((levels - levels.round()).abs().max()) < 1e-4


def test_every_scan_serves_once_and_classes_are_even(digits: Dataset) -> None:
    sizes = {domain.name: len(domain) for domain in digits.domains}
    assert sizes["scan"] + sizes["blend"] + sizes["outline"] == 1797
    assert sizes["type"] == 600
    for domain in digits.domains:
        counts = domain.labels.bincount(minlength=10)
        assert int(counts.min()) >= 57
        assert int(counts.max()) <= 62


def test_parts_are_disjoint_and_whole() -> None:
    labels = torch.tensor([0, 1, 1, 0, 2, 2, 2, 2, 0, 1, 1, 0, 0])
    parts = stratified_parts(labels, 3, generator(3))
    assert sorted(torch.cat(parts).tolist()) == list(range(13))
    for k in range(3):
        shares = [int((labels[part] == k).sum()) for part in parts]
        assert max(shares) - min(shares) <= 1


def test_scans_are_the_scans_of_scikit_learn(digits: Dataset) -> None:
    bunch = load_digits()
    known = {image.astype("uint8").tobytes(): int(k) for image, k in zip(bunch.images, bunch.target, strict=True)}
    domain = digits.domain("scan")
    ink = (0.75 - domain.images[:, 0, ::4, ::4]) / 0.35 * 16
    for image, label in zip(ink.round().to(torch.uint8), domain.labels.tolist(), strict=True):
        assert known[image.numpy().tobytes()] == label


def test_the_seed_decides_every_pixel_and_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = load("digits", seed=1), load("digits", seed=1), load("digits", seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    for name in first.names:
        assert torch.equal(first.domain(name).images, again.domain(name).images)
        assert torch.equal(first.domain(name).labels, again.domain(name).labels)
        assert not torch.equal(first.domain(name).images[:500], other.domain(name).images[:500])


def test_another_size_is_the_same_picture(digits: Dataset) -> None:
    large = load("digits", image_size=64).domain("scan").images
    assert large.shape[2:] == (64, 64)
    small = torch.nn.functional.avg_pool2d(large, 2)
    assert float((small - digits.domain("scan").images).abs().mean()) < 0.02


def ring() -> Tensor:
    """One scan (1, 1, 8, 8): a square ring of ink, two pixels wide."""
    ink = torch.zeros(1, 1, 8, 8)
    ink[..., 1:7, 1:7] = 1
    ink[..., 3:5, 3:5] = 0
    return ink


def test_an_outline_is_dark_at_the_edge_and_light_on_either_side() -> None:
    image = outline(ring())[0, 0]
    row = image[16]
    assert float(row[0]) > 0.8
    assert float(row[2:8].min()) < 0.2  # the outer edge, at pixel 2 + 28 / 8 = 5.5
    assert float(row[8:10].max()) > 0.6  # inside the stroke
    assert float(row[10:15].min()) < 0.2  # the inner edge, at 2 + 3 * 28 / 8 = 12.5
    assert float(row[15:17].max()) > 0.8  # the hole


def test_a_blend_is_darker_where_there_is_ink() -> None:
    blank, inked = (blend(ink, generator(4))[0] for ink in (torch.zeros(1, 1, 8, 8), ring()))
    assert float((blank - inked).min()) >= -0.02
    assert float((blank - inked)[:, 8:10, 16].min()) > 0.1  # a pixel of at least 0.58 becomes one of at most 0.42
    assert float((blank - inked)[:, 16, 16].abs().max()) < 0.1
    square = scan(ring())[0, 0]  # a scan shows each pixel as a square
    assert torch.allclose(square[::4, ::4].repeat_interleave(4, 0).repeat_interleave(4, 1), square)


def test_each_domain_is_learnable_and_differs_from_the_others(digits: Dataset) -> None:
    within: list[float] = []
    across: list[float] = []
    for source in digits.domains:
        half = torch.arange(len(source)) < len(source) // 2
        known, known_labels = _small(source.images[half]), source.labels[half]
        for target in digits.domains:
            held = ~half if target is source else torch.ones(len(target), dtype=torch.bool)
            nearest = torch.cdist(_small(target.images[held]), known).argmin(1)
            accuracy = float((known_labels[nearest] == target.labels[held]).float().mean())
            (within if target is source else across).append(accuracy)
    assert min(within) > 0.5  # chance is 0.1
    assert sum(across) / len(across) < sum(within) / len(within) - 0.2


def _small(images: Tensor) -> Tensor:
    """Grey images (N, 256) of 16 x 16 pixels."""
    return torch.nn.functional.avg_pool2d(images.mean(1), 2).flatten(1)
