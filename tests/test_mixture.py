"""Large artifacts lie in files and come back equal; mixtures are known again by the artifact that they equal."""

from pathlib import Path

import pytest
import torch

from fdgpriv.artifacts.artifact import PEER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.mixture import Mixture, identity, read
from fdgpriv.utils.file_memory import LARGE


def _model(fill: float, width: int = 3) -> ModelState:
    """A state of which one tensor is stored with its channels last."""
    image = torch.full((4, width, 5, 5), fill).to(memory_format=torch.channels_last)
    state = {"z.weight": image, "a.count": torch.tensor(int(fill)), "b.bias": torch.arange(4.0) + fill}
    return ModelState(client="client-3", round=2, state=state)


def test_a_large_artifact_comes_back_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = _model(2.0, width=LARGE // 400 + 1)
    found = model.in_file()
    assert (type(found), found.facts()) == (ModelState, model.facts())
    assert list(found.tensors()) == list(model.tensors())
    assert all(torch.equal(found.tensors()[name], tensor) for name, tensor in model.tensors().items())
    assert found.state["b.bias"].untyped_storage().nbytes() >= LARGE  # all in one file
    assert not list(tmp_path.iterdir())


def test_a_small_one_stays_in_memory() -> None:
    model = _model(2.0)
    assert model.in_file() is model


def test_an_artifact_has_one_identity() -> None:
    model, other = _model(2.0), _model(2.0)
    hidden = model.seen_as(PEER)
    assert hidden.client == PEER
    assert identity(hidden) == identity(model) != identity(other)


def test_mixtures_are_weighted_means() -> None:
    base, leak = _model(2.0), _model(6.0)
    mixed = {weight: read(Mixture(base, leak, weight)).tensors() for weight in (0.0, 0.25, 1.0)}
    assert [float(one["b.bias"][0]) for one in mixed.values()] == [2.0, 3.0, 6.0]
    assert [int(one["a.count"]) for one in mixed.values()] == [2, 2, 2]  # counters are the base's
    assert identity(Mixture(base, leak, 0.0)) == identity(base)
    assert identity(Mixture(base, leak, 1.0)) == identity(leak)
    assert identity(Mixture(base, leak, 0.5)) not in (identity(base), identity(leak))
