"""The image cache: decoded once, mapped afterwards; changed files, damage, full disks and two processes at once."""

import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fdgpriv import data
from fdgpriv.data import image_cache
from fdgpriv.data.dataset import ClientData, Dataset, Domain
from fdgpriv.data.image_cache import cache_folder
from fdgpriv.data.pixels import as_images, joined

SIDE, COUNT = 12, 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two domains of two classes with two images each."""
    rng = torch.Generator().manual_seed(0)
    for place in ("a/x", "a/y", "b/x", "b/y"):
        (tmp_path / "data" / place).mkdir(parents=True)
        for name in ("1.png", "2.png"):
            noise = torch.randint(256, (20, 14, 3), generator=rng, dtype=torch.uint8).numpy()
            Image.fromarray(noise).save(tmp_path / "data" / place / name)
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FDGPRIV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Loaded:
    """A dataset, how many images were decoded for it, and the lines that were said."""

    def __init__(self, root: Path, side: int = SIDE) -> None:
        self.decoded, self.lines = 0, list[str]()
        self.dataset = data.load("folder", root=root, image_size=side, progress=self.count, say=self.lines.append)

    def count(self, done: int, total: int) -> None:
        self.decoded += 1
        assert done == self.decoded
        assert total == COUNT


def pixels(dataset: Dataset) -> torch.Tensor:
    return torch.cat([domain.pixels for domain in dataset.domains])


def test_a_second_start_decodes_nothing(root: Path, cache: Path) -> None:
    first, second = Loaded(root), Loaded(root)
    assert (first.decoded, second.decoded, first.lines, second.lines) == (COUNT, 0, [], [])
    assert torch.equal(pixels(first.dataset), pixels(second.dataset))
    assert pixels(second.dataset).dtype == torch.uint8
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    images = second.dataset.domains[0].images
    assert images is second.dataset.domains[0].images
    assert torch.equal(images, second.dataset.domains[0].pixels.float() / 255)
    before = pixels(second.dataset)
    second.dataset.domains[0].pixels.zero_()  # what was mapped, not the file
    third = Loaded(root)
    assert third.decoded == 0
    assert torch.equal(pixels(third.dataset), before)


def older(root: Path) -> None:
    os.utime(root / "a/x/1.png", (1, 1))


def other_of_same_size_and_time(root: Path) -> None:
    """As `cp -p`, `rsync -t` and `unzip` leave it."""
    path = root / "a/x/1.png"
    before = path.stat()
    content = bytearray(path.read_bytes())
    noise = Image.open(root / "a/x/2.png")
    noise.transpose(Image.Transpose.ROTATE_180).save(path)
    path.write_bytes(path.read_bytes().ljust(len(content), b"\0")[: len(content)])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def renamed(root: Path) -> None:
    (root / "a/x/1.png").rename(root / "a/x/3.png")


@pytest.mark.parametrize("change", [older, other_of_same_size_and_time, renamed])
def test_changed_files_are_decoded_again(change: Callable[[Path], None], root: Path, cache: Path) -> None:
    before = Loaded(root)
    change(root)
    after = Loaded(root)
    assert (after.decoded, after.lines) == (0 if change is older else COUNT, [])
    assert torch.equal(pixels(before.dataset), pixels(after.dataset)) == (change is older)
    assert len(list(cache.iterdir())) == 1  # the old file is removed, and what was mapped from it remains


def test_each_size_and_each_folder_has_its_own_file(root: Path, cache: Path) -> None:
    Loaded(root)
    assert Loaded(root, 16).decoded == COUNT
    root.rename(root.with_name("moved"))
    assert Loaded(root.with_name("moved")).decoded == COUNT
    assert len(list(cache.iterdir())) == 3


def flipped(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


def other_shape(content: bytes) -> bytes:
    return content.replace(b"(8, 3, 12, 12)", b"(80, 3, 12, 1)", 1)


def objects(content: bytes) -> bytes:
    return content.replace(b"'|u1'", b"'|O'  "[:5], 1)


DAMAGES: tuple[Callable[[bytes], bytes], ...] = (
    flipped,
    other_shape,
    objects,
    lambda content: content[:-40],
    lambda content: content[:20],
    lambda content: b"",
    lambda content: content + b"0",
)


def test_a_damaged_cache_is_built_again(root: Path, cache: Path) -> None:
    first = pixels(Loaded(root).dataset)  # a copy: the mapped file is cut below
    (file,) = cache.iterdir()
    for damage in DAMAGES:
        file.write_bytes(damage(file.read_bytes()))
        again = Loaded(root)
        assert again.decoded == COUNT
        assert again.lines == [f"the image cache {file} is damaged and is built again"]
        assert torch.equal(first, pixels(again.dataset))
        assert Loaded(root).decoded == 0


def test_a_cache_that_cannot_be_written_is_done_without(root: Path, cache: Path) -> None:
    cache.write_text("a file")
    found = Loaded(root)
    (line,) = found.lines
    assert "cannot be written" in line
    assert "Not a directory" in line or "File exists" in line
    cache.unlink()
    assert torch.equal(pixels(found.dataset), pixels(Loaded(root).dataset))


def test_a_failure_leaves_no_part(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(image_cache.npy, "write_array_header_1_0", full)
        assert "No space left on device" in Loaded(root).lines[0]
    assert list(cache.iterdir()) == []
    (root / "b/y/2.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"2\.png"):
        Loaded(root)
    assert list(cache.iterdir()) == []


def test_no_cache_if_the_variable_is_empty(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_cache = Loaded(root)
    monkeypatch.setenv("FDGPRIV_CACHE", "")
    without = Loaded(root)
    assert without.decoded == COUNT
    assert torch.equal(pixels(with_cache.dataset), pixels(without.dataset))


def test_the_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FDGPRIV_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/fdgpriv")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, as its specification says
    assert cache_folder() == Path.home() / ".cache" / "fdgpriv"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "fdgpriv"


def _put_sum_of_pixels(root: Path, sums: Any) -> None:
    dataset = data.load("folder", root=root, image_size=SIDE)
    sums.put(sum(int(domain.pixels.sum()) for domain in dataset.domains))


def test_two_processes_at_once(root: Path, cache: Path) -> None:
    forks = get_context("fork")
    sums = forks.SimpleQueue()
    running = [forks.Process(target=_put_sum_of_pixels, args=(root, sums)) for _ in range(2)]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0, 0]
    assert sums.get() == sums.get() > 0
    assert len(list(cache.iterdir())) == 1
    assert Loaded(root).decoded == 0


def test_bytes_become_the_floats_that_decoding_gave() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(as_images(every), every.float() / 255)
    assert torch.equal((as_images(every) * 255).round().to(torch.uint8), every)
    floats = torch.rand(2, 3)
    assert as_images(floats) is floats
    assert torch.equal(joined([every, as_images(every)]), as_images(torch.cat([every, every])))
    assert joined([every, every]).dtype == torch.uint8


def test_training_keeps_no_floats(digits: Dataset) -> None:
    """What bounds the memory of a training: floats are made for a mini-batch."""
    from factories import federation, run_on, small

    domain: Domain = digits.domains[0]
    world = federation(2, side=32)
    clients = {
        name: ClientData(
            name, domain.pixels[i::2][:9], domain.labels[:9] % 3, domain.pixels[:4], domain.labels[:4] % 3, 3
        )
        for i, name in enumerate(world.clients)
    }
    run_on(small("fedavg", selection="validation"), world, clients)
    assert all(not [key for key in vars(data) if key.startswith("_float")] for data in clients.values())
