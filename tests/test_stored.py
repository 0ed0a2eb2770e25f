"""Large artifacts lie in files and come back equal; they are known again under another sender's name."""

import gc
from functools import partial
from pathlib import Path

import pytest
import torch

from fdgpriv.artifacts.artifact import PEER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.targets.deferred import changed, identity, read
from fdgpriv.targets.planted import Mixture
from fdgpriv.targets.stored import Store, Stored


def _model(fill: float) -> ModelState:
    """A state whose tensors a file holds in another order, one of them stored with its channels last."""
    image = torch.full((4, 3, 5, 5), fill).to(memory_format=torch.channels_last)
    state = {"z.weight": image, "a.count": torch.tensor(int(fill)), "b.bias": torch.arange(4.0) + fill}
    return ModelState(client="client-3", round=2, state=state)


def test_an_artifact_comes_back_as_it_was() -> None:
    model, store = _model(2.0), Store(least=1)
    sent = store.keep(model)
    assert isinstance(sent, Stored)
    assert sent.level == model.level
    found = read(sent)
    assert (type(found), found.facts()) == (ModelState, model.facts())
    assert list(found.tensors()) == list(model.tensors())
    assert all(torch.equal(found.tensors()[name], tensor) for name, tensor in model.tensors().items())


def test_small_ones_stay_in_memory() -> None:
    model = _model(2.0)
    assert Store(least=model.nbytes + 1).keep(model) is model


def test_two_readings_of_one_artifact_have_one_identity() -> None:
    store = Store(least=1)
    sent, other = store.keep(_model(2.0)), store.keep(_model(2.0))
    hidden = [changed(sent, lambda artifact: artifact.seen_as(PEER)) for _ in range(2)]
    assert [read(one).client for one in hidden] == [PEER, PEER]
    assert identity(hidden[0]) == identity(hidden[1]) == identity(sent) != identity(other)


@pytest.mark.parametrize("least", [1, 2**20])
def test_mixtures_of_stored_artifacts_are_those_of_artifacts(least: int) -> None:
    store = Store(least)
    base, leak = store.keep(_model(2.0)), store.keep(_model(6.0))
    mixed = {weight: read(Mixture(base, leak, weight)).tensors() for weight in (0.0, 0.25, 1.0)}
    assert [float(one["b.bias"][0]) for one in mixed.values()] == [2.0, 3.0, 6.0]
    assert [int(one["a.count"]) for one in mixed.values()] == [2, 2, 2]  # counters are the base's
    assert identity(Mixture(base, leak, 0.0)) == identity(base)
    assert identity(Mixture(base, leak, 1.0)) == identity(leak)
    assert identity(Mixture(base, leak, 0.5)) not in (identity(base), identity(leak))


def test_files_are_removed_with_the_store() -> None:
    store = Store(least=1)
    sent = store.keep(_model(1.0))
    assert isinstance(sent, Stored)
    file = sent.file
    assert file.is_file()
    del store
    gc.collect()
    assert not file.parent.exists()


def test_a_full_disk_is_an_os_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store(least=1)
    keep = partial(store.keep, _model(1.0))
    keep()
    (folder,) = tmp_path.iterdir()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    with pytest.raises(OSError, match="No such file"):
        keep()
