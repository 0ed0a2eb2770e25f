"""The embedded digits: real scans, disjoint, stratified, the same pixels everywhere, and as legible as they claim."""

import hashlib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from fdgpriv.data import load
from fdgpriv.data.dataset import Dataset, Domain, digest
from fdgpriv.data.digits import FILE, SHA256
from fdgpriv.data.digits import digits as load_stored
from fdgpriv.utils.seeds import generator

MAKE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "make_digits.py"))
blend, outline, scan, stratified_parts = (MAKE[name] for name in ("blend", "outline", "scan", "stratified_parts"))


def test_it_is_four_domains_in_eight_bits(digits: Dataset) -> None:
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


@pytest.mark.slow
def test_they_are_the_same_pixels_on_every_processor(digits: Dataset) -> None:
    """Drawn anew without vector instructions, 47 values differ by one grey level; the stored ones are checked and do not."""
    code = "from fdgpriv.data.digits import digits; print(digits().sha256)"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": str(Path(__file__).parents[1])}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == digits.sha256 == SHA256


def test_the_digest_is_of_names_labels_pixels(digits: Dataset) -> None:
    parts = [json.dumps(list(digits.classes)).encode()]
    for domain in digits.domains:
        parts.append(json.dumps([domain.name, [len(domain), 3, 32, 32], "uint8"]).encode())
        parts += [int(label).to_bytes(8, "little") for label in domain.labels]
        parts += [bytes(image.flatten().tolist()) for image in domain.pixels]
    assert hashlib.sha256(b"".join(parts)).hexdigest() == digits.sha256


def test_one_changed_value_changes_the_digest(digits: Dataset) -> None:
    domain = digits.domain("type")
    pixels, labels = domain.pixels.clone(), domain.labels.clone()
    pixels[-1, -1, -1, -1] ^= 1
    labels[0] += 1
    changed = (
        [Domain("type", pixels, domain.labels)],
        [Domain("type", domain.pixels, labels)],
        [Domain("print", domain.pixels, domain.labels)],
        [domain.part(0, 599)],
        [domain, domain],
    )
    digests = {digest(digits.classes, domains) for domains in ([domain], *changed)}
    assert len(digests | {digest(digits.classes[::-1], [domain])}) == len(changed) + 2


def test_the_script_draws_what_is_stored_but_for_ties(digits: Dataset) -> None:
    drawn = MAKE["domains"]()
    assert list(drawn) == list(digits.names)
    for name, (images, labels) in drawn.items():
        stored = digits.domain(name)
        assert torch.equal(labels.long(), stored.labels)
        gap = (images.short() - stored.pixels.short()).abs()
        assert int(gap.max()) <= 1
        assert int((gap > 0).sum()) < 1000  # of 1.8 million


def test_only_saved_images_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "digits.npz"
    with pytest.raises(ValueError, match=r"want the images of digits in .*digits\.npz, got: .*; install fdgpriv again"):
        load_stored(file)
    content = FILE.read_bytes()
    file.write_bytes(content)
    assert load_stored(file).sha256 == SHA256
    for damaged in (b"", content[:-1000], content[: 10**6] + bytes(1000) + content[10**6 + 1000 :]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"install fdgpriv again"):
            load_stored(file)
    with np.load(FILE) as stored:
        arrays = dict(stored)
    arrays["type_images"][0, 0, 0, 0] ^= 1
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=f"want the images of digits with SHA-256 {SHA256} in .*, got [0-9a-f]{{64}};"):
        load_stored(file)


def test_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="want an image size of 32 pixels for digits, got 64"):
        load("digits", image_size=64)


def ring() -> Tensor:
    """One scan (1, 1, 8, 8): a square ring of ink, two pixels wide."""
    ink = torch.zeros(1, 1, 8, 8)
    ink[..., 1:7, 1:7] = 1
    ink[..., 3:5, 3:5] = 0
    return ink


def test_an_outline_is_dark_at_its_edge() -> None:
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


def test_each_domain_is_learnable_and_differs(digits: Dataset) -> None:
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
