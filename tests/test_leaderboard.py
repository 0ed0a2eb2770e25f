"""The leaderboard: worst answers over runs, settings apart, accuracy by pairs, links to evidence, one-line errors."""

from pathlib import Path
from typing import Any

import pytest
from _golden import assert_golden
from _results import HOSTILE
from factories_findings import figure, question
from fdgpriv.reports._leaderboard import leaderboard_content
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown
from fdgpriv.reports.tex import Tex
from scipy import stats
from test_compare import audit, run
from test_reports import Page

from fdgpriv.leaderboard import main
from fdgpriv.leaderboard.standings import leaderboard, read
from fdgpriv.results.leaderboard import Leaderboard, LeaderboardRow
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run
from fdgpriv.results.summary import verdicts
from fdgpriv.results.utility_finding import SourceProbe
from fdgpriv.statistics.grades import GRADES, Grade

DEFENSES = ("none", "gaussian:std=1", "clip", "gaussian:std=1+shuffle")
SETUP = {"clients": 6, "partition": "single", "image_size": 32, "backbone": "small_resnet"}


def leak(grade: Grade, lead: float = 0.1, **given: Any) -> Question:
    """A leak of this grade."""
    return question("leak", grade=grade, grade_interval=(grade, grade), lead=figure(lead, 0.02), **given)


def trained(method: str, *questions: Question, accuracy: float = 0.6, **given: Any) -> Run:
    """A run of this method that answers these questions."""
    return run(accuracy, method=method, questions=questions, **given)


def folder(path: Path, *runs: Run, clients: int = 6, **config: Any) -> Path:
    """The folder of an audit of these runs, with a report."""
    setup = {of_run.method: {**SETUP, "clients": clients} for of_run in runs}
    audit(path, *runs, **{"preset": "default", "attacks": ["a"], "threats": ["server"], "setup": setup, **config})
    (path / "report.html").write_text("")
    return path


def of(*folders: Path, **given: Any) -> Leaderboard:
    return leaderboard(read(folders), **given)


def only(*folders: Path, **given: Any) -> dict[str, LeaderboardRow]:
    """The rows of a single table by method."""
    (standings,) = of(*folders, **given).standings
    return {row.method: row for row in standings.rows}


