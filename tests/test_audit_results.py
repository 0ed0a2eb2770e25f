"""Results as a user has them: loaded from anywhere, shown on one screen, as data frames, and as reports."""

import html.parser
import subprocess
import sys
from pathlib import Path

import pytest
from _results import HOSTILE, png, results

import fdgpriv
from fdgpriv.audit_results import AuditResults
from fdgpriv.results.records import by_question, by_run
from fdgpriv.results.score_tables import ScoreTables
from fdgpriv.statistics.grades import GRADES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with results, empty score tables, and a picture of each file that the results name."""
    run = tmp_path / "run"
    run.mkdir()
    made_up = results(seeds=2)
    made_up.save(run)
    ScoreTables.of_rows({}).save(run)
    for name in {file for run_ in made_up.runs for attack in run_.attacks for file in attack.figures}:
        png(run, name)
    return run


def test_load_takes_folder_file_and_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    paths = (folder, folder / "results.json", str(folder), "~/run", "~/run/results.json")
    loaded = [fdgpriv.Results.load(path) for path in paths]
    assert all(entry == results(seeds=2) and entry.folder == folder for entry in loaded)
    assert loaded[0] != fdgpriv.Results.of(results(seeds=1), folder)


@pytest.mark.parametrize(
    ("name", "files", "lack"),
    [
        ("gone", {}, "does not exist$"),
        ("empty", {}, "has no results.json$"),
        ("begun", {"config.json": "{}"}, "has no results.json; its audit is not finished$"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, name: str, files: dict[str, str], lack: str) -> None:
    if name != "gone":
        (tmp_path / name).mkdir()
    for file, text in files.items():
        (tmp_path / name / file).write_text(text)
    with pytest.raises(ValueError, match=f"^want the folder of a finished audit.*{lack}"):
        fdgpriv.Results.load(tmp_path / name)


def test_save_takes_tables_and_pictures_along(folder: Path, tmp_path: Path) -> None:
    loaded = fdgpriv.Results.load(folder)
    loaded.save(tmp_path / "new" / "copy")
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    copy = tmp_path / "new" / "copy"
    assert {path.relative_to(copy): path.read_bytes() for path in copy.rglob("*") if path.is_file()} == files
    loaded.save(tmp_path / "alone.json")
    assert (tmp_path / "alone.json").read_text() == loaded.text()


def test_tables_without_a_folder_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^want results of a folder for their score tables: Results.load\(FOLDER\)"):
        AuditResults.of(results(), None).to_pandas()


def test_views_are_data_frames(folder: Path) -> None:
    loaded = fdgpriv.Results.load(folder)
    assert loaded.matrix().to_dict("records")[0].keys() == by_question(loaded.runs)[0].keys()
    assert list(loaded.matrix()["verdict"]) == [row["verdict"] for row in by_question(loaded.runs)]
    assert list(loaded.frontier()["leak"]) == [row["leak"] for row in by_run(loaded.runs)]
    assert loaded.to_pandas()._fields == ("evaluations", "scores", "candidates", "aggregates")
    assert not len(loaded.to_pandas().scores)


@pytest.mark.parametrize(("seeds", "defenses"), [(1, ("none",)), (3, ("none", "gaussian:epsilon=8"))])
def test_the_repr_is_one_screen(seeds: int, defenses: tuple[str, ...]) -> None:
    shown = AuditResults.of(results(seeds=seeds, defenses=defenses), None)
    lines = repr(shown).splitlines()
    assert len(lines) <= 32
    assert str(shown) == repr(shown)
    strongest = lines[lines.index("strongest leaks:") + 1 : lines.index("next:")]
    grades = [GRADES.index(grade) for line in strongest for grade in GRADES if f" {grade} leak" in line]
    assert grades == sorted(grades, reverse=True)
    assert len(grades) == len([line for line in strongest if not line.startswith("  and ")]) > 0
    assert 'results.report("report.html")' in lines[-1]
    assert ("results.frontier()" in repr(shown)) == (len(defenses) > 1)


def test_an_audit_without_runs_says_so() -> None:
    empty = AuditResults.of(results().model_copy(update={"runs": ()}), None)
    assert repr(empty).endswith("no run finished")
    assert "no run finished" in empty._repr_html_()


class Tags(html.parser.HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_table_of_a_notebook_is_escaped(seeds: int) -> None:
    hostile = results(seeds=seeds, defenses=("none",))
    runs = tuple(run.model_copy(update={"method": HOSTILE}) for run in hostile.runs)
    page = AuditResults.of(hostile.model_copy(update={"runs": runs}), None)._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert tags.seen == {"div", "p", "b", "table", "tr", "th", "td", "ul", "li"}
    assert not tags.open


def test_the_format_of_a_report_follows_the_suffix(folder: Path, tmp_path: Path) -> None:
    loaded = fdgpriv.Results.load(folder)
    assert loaded.report(tmp_path / "in" / "mine.html").read_text().startswith("<!doctype html>")
    assert loaded.report(str(tmp_path / "mine.MD")).read_text().startswith("# Privacy audit")
    assert loaded.report(tmp_path / "mine.csv").read_text().startswith("method,dataset")
    with pytest.raises(ValueError, match=r"^want a file that ends in \.csv, \.html, .*; got .*mine\.docx$"):
        loaded.report(tmp_path / "mine.docx")
    assert not (tmp_path / "mine.docx").exists()


def test_the_package_imports_nothing_large() -> None:
    code = "import sys, fdgpriv; print({'torch', 'pydantic', 'pandas', 'matplotlib'} & set(sys.modules), fdgpriv.__version__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"set() {fdgpriv.__version__}\n"
    names: dict[str, object] = {}
    exec("from fdgpriv import *", names)
    assert {"Results", "__version__", "record", "run_audit"} <= set(names) & set(dir(fdgpriv))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fdgpriv.nothing  # noqa: B018
