"""The self test passes on our rules, and fails where one of them is broken."""

import numpy as np
import pytest

from fdgpriv import selftest
from fdgpriv.selftest import Check

QUICK = ["--runs", "100", "--draws", "2000"]


def test_it_passes_and_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest.main(QUICK) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| check | false alarms | wanted | |"
    assert len(lines) == 2 + len(selftest.NULLS) + 2 + 4
    assert all(line.endswith("| pass |") for line in lines[2:])


def test_a_broken_verdict_or_bound_fails_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "rule", lambda line, rng: 0.0)
    monkeypatch.setattr(selftest, "held_out", selftest.best_of_all_thresholds)
    assert selftest.main(QUICK) == 1
    said = capsys.readouterr().out
    assert "| verdict, clients | 100 of 100 | at most 4 | FAIL |" in said
    assert [line for line in said.splitlines() if "epsilon bound" in line and "FAIL" in line]


def test_a_check_that_cannot_fail_fails() -> None:
    assert Check("ours", 40, 1000, 40).passed
    assert not Check("ours", 41, 1000, 40).passed
    assert Check("theirs", 41, 1000, 40, mistaken=True).passed
    assert not Check("theirs", 40, 1000, 40, mistaken=True).passed


def test_the_seed_decides() -> None:
    def alarms(seed: int) -> int:
        return selftest.verdict_alarms(selftest.clients, selftest.resample_images, 50, np.random.default_rng(seed))

    assert alarms(3) == alarms(3)
    assert len({alarms(seed) for seed in range(6)}) > 1


def test_wrong_arguments_are_refused() -> None:
    for argv in (["--runs", "0"], ["--draws", "3"], ["--seed", "x"]):
        assert selftest.main(argv) == 2
