"""Large tensors in files: the same values, no file left, and private to this process."""

import os
from pathlib import Path

import pytest
import torch

from fdgpriv.utils import file_memory
from fdgpriv.utils.file_memory import LARGE, empty_in_file, in_file, together_in_file, unmap_pages
from fdgpriv.utils.memory import return_freed


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def anonymous() -> int:
    """KiB of memory that are in use and lie in no file, by the kernel's count."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the kernel's count of memory is Linux's")
    return_freed()  # an audit in this process lets freed blocks of this size stay with it
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("RssAnon"))


def test_a_large_tensor_leaves_no_file(tmp_path: Path) -> None:
    large = torch.rand(3, LARGE // 8, generator=torch.Generator().manual_seed(0)).T  # not contiguous
    kept = in_file(large)
    assert torch.equal(kept, large)
    assert kept.data_ptr() != large.data_ptr()
    assert not list(tmp_path.iterdir())
    kept[0] = 2.0
    assert float(kept[0].sum()) == 6
    small = torch.rand(3)
    assert in_file(small) is small


def test_several_tensors_lie_in_one_file(tmp_path: Path) -> None:
    tensors = {
        "odd": torch.rand(3, 5, generator=torch.Generator().manual_seed(0)).T,
        "one": torch.tensor(7),
        "none": torch.zeros(0, 4),
        "half": torch.arange(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False, True]),
        "long": torch.arange(4),
        "trained": torch.ones(2, requires_grad=True),
    }
    kept = together_in_file(tensors)
    assert list(kept) == list(tensors)
    for name, tensor in tensors.items():
        assert kept[name].dtype == tensor.dtype
        assert torch.equal(kept[name], tensor)
    assert len({tensor.untyped_storage().data_ptr() for tensor in kept.values()}) == 1
    assert not list(tmp_path.iterdir())


def test_its_pages_are_not_the_processs_own(tmp_path: Path) -> None:
    """Twice 64 MB in files add less than a quarter of one to anonymous memory."""
    assert torch.equal(empty_in_file(2, 3), torch.zeros(2, 3))
    before = anonymous()
    filled, empty = in_file(torch.ones(2**24)), empty_in_file(2**12, 2**12)
    assert int(empty.count_nonzero()) == 0
    empty += 1
    assert float(filled.sum()) == float(empty.sum()) == 2**24
    assert anonymous() - before < 2**14
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_oserror_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(file_memory.os, "fdopen", full)
    for make in (lambda: in_file(torch.ones(LARGE)), lambda: empty_in_file(LARGE)):
        with pytest.raises(OSError, match="No space"):
            make()
    assert not list(tmp_path.iterdir())


def test_unmapped_pages_keep_their_values(tmp_path: Path) -> None:
    """64 MB in two files leave this process's memory, written values stay, and a deleted tensor is no obstacle."""

    def in_files() -> int:
        status = Path("/proc/self/status")
        if not status.exists():
            pytest.skip("the kernel's count of memory is Linux's")
        return sum(int(line.split()[1]) for line in status.read_text().splitlines() if line[:6] in ("RssFil", "RssShm"))

    large, filled = torch.arange(2**23, dtype=torch.float32), empty_in_file(2**11, 2**12)
    kept, deleted = together_in_file({"": large, "small": torch.ones(3)}), in_file(large)
    filled.fill_(7)
    kept[""][5] = -1
    assert float(kept[""].sum() + deleted.sum()) > 0
    del deleted
    before = in_files()
    unmap_pages()
    assert before - in_files() > 0.9 * 2**16
    assert float(kept[""][5]) == -1
    assert torch.equal(kept[""][6:], large[6:])
    assert torch.equal(kept["small"], torch.ones(3))
    assert bool((filled == 7).all())
