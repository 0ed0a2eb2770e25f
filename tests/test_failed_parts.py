"""What raises or answers nonsense fails in its row, in one line; all else is evaluated and written; exit code 1."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import shortened

from fdgpriv import registry
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.audit import main
from fdgpriv.claims import hypothesis, measurements
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.method import Method
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.utils.failures import Failed, attempt, one_line
from fdgpriv.utils.files import DamagedFile


@pytest.fixture(autouse=True)
def _few_digits(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits of `digits` here are of 60 images a domain, and classes that they register are forgotten."""
    few = shortened(digits, 60)
    monkeypatch.setattr(sys.modules["fdgpriv.data"], "load", lambda name, **given: few)
    monkeypatch.setattr(registry, "_REGISTERED", {})


def _raises(count: int) -> Any:
    raise KeyError("a bug")


ANSWERS: dict[str, tuple[Callable[[int], Any], str]] = {
    "raises": (_raises, "KeyError: 'a bug' (test_failed_parts.py, line "),
    "nothing": (lambda count: None, "want a prediction for each observation, got NoneType"),
    "too_few": (lambda count: torch.ones(count - 1, 3), "predictions, one for each observation, got "),
    "too_many": (lambda count: torch.ones(count + 1, 3), "predictions, one for each observation, got "),
    "not_a_number": (lambda count: torch.full((count, 3), float("nan")), "want finite predictions, got NaN"),
    "infinite": (lambda count: torch.full((count, 3), float("inf")), "want finite predictions, got an infinity"),
    "misshapen": (lambda count: torch.ones(count, 2), "want a prediction (3,), got (2,) (prediction 0)"),
    "scalar": (lambda count: torch.tensor(1.0), "want a prediction for each observation, got a tensor () of float32"),
    "words": (lambda count: ["photo"] * count, "want a prediction to be a tensor, got str (prediction 0)"),
    "generator": (lambda count: (torch.ones(3) for _ in range(count)), "got generator"),
    "complex": (lambda count: torch.ones(count, 3, dtype=torch.complex64), "of complex64"),
}


def bad_attack(name: str) -> type[Attack]:
    def infer(self: Attack, adversary: object, observations: Sequence[object], rng: torch.Generator) -> Any:
        return ANSWERS[name][0](len(observations))

    members = {"reads": (StyleStatistics,), "task": DomainLabel(), "threats": ("server",), "infer": infer}
    return type(name.title().replace("_", ""), (Attack,), {**members, "__module__": __name__})


SHORT = ["--preset", "quick", "--clients", "3", "--set", "rounds=1", "local_epochs=1"]
GOOD = "identification:simulations=4"


def audited(out: Path, *words: str) -> tuple[int, tuple[Run, ...]]:
    code = main([*SHORT, "--threat", "server", "--out", str(out), *words])
    return code, Results.load(out / "results.json").runs


def test_an_attack_that_fails_costs_only_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [bad_attack(name).register() for name in ANSWERS]
    _, (alone,) = audited(tmp_path / "alone", "--attack", GOOD)
    capsys.readouterr()
    code, (run,) = audited(tmp_path / "out", "--attack", *names, GOOD)
    said = capsys.readouterr()
    assert code == 1
    assert f"failed: {names[0]} by server on style_statistics: KeyError: 'a bug'" in said.err
    assert f"(and {len(names) - 1} more, listed above)" in said.err
    rows = {row.attack: row for row in run.attacks}
    for name, (_, line) in ANSWERS.items():
        assert (rows[name].failed, line in str(rows[name].reason)) == (True, True), (name, rows[name].reason)
        assert f"  failed: {name} by server on style_statistics: " in said.out
        assert line in (tmp_path / "out" / "report.md").read_text(encoding="utf-8").replace("\\", ""), name
    assert rows["identification"] == alone.attacks[0]
    (asked,) = (question for question in run.questions if question.secret == "domain")
    assert (asked.verdict, asked.inconclusive_because) == ("inconclusive", "failed")
    assert asked.reason.startswith("failed: KeyError")
    first = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["runs"]
    assert audited(tmp_path / "out", "--attack", *names, GOOD, "--resume")[0] == 1
    again = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["runs"]
    assert again == first
    assert capsys.readouterr().out == said.out


