"""The estimate of an audit: from the rounds that it times, for the attacks that the audit then evaluates."""

import re
from itertools import count
from pathlib import Path

import pytest
from conftest import audits_of, shortened

from fdgpriv import estimate
from fdgpriv.api import planned
from fdgpriv.audit import main
from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.wire import Wire
from fdgpriv.results.finding import Results
from fdgpriv.training import Cell, PreparedCell

TRAINING = ["--method", "fedavg", "--preset", "quick", "--clients", "6", "--set", "rounds=3", "local_epochs=1"]
ATTACKS = ["--attack", "membership:statistic=loss", "linkage"]


def test_each_training_is_as_many_rounds_as_it_has(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that advances by one whenever a client answers, six clients take six ticks a round."""
    answered, receive = count(), Wire.receive
    now = [0]

    def ticking(self: Wire, *given: object, **named: object) -> object:
        now[0] = next(answered) + 1
        return receive(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Wire, "receive", ticking)
    monkeypatch.setattr(estimate, "perf_counter", lambda: float(now[0]))
    settings = {"rounds": "7", "local_epochs": "1", "participants": "none"}
    config = AuditConfig(methods=("fedavg",), preset="quick", clients=6, settings=settings).checked()
    cell = Cell("fedavg", "blend", 0, "none")
    sizes = [len(data) for data in PreparedCell.of(config, tiny, cell).population.clients.values()]
    share = sum(min(estimate.TIMED_IMAGES, size) for size in sizes) / sum(sizes)
    estimated = estimate._estimated(config, tiny, cell, 2)
    assert estimated.train_s == pytest.approx(7 * 6 / share)
    assert now[0] == estimate.TIMED_ROUNDS * 6


def test_a_plan_names_the_attacks_that_are_run(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it writes nothing."""
    monkeypatch.chdir(tmp_path)
    with audits_of(shortened(digits, 64), drawn=False):
        assert main([*TRAINING, *ATTACKS, "--dry-run"]) == 0
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert list(tmp_path.iterdir()) == []
        assert main([*TRAINING, *ATTACKS, "--out", "out"]) == 0
    assert lines[0] == "cells: 1 (1 method x 1 target x 1 seed x 1 defense)"
    assert re.match(
        r"fedavg\S*: network small_resnet, .*; 6 clients .single., images of 32 pixels, 3 rounds; target blend$",
        lines[1],
    )
    (run,) = Results.load(tmp_path / "out" / "results.json").runs
    evaluated = {(row.attack, row.kind, row.threat.role) for row in run.attacks if row.reason is None}
    foreseen = set()
    for line in lines:
        spec, _, kinds = line.partition(": ")
        if " by " in kinds:
            for part in kinds.split("; "):
                kind, _, roles = part.partition(" by ")
                foreseen |= {(spec.partition(":")[0], kind, role) for role in roles.split(", ")}
    assert foreseen == evaluated


def test_cells_are_counted_and_what_fails_is_said(digits: Dataset) -> None:
    settings = {"rounds": "1", "local_epochs": "1", "lr": "1e30"}
    with audits_of(shortened(digits, 32)):
        lines = planned(
            Options(
                methods=("fedavg",), preset="quick", clients=3, settings=settings, attacks=("none",), seeds=(0, 1, 2),
                targets=("scan", "blend"),
            )
        )  # fmt: skip
    assert lines[0] == "cells: 6 (1 method x 2 targets x 3 seeds x 1 defense)"
    assert any("its training cannot be timed: " in line for line in lines)
