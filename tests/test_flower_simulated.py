"""Flower's simulation with Ray: a training leaves the bytes that a local one leaves, also one that was killed between."""

from pathlib import Path

import pytest
from test_resume import told

from fdgpriv.config import AuditConfig
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.results.rounds import RoundEvaluation
from fdgpriv.training import Cell, Trained, train
from fdgpriv.utils.console import ProgressLog

for package in ("flwr", "ray"):
    pytest.importorskip(package, reason="Flower is not installed: pip install 'fdgpriv[flower]'")


def trained(folder: Path, engine: str, method: str = "stablefdg") -> Trained:
    settings = {"rounds": "2", "local_epochs": "1"}
    sizes = {"images": 40, "clients": 3}
    config = AuditConfig(
        methods=(method,), preset="quick", settings=settings, device="cpu", engine=engine, keep="all", **sizes
    ).checked()
    dataset, config = config.load()
    cell = Cell(method, dataset.default_target, 0, "gaussian:epsilon=4")
    return train(config, dataset, cell, folder, ProgressLog(True), 2)[0]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    assert trained(folder, "local").utility is not None
    return folder


@pytest.mark.slow
def test_a_simulation_leaves_the_same_bytes(local: Path, tmp_path: Path) -> None:
    assert trained(tmp_path, "flower").utility is not None
    assert told(tmp_path) == told(local)


@pytest.mark.slow
def test_a_killed_simulation_continues(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "due", property(lambda self: True))
    on_round = RoundEvaluation.on_round

    def killed(self: RoundEvaluation, round: int, models: object) -> None:
        on_round(self, round, models)  # type: ignore[arg-type]
        if round == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(RoundEvaluation, "on_round", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, "flower")
    monkeypatch.setattr(RoundEvaluation, "on_round", on_round)
    assert list(tmp_path.rglob("checkpoint.json"))
    assert trained(tmp_path, "flower").utility is not None
    assert told(tmp_path) == told(local)