def test_measurements_claims_and_reports_fail_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: object) -> Any:
        raise RuntimeError("no\nfigure")

    fails.__name__ = "presence"
    words = ("--attack", GOOD, "--defense", "gaussian:epsilon=8", "--seed", "1")
    with monkeypatch.context() as patch:
        patch.setattr(measurements, "MEASURED", (*measurements.MEASURED[:1], fails))
        patch.setattr("fdgpriv.cell_runner.measure", fails)
        patch.setattr(hypothesis.Hypothesis, "claim", hypothesis.Hypothesis.claim)
        patch.setattr(Report.named("markdown"), "render", fails)
        first = hypothesis.Hypothesis.decide
        patch.setattr(
            hypothesis.Hypothesis,
            "decide",
            lambda self, case: first(
                self if self.id != "H-S1" else hypothesis.Hypothesis(self.id, self.quote, "", fails), case
            ),
        )
        code, (run,) = audited(tmp_path / "out", *words)
    said = capsys.readouterr()
    assert code == 1
    assert "fdgpriv audit: failed: report markdown: RuntimeError: no figure" in said.err
    assert (tmp_path / "out" / "report.html").is_file()
    assert not (tmp_path / "out" / "report.md").exists()
    assert {one.partition(":")[0] for one in run.failures} == {
        "measurement presence",
        "measured epsilon of gaussian",
    }
    assert not (tmp_path / "out" / "scores" / "stablefdg-blend-1-gaussian_epsilon=8" / "facts.json").exists()
    failed = [claim for claim in run.claims if claim.failed]
    assert [(claim.id, claim.verdict) for claim in failed] == [("H-S1", "undecided")]
    assert len(run.claims) > 1
    assert run.attacks
    assert run.privacy.verdict == "not_measured"
    assert "  failed: claim H-S1: RuntimeError: no figure" in said.out
    code, (run,) = audited(tmp_path / "out", *words, "--resume")
    assert (code, run.failures, [claim for claim in run.claims if claim.failed]) == (0, (), [])
    assert (tmp_path / "out" / "report.md").is_file()


def test_a_method_and_a_defense_that_fail_leave_the_other_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Confused(Method.named("fedavg")):  # type: ignore[misc]
        def server(self, federation: Any, rng: torch.Generator) -> Any:
            yield "no request"

    class OtherKind(Defense):
        def protect(self, outgoing: Any, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
            return SampleCount(client=outgoing.client, round=outgoing.round, count=torch.tensor(3))

    class Refusing(Defense):
        def protect(self, outgoing: Any, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
            raise ZeroDivisionError

    names = [Confused.register(), "fedavg"], [OtherKind.register(), Refusing.register(), "none"]
    words = ("--method", *names[0], "--defense", *names[1], "--attack", "none")
    code = main([*SHORT, *words, "--out", str(tmp_path / "out")])
    runs = {(run.method, run.defense): run.failed for run in Results.load(tmp_path / "out" / "results.json").runs}
    said = capsys.readouterr()
    assert code == 1
    assert runs["fedavg", "none"] is None
    assert "'str' object has no attribute" in str(runs["confused", "none"])
    assert "(local_engine.py, line " in str(runs["confused", "none"])
    assert "want 1 model_state, got 0" in str(runs["fedavg", "other_kind"])
    assert "failed in fit of round 0: ZeroDivisionError" in str(runs["fedavg", "refusing"])
    assert "5 of 6 runs failed" in said.err
    assert "Traceback" not in said.err


def test_a_training_that_diverges_is_a_failed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--method", "fedavg", "--attack", "none", "--set", "lr=1e5", "--out", str(tmp_path / "out")]
    told = []
    for more in ([], ["--resume"]):
        assert main([*SHORT, *words, *more]) == 1
        said = capsys.readouterr()
        assert said.out.count("  failed: ") == 1
        assert "training diverged; try a smaller lr" in said.out
        assert "1 of 1 runs failed: fedavg, target blend, seed 0, none; their trainings diverged" in said.err
        told.append(said.out)
    assert told[0] == told[1]
    (run,) = Results.load(tmp_path / "out" / "results.json").runs
    assert run.failed is None
    assert run.ended == run.diverged


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), DamagedFile("x"), KeyboardInterrupt()])
def test_what_ends_the_run_is_raised_again(error: BaseException) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        attempt(fails)


def test_a_line_names_kind_text_and_where() -> None:
    found = attempt(lambda: int("x" * 500 + "\n\x1b[31m"))
    assert isinstance(found, Failed)
    assert "\n" not in found.line
    assert "\x1b" not in found.line
    assert found.line.startswith("ValueError: invalid literal for int()")
    assert "(test_failed_parts.py, line " in found.line
    assert len(found.line) < 400
    assert one_line(ValueError()) == "ValueError"
    assert "(test_failed_parts.py, line " in str(attempt(lambda: torch.zeros(2) @ torch.zeros(3)))
