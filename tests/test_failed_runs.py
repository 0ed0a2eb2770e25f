"""An audit of several runs: one that fails or diverges is told, the others are finished, and --resume tries it again."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from _lies import corrupt, raised
from conftest import mostly_slow, shortened

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import STATISTICS, TensorState
from fdgpriv.audit import main
from fdgpriv.data.dataset import Dataset
from fdgpriv.results.finding import Results


@pytest.fixture(autouse=True)
def _few_digits(digits: Dataset) -> Iterator[None]:
    """Audits of `digits` here are of 20 images a domain."""
    few = shortened(digits, 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["fdgpriv.data"], "load", lambda name, **given: few)
        yield


@pytest.mark.parametrize("failing", mostly_slow([0, 1], [0]))
def test_a_failed_run_is_told_the_others_are_finished_and_resume_tries_it_again(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--preset", "quick", "--clients", "3", "--set", "rounds=1", "local_epochs=1", "--seed", "0", "1"]
    attack = ["--attack", "identification:simulations=4", "--threat", "server", "--out", str(tmp_path / "out")]
    words = [*short, *attack]
    reason = "client-01 failed in fit of round 0: ValueError: a bug"
    with monkeypatch.context() as patch:
        corrupt(patch, "stablefdg", "fit", raised(ValueError("a bug")), failing)
        assert main(words) == 1
    said = capsys.readouterr()
    assert f"1 of 2 runs failed: stablefdg, target blend, seed {failing}, none; to try them again" in said.err
    assert f"  failed: {reason}" in said.out
    assert "training failed" in said.out
    runs = {run.seed: run for run in Results.load(tmp_path / "out" / "results.json").runs}
    failed, finished = runs[failing], runs[1 - failing]
    assert (failed.failed, failed.utility, failed.attacks, failed.claims) == (reason, None, (), ())
    assert {row.verb for row in failed.artifacts} == {"style", "fit"}
    assert any(reason in sentence for sentence in failed.not_measured)
    assert finished.failed is None
    assert finished.utility is not None
    assert finished.attacks
    for name in ("report.md", "report.html"):
        assert reason in (tmp_path / "out" / name).read_text(encoding="utf-8").replace("\\", "")
    assert main([*words, "--resume"]) == 0
    again = {run.seed: run for run in Results.load(tmp_path / "out" / "results.json").runs}
    assert again[failing].utility is not None
    assert again[1 - failing].utility == finished.utility
    assert f"stablefdg-blend-{1 - failing}-none: already trained" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["fedavg", "pfedhn:hidden=4,server_optimizer=sgd,server_lr=1e30"])
def test_a_model_whose_logits_are_not_finite_has_diverged(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are allowed each, and overflow the network together; of pFedHN, a step that makes them too large."""
    corrupt(monkeypatch, method.partition(":")[0], "fit", lambda answer: [huge(item) for item in answer])
    words = ["--preset", "quick", "--clients", "3", "--set", "rounds=1", "local_epochs=1", "--attack", "none"]
    assert main([*words, "--method", method, "--out", str(tmp_path / "out")]) == 1
    (run,) = Results.load(tmp_path / "out" / "results.json").runs
    assert (run.utility, run.failed) == (None, None)
    said = "the global model gives logits that are not finite: training diverged"
    assert said in str(run.diverged)
    assert any(said in sentence for sentence in run.not_measured)


def huge(artifact: Artifact) -> Artifact:
    """All parameters at 9e5, and the statistics as they are."""
    if not isinstance(artifact, TensorState):
        return artifact
    state = {n: t if n.endswith(STATISTICS) else torch.full_like(t, 9e5) for n, t in artifact.state.items()}
    return replace(artifact, state=state)
