"""A part's file that cannot be imported or has no usable class costs only itself, and is told before anything is trained."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import shortened

from fdgpriv.attack import Attack
from fdgpriv.audit import main
from fdgpriv.data.dataset import Dataset
from fdgpriv.registry import names_in
from fdgpriv.results.finding import Results

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
def written(tmp_path: Path, digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes files as if they stood in a folder of parts."""
    few = shortened(digits, 60)
    monkeypatch.setattr(sys.modules["fdgpriv.data"], "load", lambda name, **given: few)
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


def test_all_leaves_out_the_unusable_and_names_them(
    written: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written("attacks", **{name: text for name, (text, _) in BROKEN.items()})
    written("reports", broken="1 / 0")
    monkeypatch.setattr(
        "fdgpriv.cli.options.names_in",
        lambda folder: (*BROKEN, "identification") if folder == "attacks" else names_in(folder),
    )
    words = ["--preset", "quick", "--clients", "3", "--set", "rounds=1", "local_epochs=1", "--threat", "server"]
    words += ["--out", str(tmp_path / "out")]
    for more in ([], ["--resume"]):
        assert main([*words, *more]) == 1
        said = capsys.readouterr()
        for name, (_, line) in BROKEN.items():
            assert any(f"  failed: attack {name}: " in told and line in told for told in said.out.splitlines()), name
        assert "Traceback" not in said.err
        assert (
            "failed: report broken: ValueError: want reports/broken.py to be importable, got ZeroDivision" in said.err
        )
    (run,) = Results.load(tmp_path / "out" / "results.json").runs
    assert [row.attack for row in run.attacks] == ["identification"]
    assert "ZeroDivisionError: division by zero" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_the_others_go_on_as_if_it_were_not_there(
    written: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("attacks", "defenses", "methods"):
        written(folder, syntax="def (", raising="1 / 0")
    words = ["--method", "fedavg", "--attack", "none", "--preset", "quick", "--clients", "3", "--set", "rounds=1"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert main(["--list"]) == 0
    said = capsys.readouterr()
    assert said.out.count("cannot be used: want ") == 3
    assert "Traceback" not in said.err
    assert {"syntax", "raising"}.isdisjoint(Attack.importable())


@pytest.mark.parametrize("name", BROKEN)
def test_a_named_one_is_refused_before_the_training(
    name: str, written: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, line = BROKEN[name]
    written("attacks", **{name: text})
    assert main(["--attack", name, "--preset", "quick", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert line in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--method", "--defense"])
def test_a_named_method_or_defense_is_refused_before_the_training(
    option: str, written: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(f"{option[2:]}s", raising="1 / 0")
    assert main([option, "raising", "--preset", "quick", "--attack", "none", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert f"want {option[2:]}s/raising.py to be importable, got ZeroDivisionError" in said.err
    assert said.err.count("\n") == 1
