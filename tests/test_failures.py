"""What fails costs only itself: a part's file, an attack, a client, a report. It is told in one line; the rest is finished."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from _lies import corrupt, raised
from conftest import audits_of, shortened

from fdgpriv import registry
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import STATISTICS, ModelState, TensorState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.audit import main
from fdgpriv.claims import claim_test, measurements
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.method import Method
from fdgpriv.registry import names_in
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.utils.failures import Failed, attempt, one_line
from fdgpriv.utils.files import DamagedFile

SHORT = ["--preset", "quick", "--clients", "3", "--set", "rounds=1", "local_epochs=1"]
GOOD = "class_probe"


@pytest.fixture(autouse=True)
def _few_digits(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Audits of `digits` here are of 60 images a domain, and classes that they register are forgotten."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    with audits_of(shortened(digits, 60), drawn=False):
        yield


def audited(out: Path, *words: str) -> tuple[int, tuple[Run, ...]]:
    """The exit code of a short audit, and the runs that it wrote."""
    code = main([*SHORT, "--threat", "server", "--out", str(out), *words])
    return code, Results.load(out / "results.json").runs


def trained(out: Path, *words: str) -> tuple[int, tuple[Run, ...]]:
    """The same without attacks."""
    code = main([*SHORT, "--attack", "none", "--out", str(out), *words])
    return code, Results.load(out / "results.json").runs


# Files of parts that cannot be imported or have no usable class

USABLE = """
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.tasks.domain_label import DomainLabel
class {name}(Attack):
    reads, task, threats = (StyleStatistics,), DomainLabel(), ("server",)
    {body}
