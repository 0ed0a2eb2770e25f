"""Accuracies of rounds go to TensorBoard and MLflow: their libraries where installed, else stand-ins of the same calls."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import audits_of, shortened, with_extra

import fdgpriv
from fdgpriv.audit import main
from fdgpriv.data.dataset import Dataset
from fdgpriv.results.finding import Results

WORDS = "--preset quick --clients 3 --set rounds=3 local_epochs=1 --method fedavg --attack none".split()  # noqa: SIM905
RUN = "fedavg-blend-0-none"


def logged(name: str, digits: Dataset, out: Path) -> dict[int, tuple[float, float]]:
    """By round, the accuracies in results.json of a run that was logged."""
    with audits_of(shortened(digits, 32)):
        assert main([*WORDS, "--log", name, "--out", str(out)]) == 0
    (run,) = Results.load(out / "results.json").runs
    assert run.utility is not None
    return {row.round: (row.source_accuracy, row.target_accuracy) for row in run.utility.rounds}


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Puts a module with this content in place of the one called `name`."""
    stand_in = ModuleType(name)
    stand_in.__dict__.update(content)
    stand_in.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, name, stand_in)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("fdgpriv.utils.extras.find_spec", lambda name: None)
    for name in ("TensorBoard", "mlflow"):
        assert main(["--log", name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert (
            f"want the package {name.lower()}, got none; to install it: pip install 'fdgpriv[{name.lower()}]'" in line
        )
    assert main(["--log", "tensorbord"]) == 2
    assert "did you mean 'tensorboard'" in capsys.readouterr().err


def test_tensorboard_receives_every_round(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, float, int]] = []
    closed: list[str] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def add_scalar(self, name: str, figure: float, step: int) -> None:
            calls.append((name, figure, step))

        def close(self) -> None:
            closed.append(self.folder)

    module(monkeypatch, "tensorboard")
    module(monkeypatch, "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    accuracies = logged("tensorboard", digits, tmp_path / "out")
    assert closed == [str(tmp_path / "out" / "tensorboard" / RUN)]
    assert {step for _, _, step in calls} == set(accuracies)
    for round, (source, target) in accuracies.items():
        assert {("source_accuracy", source, round), ("target_accuracy", target, round)} <= set(calls)


def test_mlflow_receives_every_round(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str, float, int]] = []
    begun: list[str] = []

    class MlflowClient:
        def __init__(self, tracking_uri: str) -> None:
            begun.append(tracking_uri)

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            begun.append(name)
            return "7"

        def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
            begun.append(f"{experiment} {run_name}")
            return SimpleNamespace(info=SimpleNamespace(run_id="run"))

        def log_metric(self, run: str, name: str, figure: float, step: int) -> None:
            calls.append((run, name, figure, step))

        def set_terminated(self, run: str) -> None:
            begun.append(f"ended {run}")

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    module(monkeypatch, "mlflow", MlflowClient=MlflowClient)
    accuracies = logged("mlflow", digits, tmp_path / "out")
    assert begun == [f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}", "fdgpriv", f"7 {RUN}", "ended run"]
    assert {step for *_, step in calls} == set(accuracies)
    for round, (source, target) in accuracies.items():
        assert {("run", "source_accuracy", source, round), ("run", "target_accuracy", target, round)} <= set(calls)


@with_extra("tensorboard", "tensorboard")
def test_tensorboard_shows_every_round(digits: Dataset, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accuracies = logged("tensorboard", digits, tmp_path / "out")
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard" / RUN)).Reload()
    for position, name in enumerate(("source_accuracy", "target_accuracy")):
        shown = {event.step: event.value for event in events.Scalars(name)}
        assert shown == pytest.approx({round: figures[position] for round, figures in accuracies.items()})


@with_extra("mlflow", "mlflow")
def test_mlflow_shows_every_round(digits: Dataset, tmp_path: Path) -> None:
    import mlflow

    accuracies = logged("mlflow", digits, tmp_path / "out")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("fdgpriv").experiment_id])
    assert (run.info.run_name, run.info.status) == (RUN, "FINISHED")
    for position, name in enumerate(("source_accuracy", "target_accuracy")):
        shown = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, name)}
        assert shown == pytest.approx({round: figures[position] for round, figures in accuracies.items()})


def test_python_takes_the_same_option() -> None:
    with pytest.raises(ValueError, match="--log: want one of tensorboard, mlflow; got 'wandb'"):
        fdgpriv.run_audit("fedavg", attacks="none", log="wandb", out="unused")
