"""What the rows of one process share is done once: trainings, shipped networks, and the evaluator without the defense."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import shortened
from fdgpriv.methods._codec import codec_on

from fdgpriv.cell_runner import CellRunner, _scheduled
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation import evaluator
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.models import style_codec
from fdgpriv.runner import Runner
from fdgpriv.training import Cell
from fdgpriv.utils.console import ProgressLog

DEFENSES = ("none", "gaussian:epsilon=8")
COUNTED = {
    (style_codec, "load_shipped"): "codec",
    (LocalEngine, "run"): "trainings",
    (evaluator, "recorded_series"): "simulators",
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each is called."""
    found: Counter[str] = Counter()

    def counted(whole: Any, name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            found[name] += 1
            return whole(*given, **named)

        return call

    for (owner, attribute), name in COUNTED.items():
        monkeypatch.setattr(owner, attribute, counted(getattr(owner, attribute), name))
    return found


@pytest.mark.slow
def test_rows_of_one_process_repeat_no_public_work(digits: Dataset, counts: Counter[str], tmp_path: Path) -> None:
    codec_on.cache_clear()
    config = AuditConfig(
        methods=("ccst",),
        preset="quick",
        clients=3,
        attacks=("domain_inference:simulations=4", "style_membership"),
        threats=("server",),
        defenses=DEFENSES,
        settings={"rounds": "1", "local_epochs": "1", "augmentation": "2"},
        device="cpu",
    ).checked()
    few = shortened(digits, 45)
    cells = CellRunner(config, few, tmp_path, ProgressLog(quiet=True), 1)
    by_row = []
    for defense in DEFENSES:
        cells.run([Cell("ccst", few.default_target, 0, defense)], {})
        by_row.append(Counter(counts))
        counts.clear()
    none, *noised = by_row
    assert (none["codec"], none["trainings"], none["simulators"]) == (1, 1, 1)
    for row in noised:  # one training; simulators with the defense, and without it for all attacks together
        assert row == Counter({"trainings": 1, "simulators": 2})
    cells.run([Cell("ccst", few.default_target, 0, defense) for defense in DEFENSES], {})  # all is stored
    assert counts["trainings"] == 0


def test_each_training_is_one_cell() -> None:
    """The undefended federation is trained once per method, target and seed, however many defenses it is compared with."""
    config = AuditConfig(methods=("ccst", "fedavg"), targets=("scan", "type"), seeds=(0, 1), defenses=DEFENSES)
    cells = Runner(config, None, Path(), ProgressLog(quiet=True)).cells()  # type: ignore[arg-type]
    assert len(set(cells)) == len(cells) == 2 * 2 * 2 * len(DEFENSES)
    assert sum(cell.defense == "none" for cell in cells) == 2 * 2 * 2


def evaluation(kind: str, expensive: bool = False, draws_images: bool = False, role: str = "server") -> Any:
    """What the schedule reads of an evaluation."""
    trials = SimpleNamespace(threat=SimpleNamespace(role=role))
    return SimpleNamespace(kind=kind, expensive=expensive, draws_images=draws_images, trials=trials)


def test_long_attacks_start_first() -> None:
    styles = [evaluation("style"), evaluation("style", expensive=True), evaluation("style")]
    models = [evaluation("model"), evaluation("model", draws_images=True)]
    evaluations = [styles[0], models[0], *styles[1:], models[1]]
    long, short = [styles[1], models[1]], [styles[0], styles[2], models[0]]
    by_cost = [*long, *short]
    assert _scheduled(evaluations) == [by_cost[place] for place in (0, 4, 1, 3, 2)]


def test_attacks_of_one_adversary_are_neighbours() -> None:
    """The first thread takes the evaluations of one adversary after the other, whichever attack comes first."""
    roles = ("server", "client", "server", "client", "server", "client")
    evaluations = [evaluation("model", role=role) for role in roles]
    numbers = {id(entry): number for number, entry in enumerate(evaluations)}
    assert [numbers[id(entry)] for entry in _scheduled(evaluations)] == [0, 5, 2, 3, 4, 1]
    assert _scheduled([]) == []
