"""Precision of convolutions on a GPU."""

from typing import Any

import pytest
from torch.backends import cudnn

from fdgpriv.cell_runner import CellRunner
from fdgpriv.utils.arithmetic import whole_precision


def settings() -> tuple[bool, bool, bool]:
    return cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32


def test_it_is_whole_within_and_as_before_afterwards() -> None:
    before = settings()
    with whole_precision():
        assert settings() == (True, True, False)
    assert settings() == before


def test_every_training_and_attack_of_a_run_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen, nothing = settings(), [], Any
    monkeypatch.setattr(CellRunner, "_run_cell", lambda *_: seen.append(settings()))
    runner: Any = CellRunner
    runner(nothing, nothing, nothing, nothing, 1).run(["one", "another"], {})
    assert seen == [(True, True, False)] * 2
    assert settings() == before