"""
BROKEN = {
    "syntax": ("def (", "SyntaxError: invalid syntax"),
    "missing": ("import not_installed", "ModuleNotFoundError: No module named 'not_installed' (missing.py, line 1)"),
    "raising": ("\n1 / 0", "ZeroDivisionError: division by zero (raising.py, line 2)"),
    "leaving": ("raise SystemExit(3)", "SystemExit: 3 (leaving.py, line 1)"),
    "notes": ("'only notes'", "want a class in attacks/notes.py whose name in snake case is notes; found none"),
    "stray": ("class Stray: 'no attack'", "want a class in attacks/stray.py whose name in snake case is stray; found"),
    "abstract": (USABLE.format(name="Abstract", body="pass"), "Can't instantiate abstract class Abstract"),
    "unknown": (
        USABLE.format(name="Unknown", body="def infer(self, *given): pass").replace('"server"', '"thief"'),
        "thief",
    ),
    "untasked": (
        "from fdgpriv.attack import Attack\nclass Untasked(Attack):\n    def infer(self, *given): pass",
        "AttributeError",
    ),
}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes files as if they stood in a folder of parts."""
    known = set(sys.modules)

    def write(folder: str, **texts: str) -> None:
        package = importlib.import_module(f"fdgpriv.{folder}")
        place = tmp_path / folder
        place.mkdir()
        for name, text in texts.items():
            (place / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(place)])
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_all_names_unusable_files_and_runs_the_rest(
    written: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written("attacks", **{name: text for name, (text, _) in BROKEN.items()})
    written("reports", broken="1 / 0")
    monkeypatch.setattr(
        "fdgpriv.cli.options.names_in",
        lambda folder: (*BROKEN, "class_probe") if folder == "attacks" else names_in(folder),
    )
    for resumed in ([], ["--resume"]):
        code, (run,) = audited(tmp_path / "out", *resumed)
        printed = capsys.readouterr()
        assert code == 1
        for name, (_, line) in BROKEN.items():
            lines = [text for text in printed.out.splitlines() if f"  failed: attack {name}: " in text]
            assert any(line in text for text in lines), name
        assert "Traceback" not in printed.err
        assert "failed: report broken: ValueError: want reports/broken.py to be importable, got Zero" in printed.err
        assert [row.attack for row in run.attacks] == ["class_probe"]
    assert "ZeroDivisionError: division by zero" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_unusable_files_do_not_disturb_other_parts(
    written: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("attacks", "defenses", "methods"):
        written(folder, syntax="def (", raising="1 / 0")
    assert trained(tmp_path / "out", "--method", "fedavg")[0] == 0
    assert main(["--list"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("cannot be used: want ") == 3
    assert "Traceback" not in printed.err
    assert {"syntax", "raising"}.isdisjoint(Attack.importable())
    written("reports", broken="1 / 0")  # with nothing else amiss
    assert trained(tmp_path / "out", "--method", "fedavg", "--resume")[0] == 1


def test_a_named_unusable_part_is_refused(
    written: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before training."""
    written("attacks", **{name: text for name, (text, _) in BROKEN.items()})
    asked = [("attacks", name, line) for name, (_, line) in BROKEN.items()]
    for folder in ("methods", "defenses"):
        written(folder, raising="1 / 0")
        asked += [(folder, "raising", f"want {folder}/raising.py to be importable, got ZeroDivisionError")]
    for folder, name, line in asked:
        assert main([f"--{folder[:-1]}", name, "--preset", "quick", "--out", str(tmp_path / "out")]) == 2
        printed = capsys.readouterr().err
        assert line in printed
        assert printed.count("\n") == 1
        assert not (tmp_path / "out").exists()


# Attacks, measurements, claims and reports


def _raises(count: int) -> Any:
    raise KeyError("a bug")


ANSWERS: dict[str, tuple[Callable[[int], Any], str]] = {
    "raises": (_raises, "KeyError: 'a bug' (test_failures.py, line "),
    "nothing": (lambda count: None, "want a prediction for each observation, got NoneType"),
    "too_few": (lambda count: torch.ones(count - 1, 3), "predictions, one for each observation, got "),
    "not_a_number": (lambda count: torch.full((count, 3), float("nan")), "want finite predictions, got NaN"),
    "misshapen": (lambda count: torch.ones(count, 2), "want a prediction (3,), got (2,) (prediction 0)"),
    "words": (lambda count: ["photo"] * count, "want a prediction to be a tensor, got str (prediction 0)"),
    "complex": (lambda count: torch.ones(count, 3, dtype=torch.complex64), "of complex64"),
}


def bad_attack(name: str) -> type[Attack]:
    def infer(self: Attack, adversary: object, observations: Sequence[object], rng: torch.Generator) -> Any:
        return ANSWERS[name][0](len(observations))

    members = {"reads": (StyleStatistics,), "task": DomainLabel(), "threats": ("server",), "infer": infer}
    return type(name.title().replace("_", ""), (Attack,), {**members, "__module__": __name__})


def test_an_attack_that_fails_costs_only_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [bad_attack(name).register() for name in ANSWERS]
    _, (alone,) = audited(tmp_path / "alone", "--attack", GOOD)
    capsys.readouterr()
    code, (run,) = audited(tmp_path / "out", "--attack", *names, GOOD)
    printed = capsys.readouterr()
    assert code == 1
    assert f"failed: {names[0]} by server on style_statistics: KeyError: 'a bug'" in printed.err
    assert f"(and {len(names) - 1} more, listed above)" in printed.err
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8").replace("\\", "")
    rows = {row.attack: row for row in run.attacks}
    for name, (_, line) in ANSWERS.items():
        assert (rows[name].failed, line in str(rows[name].reason)) == (True, True), (name, rows[name].reason)
        assert f"  failed: {name} by server on style_statistics: " in printed.out
        assert line in report, name
    assert rows["class_probe"] == alone.attacks[0]
    (domain,) = (question for question in run.questions if question.secret == "domain")
    assert (domain.verdict, domain.inconclusive_because) == ("inconclusive", "failed")
    assert domain.reason.startswith("failed: KeyError")
    first = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["runs"]
    assert audited(tmp_path / "out", "--attack", *names, GOOD, "--resume")[0] == 1
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["runs"] == first
    assert capsys.readouterr().out == printed.out


def test_measurements_and_reports_fail_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: object) -> Any:
        raise RuntimeError("no\nfigure")

    fails.__name__ = "presence"
    words = ("--attack", GOOD, "--defense", "gaussian:epsilon=8", "--seed", "1")
    with monkeypatch.context() as patch:
        patch.setattr(measurements, "MEASURED", (*measurements.MEASURED[:1], fails))
        patch.setattr("fdgpriv.cell_runner.measure", fails)
        patch.setattr(claim_test.ClaimTest, "claim", claim_test.ClaimTest.claim)
        patch.setattr(Report.named("markdown"), "render", fails)
        first = claim_test.ClaimTest.decide
        patch.setattr(
            claim_test.ClaimTest,
            "decide",
            lambda self, case: first(
                self if self.id != "H-S1" else claim_test.ClaimTest(self.id, self.quote, "", fails), case
            ),
        )
        code, (run,) = audited(tmp_path / "out", *words)
    printed = capsys.readouterr()
    assert code == 1
    assert "fdgpriv audit: failed: report markdown: RuntimeError: no figure" in printed.err
    assert (tmp_path / "out" / "report.html").is_file()
    assert not (tmp_path / "out" / "report.md").exists()
    assert {failure.partition(":")[0] for failure in run.failures} == {
        "measurement presence",
        "measured epsilon of gaussian",
    }
    assert not (tmp_path / "out" / "scores" / "stablefdg-blend-1-gaussian_epsilon=8" / "facts.json").exists()
    failed = [claim for claim in run.claims if claim.failed]
    assert [(claim.id, claim.verdict) for claim in failed] == [("H-S1", "undecided")]
    assert len(run.claims) > 1
    assert run.attacks
    assert run.privacy.verdict == "not_measured"
    assert "  failed: claim H-S1: RuntimeError: no figure" in printed.out
    code, (run,) = audited(tmp_path / "out", *words, "--resume")
    assert (code, run.failures, [claim for claim in run.claims if claim.failed]) == (0, (), [])
    assert (tmp_path / "out" / "report.md").is_file()


# Trainings


def test_a_failed_run_is_repeated_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = ("--seed", "0", "1", "--attack", GOOD), tmp_path / "out"
    reason = "client-01 failed in fit of round 0: ValueError: a bug"
    with monkeypatch.context() as patch:
        corrupt(patch, "stablefdg", "fit", raised(ValueError("a bug")), 0)
        code, (failed, finished) = audited(out, *words)
    printed = capsys.readouterr()
    assert code == 1
    assert "1 of 2 runs failed: stablefdg, target blend, seed 0, none; to try them again" in printed.err
    reports = [(out / name).read_text(encoding="utf-8").replace("\\", "") for name in ("report.md", "report.html")]
    assert all(reason in text for text in (printed.out, *failed.not_measured[:1], *reports))
    assert (failed.failed, failed.utility, failed.attacks, failed.claims) == (reason, None, (), ())
    assert {row.verb for row in failed.artifacts} == {"style", "fit"}
    assert finished.failed is None
    assert finished.utility
    assert finished.attacks
    code, (repeated, unchanged) = audited(out, *words, "--resume")
    assert (code, repeated.failed, unchanged.utility) == (0, None, finished.utility)
    assert repeated.utility
    assert "stablefdg-blend-1-none: already trained" in capsys.readouterr().err


@pytest.mark.slow
def test_a_failing_method_leaves_the_other_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Confused(Method.named("fedavg")):  # type: ignore[misc]
        def server(self, federation: Any, rng: torch.Generator) -> Any:
            yield "no request"

    class OtherKind(Defense):
        def protect(self, outgoing: Any, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
            return SampleCount(client=outgoing.client, round=outgoing.round, count=torch.tensor(3))

    class Refusing(Defense):
        def protect(self, outgoing: Any, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
            raise ZeroDivisionError

    methods, defenses = [Confused.register(), "fedavg"], [OtherKind.register(), Refusing.register(), "none"]
    code, runs = trained(tmp_path / "out", "--method", *methods, "--defense", *defenses)
    failed = {(run.method, run.defense): run.failed for run in runs}
    printed = capsys.readouterr()
    assert code == 1
    assert failed["fedavg", "none"] is None
    assert "'str' object has no attribute" in str(failed["confused", "none"])
    assert "(engine.py, line " in str(failed["confused", "none"])
    assert "want 1 model_state, got 0" in str(failed["fedavg", "other_kind"])
    assert "failed in fit of round 0: ZeroDivisionError" in str(failed["fedavg", "refusing"])
    assert "5 of 6 runs failed" in printed.err
    assert "Traceback" not in printed.err


def test_a_diverged_training_is_not_attacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--method", "fedavg", "--attack", "label_histogram", "--set", "lr=1e5")
    first, again = (
        (*audited(tmp_path / "out", *words, *resumed), capsys.readouterr()) for resumed in ([], ["--resume"])
    )
    code, (run,), printed = first
    assert code == 1
    assert printed.out.count("  failed: ") == 1
    assert "training diverged; try a smaller lr" in printed.out
    assert "1 of 1 runs failed: fedavg, target blend, seed 0, none; their trainings diverged" in printed.err
    assert (again[0], again[1], again[2].out) == (1, (run,), printed.out)
    assert (run.failed, run.utility, run.attacks, run.ended) == (None, None, (), run.diverged)
    assert any("diverged" in sentence for sentence in run.not_measured)
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize("method", ["fedavg", "pfedhn:hidden=4,server_optimizer=sgd,server_lr=1e30"])
def test_a_model_without_finite_logits_has_diverged(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are allowed each, and overflow the network together; of pFedHN, a step that makes them too large."""
    corrupt(monkeypatch, method.partition(":")[0], "fit", lambda answer: [huge(item) for item in answer])
    code, (run,) = trained(tmp_path / "out", "--method", method)
    assert (code, run.utility, run.failed) == (1, None, None)
    reason = "the global model gives logits that are not finite: training diverged"
    assert reason in str(run.diverged)
    assert any(reason in sentence for sentence in run.not_measured)


def huge(artifact: Artifact) -> Artifact:
    """All parameters at 9e5, and the statistics as they are."""
    if not isinstance(artifact, TensorState):
        return artifact
    state = {n: t if n.endswith(STATISTICS) else torch.full_like(t, 9e5) for n, t in artifact.state.items()}
    return replace(artifact, state=state)


# Errors in one line


def test_what_ends_the_run_is_raised_again() -> None:
    def fails(error: BaseException) -> None:
        raise error

    for error in (OSError(28, "No space left on device"), DamagedFile("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            attempt(lambda error=error: fails(error))


def test_a_line_names_kind_text_and_where() -> None:
    found = attempt(lambda: int("x" * 500 + "\n\x1b[31m"))
    assert isinstance(found, Failed)
    assert found.line.isprintable()
    assert found.line.startswith("ValueError: invalid literal for int()")
    assert "(test_failures.py, line " in found.line
    assert len(found.line) < 400
    assert one_line(ValueError()) == "ValueError"
    assert "(test_failures.py, line " in str(attempt(lambda: json.loads("{")))  # raised in a library's file