def printed(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What a call prints, on stderr if it fails."""
    assert main(list(map(str, words))) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_a_cell_is_the_worst_of_all_answers(tmp_path: Path) -> None:
    questions = [
        question("not_applicable", strongest=None, lead=None),
        question("no_leak_found"),
        question("inconclusive", adversary="client"),
        leak("trace", 0.05, artifact="model_state"),
        leak("severe", 0.3, artifact="model_state", adversary="client"),
        leak("severe", 0.4, adversary="third_party"),
        leak("moderate", 0.9),
    ]
    for count in range(1, len(questions) + 1):
        asked = questions[:count]
        (row,) = only(folder(tmp_path / str(count), trained("ccst", *asked))).values()
        answer = row.answers["membership"].question
        order = ["not_applicable", "no_leak_found", "inconclusive", "leak"]
        assert answer.verdict == max((q.verdict for q in asked), key=order.index)
        leaks = [q for q in asked if q.grade]
        assert answer.grade == max((q.grade for q in leaks if q.grade), key=GRADES.index, default=None)
        if leaks:
            same_grade = [q.lead.value for q in leaks if q.grade == answer.grade and q.lead and q.lead.value]
            assert answer.lead.value == max(same_grade)


def test_runs_that_agree_are_counted(tmp_path: Path) -> None:
    runs = [
        trained("ccst", leak("severe", 0.4), seed=0),
        trained("ccst", leak("moderate", 0.2), question("inconclusive", secret="labels"), seed=1),
        trained("ccst", leak("severe", 0.3), question("no_leak_found", secret="labels"), seed=2),
        trained("ccst", seed=3),
    ]
    row = only(*(folder(tmp_path / str(seed), seeded) for seed, seeded in enumerate(runs)))["ccst"]
    members, labels = row.answers["membership"], row.answers["labels"]
    assert (len(row.runs), members.agreeing, members.asking) == (4, 2, 3)
    assert (labels.question.verdict, labels.agreeing, labels.asking) == ("inconclusive", 1, 2)
    assert members.source.run.seed == 0
    assert [lead.value for lead in members.leads] == [0.4, 0.2, 0.3]


@pytest.mark.parametrize("other", [{"preset": "quick"}, {"clients": 9}, {"images": 50}, {"attacks": []}])
def test_settings_are_not_mixed(other: dict[str, Any], tmp_path: Path) -> None:
    paths = folder(tmp_path / "a", trained("ccst")), folder(tmp_path / "b", trained("ccst"), **other)
    assert [len(standings.rows[0].runs) for standings in of(*paths).standings] == [1, 1]


def test_other_images_are_another_setting(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", trained("ccst"))
    text = (path / "results.json").read_text()
    changed = folder(tmp_path / "b", trained("ccst"))
    digests = [f'"sha256": "{letter * 64}"' for letter in "ab"]
    (path / "results.json").write_text(text.replace('"sha256": null', digests[0]))
    (changed / "results.json").write_text(text.replace('"sha256": null', digests[1]))
    assert len(of(path, changed).standings) == 2


def test_rows_are_ordered_by_their_leaks(tmp_path: Path) -> None:
    runs = [
        trained("worst", leak("severe"), leak("trace", secret="labels")),
        trained("traces", leak("trace"), leak("trace", secret="labels")),
        trained("accurate", leak("trace"), question("no_leak_found", secret="labels"), accuracy=0.7),
        trained("inaccurate", leak("trace"), question("no_leak_found", secret="labels"), accuracy=0.5),
        trained("open", leak("trace"), question("inconclusive", secret="labels"), accuracy=0.9),
        trained("moderate", leak("moderate"), question("no_leak_found", secret="labels")),
        trained("half", question("no_leak_found", secret="labels")),
        trained("unasked", accuracy=0.95),
    ]
    order = ["accurate", "inaccurate", "open", "traces", "moderate", "worst", "half", "unasked"]
    assert list(only(folder(tmp_path / "a", *runs))) == order


def test_accuracy_is_by_pairs_with_the_baseline(tmp_path: Path) -> None:
    ours, base = (0.6, 0.7, 0.5), (0.5, 0.55, 0.5)
    runs = [trained("ccst", accuracy=value, seed=seed) for seed, value in enumerate(ours)]
    runs += [trained("fedavg", accuracy=value, seed=seed) for seed, value in enumerate(base)]
    path = folder(tmp_path / "a", *runs)
    (accuracy,) = only(path)["ccst"].accuracies
    assert accuracy.target.value == pytest.approx(sum(ours) / 3)
    assert accuracy.leads["returned"].value == pytest.approx(sum(a - b for a, b in zip(ours, base, strict=True)) / 3)
    (reverse,) = only(path, baseline="ccst")["fedavg"].accuracies
    assert (reverse.base, reverse.leads["returned"].value) == ("ccst", -accuracy.leads["returned"].value)
    shown = Markdown().ranked(of(path), tmp_path).replace("\\", "")
    leads = [100 * (a - b) for a, b in zip(ours, base, strict=True)]
    low, high = stats.t.interval(0.95, 2, sum(leads) / 3, stats.sem(leads))
    assert f"+{sum(leads) / 3:.1f} [{low:.1f}, {high:.1f}] points against fedavg".replace("-", "−") in shown


def test_defended_runs_count_where_asked(tmp_path: Path) -> None:
    runs = [trained("ccst", leak("severe"), defense=name) for name in DEFENSES]
    path = folder(tmp_path / "a", *runs)
    for defenses, names in (
        ([], ["none"]),
        (["gaussian"], ["gaussian:std=1"]),
        (["none", "gaussian:std=1+shuffle"], ["none", "gaussian:std=1+shuffle"]),
        (["all"], list(DEFENSES)),
    ):
        (standings,) = of(path, **({"defenses": defenses} if defenses else {})).standings
        assert [row.defense for row in standings.rows] == names


def test_documents_distinguish_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs with every verdict, without questions, without artifacts, without a model, with adapted statistics."""
    monkeypatch.chdir(tmp_path)
    full = trained(
        "full",
        leak("severe", 0.3),
        question("inconclusive", secret="labels"),
        question("no_leak_found", secret="content"),
        question("not_applicable", secret="size", strongest=None, lead=None),
    )
    failed = trained("full", seed=1).model_copy(update={"utility": None, "attacks": (), "failed": "client-0: too slow"})
    adapted = trained("fedbn")
    utility = adapted.utility.model_copy(update={"recomputed_statistics": True})
    adapted = adapted.model_copy(update={"utility": utility})
    others = (trained("fedavg"), trained("alone", artifacts=()))
    paths = [
        folder(Path("runs", "a b"), full, failed, adapted, *others, attacks=["gan", "linkage"]),
        folder(Path("runs", "c"), trained("empty"), attacks=["gan"], threats=["server", "client"]),
    ]
    said = printed(capsys, *paths, "--out", "out")
    assert sorted(path.name for path in Path("out").iterdir()) == [
        f"leaderboard.{end}" for end in ("html", "md", "tex")
    ]
    assert_golden("leaderboard.txt", said)
    assert_golden("leaderboard.md", Path("out", "leaderboard.md").read_text())
    page = Page(Path("out", "leaderboard.html").read_text())
    assert page.open == []
    shown = ("Severe leak", "Inconclusive", "No leak found", "Not applicable", "Not asked", "Nothing shared")
    assert set(shown) <= set(page.texts)
    links = [value for _, name, value in page.attributes if name == "href"]
    assert links == [f"../runs/a%20b/report.html#question-0-{number}" for number in (1, 3, 0, 2)]
    assert not [value for tag, name, value in page.attributes if name == "src" or tag in ("script", "link")]
    tex = Path("out", "leaderboard.tex").read_text()
    assert r"\textbf{severe} \newline {\scriptsize Lead 0.30 AUC}" in tex
    assert tex.isascii()
    for method in ("full", "fedbn", "fedavg"):  # the accuracy of whose model is that of adapted statistics
        assert only(*paths)[method].accuracies[0].recomputed_statistics == (method == "fedbn")
    assert verdicts(read(paths)[0].results).count("recomputed on the target's unlabelled images") == 1


def test_no_link_without_a_report(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", trained("ccst", leak("trace")))
    (path / "report.html").unlink()
    (table,) = leaderboard_content(of(path), tmp_path).tables
    assert [cell.address for cell in table.table.rows[0]] == ["", "", ""]


@pytest.mark.parametrize("form", [Html, Markdown, Tex])
def test_hostile_names_are_only_text(form: Any, tmp_path: Path) -> None:
    path = folder(tmp_path / "a", trained("ccst", leak("severe", artifact=HOSTILE[:60]), target=HOSTILE))
    assert "<script>" not in form().ranked(of(path), tmp_path)


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = folder(tmp_path / "ours", trained("ccst"))
    empty = tmp_path / "empty"
    empty.mkdir()
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text("{}")
    older, interrupted = folder(tmp_path / "older", trained("lsi")), folder(tmp_path / "cut", trained("lsi"))
    (older / "results.json").write_text('{"schema": 2}')
    text = (interrupted / "results.json").read_text()
    (interrupted / "results.json").write_text(text.replace('"interrupted": false', '"interrupted": true'))
    for words, reason in (
        ([], "want at least one audit"),
        ([tmp_path / "gone"], "which does not exist"),
        ([empty], "which has no results.json"),
        ([unfinished], "its audit is not finished"),
        ([older], "got schema 2"),
        ([interrupted], "which was interrupted"),
        ([ours, ours], f"got {ours} twice"),
        ([ours, ours / "results.json"], f"also as {ours}"),
        ([ours, "--defense", "gausian"], "--defense: want all or a defense of the runs (none)"),
        ([ours, "--baseline", "cst"], "did you mean 'ccst'?"),
        ([ours, "--out", ours / "results.json"], "--out: want a folder"),
        ([ours, "--bseline", "ccst"], "did you mean '--baseline'?"),
    ):
        said = printed(capsys, *words, code=2)
        assert len(said.splitlines()) == 1
        assert reason in said


def test_rows_of_one_method_are_told_apart_by_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By settings where these differ, else by the network, else by the audit; the baseline is still one."""
    runs = {
        name: folder(tmp_path / name, trained("fedavg", accuracy=accuracy))
        for name, accuracy in (("a", 0.5), ("b", 0.6))
    }
    by_audit = only(*runs.values())
    assert set(by_audit) == {f"fedavg: {path}" for path in runs.values()}
    assert [len(row.runs) for row in by_audit.values()] == [1, 1]
    slow = folder(tmp_path / "slow", trained("fedavg", accuracy=0.4), settings={"lr": "0.1", "rounds": "3"})
    fast = folder(tmp_path / "fast", trained("fedavg", accuracy=0.7), settings={"lr": "0.2", "rounds": "3"})
    ccst = folder(tmp_path / "ccst", trained("ccst", accuracy=0.8))
    rows = only(slow, fast, ccst)
    assert set(rows) == {"fedavg: lr=0.1", "fedavg: lr=0.2", "ccst"}
    assert rows["fedavg: lr=0.2"].accuracies[0].target.value == pytest.approx(0.7)
    assert rows["ccst"].accuracies[0].base.startswith("fedavg: lr=")
    assert set(only(runs["a"], slow)) == {"fedavg: defaults", "fedavg: lr=0.1, rounds=3"}
    assert "fedavg: lr=0.1" in printed(capsys, slow, fast)


def test_seeds_of_one_row_stay_one_row(tmp_path: Path) -> None:
    paths = [folder(tmp_path / str(seed), trained("ccst", seed=seed), settings={"lr": "0.1"}) for seed in (0, 1)]
    assert {method: len(row.runs) for method, row in only(*paths).items()} == {"ccst": 2}


def test_rows_that_have_not_learned_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = SourceProbe(accuracy=0.9, majority=0.1, on="pixels")
    runs = []
    for method, source, seed in (("a", 0.8, 0), ("b", 0.3, 0), ("b", 0.7, 1)):
        made = trained(method, leak("severe"), seed=seed)
        assert made.utility is not None
        reached = figure(source, 0.01)
        utility = made.utility.model_copy(update={"source_accuracy": reached, "source_probe": probe})
        runs.append(made.model_copy(update={"utility": utility}))
    text = printed(capsys, folder(tmp_path / "audit", *runs))
    assert "  NOT LEARNED: b (1 of 2); what such a model leaks or hides says nothing" in text
    assert "NOT LEARNED" not in printed(capsys, folder(tmp_path / "learned", runs[0]))
