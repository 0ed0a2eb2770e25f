"""Large tensors in files: the same values, no file left, and private to this process."""

import os
from pathlib import Path

import pytest
import torch

from fdgpriv.utils import file_memory
from fdgpriv.utils.file_memory import LARGE, empty_in_file, in_file, together_in_file
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
