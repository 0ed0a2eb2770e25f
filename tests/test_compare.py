"""The comparison of audits: what changed is computed by pairs, corrected once, and fails a build only by its rule."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _results import HOSTILE, measured, results
from _results import run as made_up
from factories_findings import figure, finding, question
from fdgpriv.reports._comparison import comparison_content
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown
from scipy import stats
from test_reports import Page, rows

from fdgpriv.compare import main
from fdgpriv.compare.audits import Audit, read
from fdgpriv.compare.comparison import compared
from fdgpriv.compare.matching import matched, title
from fdgpriv.report import Report
from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.change import Change
from fdgpriv.results.comparison import Comparison, LaterAudit
from fdgpriv.results.finding import Results
from fdgpriv.results.leak_gate import LEAK_CONDITIONS, leak_sentence
from fdgpriv.results.run import ArtifactRow, Privacy, Run
from fdgpriv.results.score_tables import RunKey, ScoreTables
from fdgpriv.results.utility_finding import Utility
from fdgpriv.statistics.change import difference_of_intervals, p_of_few, p_of_pairs
from fdgpriv.statistics.grades import Grade
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Verdict
from fdgpriv.training import Cell
from fdgpriv.verdicts.attack_scores import AttackScores, to_tables
from fdgpriv.verdicts.trial_scores import Condition, TrialScores

CLIENTS = tuple(f"client-{i:02d}" for i in range(12))
ATTACK = "style_membership"


def run(accuracy: float = 0.6, verdict: Verdict = "no_leak_found", auc: float = 0.55, **given: Any) -> Run:
    """A run with one attack by the server, and the question that it answers."""
    useful = Utility(
        source_accuracy=measured(0.9, 0.02, 300, "higher_better"),
        target_accuracy=measured(accuracy, 0.03, 900, "higher_better"),
        calibration_error=measured(0.1, 0.01, 900, "lower_better"),
    )
    usual = {"utility": useful, "attacks": (finding(ATTACK, "auc", auc, verdict),), "questions": (question(verdict),)}
    return made_up("none").model_copy(update={**usual, "claims": (), "figures": (), **given})


def seeds(accuracies: Sequence[float], **given: Any) -> list[Run]:
    """One run for each seed, with these target accuracies."""
    return [run(accuracy, seed=seed, **given) for seed, accuracy in enumerate(accuracies)]


def audit(folder: Path, *runs: Run, scores: Sequence[float] = (), **config: Any) -> Path:
    """The folder of an audit of these runs; `scores` are those of the attack in each, by client."""
    folder.mkdir(parents=True)
    made = results().model_copy(update={"runs": runs, "command": None})
    made.model_copy(update={"config": {**made.config, **config}}).save(folder)
    if scores:
        tables = []
        for one in runs:
            cell = Cell(one.method, str(one.target), one.seed, one.defense)
            run_key = RunKey(one.method, one.dataset, one.target, one.seed, one.defense)
            tables.append(to_tables(run_key, {f"{cell.folder}/{ATTACK}@server on style_statistics": stored(scores)}))
        ScoreTables.joined(tables).save(folder)
    return folder


def stored(scores: Sequence[float]) -> AttackScores:
    """The scores of the attack on one artifact of each client."""
    names = list(CLIENTS[: len(scores)])
    return AttackScores(
        attack=ATTACK, task="members", secret="membership", metric="auc", higher_leaks=True, bounds=(0.0, 1.0),
        scopes=("client",), relevant=0.1, exact=False, budget="", single_images=False,
        threat=Threat(role="server", auxiliary="A3"), kind="style_statistics", shared=True,
        conditions={Condition(): TrialScores(units=names, clients=names, headline={"attack": list(scores)})},
    )  # fmt: skip


def of(*folders: Path) -> Comparison:
    return compared(read(folders))


def only(*folders: Path) -> LaterAudit:
    (later,) = of(*folders).later
    return later


def target(later: LaterAudit) -> Change:
    return next(one.change for one in later.accuracies if one.images == "target")


# Matching


def pairs_of(before: Sequence[Run], after: Sequence[Run]) -> tuple[set[str], list[tuple[str, str]]]:
    """The axes that differ, and the defenses and methods of the pairs."""
    found = matched(before, after)
    axes = {"method", "dataset", "target", "seed", "defense"}
    return axes - set(found.by), [(title(was), title(now)) for was, now in found.pairs]


def test_runs_match_by_all_five_fields() -> None:
    none, noised, other = run(), run(defense="gaussian"), run(seed=1)
    differs, pairs = pairs_of([none, noised], [noised, other, none])
    assert (differs, pairs) == (set(), [(title(one), title(one)) for one in (none, noised)])


def test_methods_match_by_name_and_settings() -> None:
    plain, short, long = run(), run(method="stablefdg:rounds=5"), run(method="stablefdg:rounds=9")
    assert pairs_of([plain], [short]) == (set(), [(title(plain), title(short))])
    assert pairs_of([plain, short], [short, long]) == (
        set(),
        [(title(short), title(short)), (title(plain), title(long))],
    )


def test_runs_may_differ_in_one_field() -> None:
    for axis in ({"defense": "gaussian"}, {"seed": 4}, {"method": "fedavg"}):
        differs, pairs = pairs_of([run()], [run(**axis)])
        assert (differs, len(pairs)) == (set(axis), 1)


def test_ambiguous_partners_are_not_matched() -> None:
    for before, after in (
        ([run()], [run(target="scan")]),
        ([run()], [run(dataset="pacs")]),
        ([run(defense="a"), run(defense="b")], [run(defense="c")]),  # which of the two?
        ([run()], [run(defense="a"), run(seed=1)]),  # by defense or by seed?
        ([run(method="stablefdg:rounds=5"), run(method="stablefdg:rounds=9")], [run()]),
    ):
        with pytest.raises(ValueError, match="want runs"):
            matched(before, after)


def test_unmatched_runs_are_listed(tmp_path: Path) -> None:
    before = audit(tmp_path / "a", run(), run(seed=7))
    after = audit(tmp_path / "b", run(method="stablefdg:rounds=5"), run(target="scan"), preset="quick")
    later = only(before, after)
    assert later.differs == ("preset: default → quick",)
    assert later.runs[0].differs == ("method: stablefdg → stablefdg:rounds=5",)
    assert later.only_before == (title(run(seed=7)),)
    assert later.only_after == (title(run(target="scan")),)


def test_clients_of_other_images_are_not_paired(tmp_path: Path) -> None:
    folders = [audit(tmp_path / name, run(), scores=OLD) for name in "abc"]
    for folder, sha256 in zip(folders, ("1" * 64, "2" * 64, None), strict=True):
        old = Results.load(folder / "results.json")
        old.model_copy(update={"dataset": old.dataset.model_copy(update={"sha256": sha256})}).save(folder)
    first, second, unknown = folders
    later = only(first, second)
    assert later.differs == ("images or labels of digits: SHA-256 11111111… → 22222222…",)
    assert attack(later).basis == "two intervals, taken as independent: the images or labels of the dataset differ"
    assert only(first, unknown).differs == ()  # of a version that did not compute it
    assert attack(only(first, unknown)).basis == "paired over 12 clients"


# Accuracy


def test_several_seeds_are_compared_by_pairs(tmp_path: Path) -> None:
    old, new = [0.60, 0.64, 0.58, 0.62], [0.50, 0.55, 0.46, 0.53]
    change = target(only(audit(tmp_path / "a", *seeds(old)), audit(tmp_path / "b", *seeds(new))))
    gaps = np.subtract(new, old)
    ends = stats.t.interval(0.95, 3, gaps.mean(), stats.sem(gaps))
    assert change.difference.value == pytest.approx(-0.10)
    assert change.difference.ci95 == pytest.approx(ends)
    assert change.p == pytest.approx(stats.ttest_rel(new, old).pvalue)
    assert (change.basis, change.difference.n, change.outcome) == ("paired over 4 seeds", 4, "worse")
    assert (change.before.value, change.after.value) == (pytest.approx(0.61), pytest.approx(0.51))


def test_the_targets_of_a_seed_are_pairs_of_one_unit(tmp_path: Path) -> None:
    old = [run(0.5, target=name) for name in ("scan", "blend", "type")]
    new = [run(0.5 + gap, target=one.target) for one, gap in zip(old, (0.1, 0.2, 0.3), strict=True)]
    change = target(only(audit(tmp_path / "a", *old), audit(tmp_path / "b", *new)))
    assert (change.basis, change.difference.value) == ("paired over 3 targets", pytest.approx(0.2))
    again = [one.model_copy(update={"seed": 1}) for one in (*old, *new)]
    both = audit(tmp_path / "c", *old, *again[:3]), audit(tmp_path / "d", *new, *again[3:])
    assert target(only(*both)).basis == "paired over 2 seeds"


def test_one_training_each_is_compared_by_intervals(tmp_path: Path) -> None:
    change = target(only(audit(tmp_path / "a", run(0.60)), audit(tmp_path / "b", run(0.52))))
    half = np.hypot(0.03, 0.03)
    assert change.difference.value == pytest.approx(-0.08)
    assert change.difference.ci95 == pytest.approx((-0.08 - half, -0.08 + half))
    assert change.p == pytest.approx(2 * stats.norm.sf(0.08 / (half / stats.norm.ppf(0.975))))
    assert "two intervals over images" in change.basis


def test_square_and_add_uses_both_interval_ends() -> None:
    before = Measured(value=0.5, ci95=(0.4, 0.8), n=9, direction="higher_better")
    after = Measured(value=0.9, ci95=(0.5, 1.0), n=7, direction="higher_better")
    gap, _ = difference_of_intervals(before, after)
    assert gap.ci95 == pytest.approx((0.4 - np.hypot(0.4, 0.3), 0.4 + np.hypot(0.1, 0.1)))
    assert gap.n == 7
    bare = after.model_copy(update={"ci95": None})
    assert difference_of_intervals(before, bare)[0].reason == "want an interval of both"
    assert difference_of_intervals(before, before)[1] == 1.0


def test_p_of_pairs_at_its_edges() -> None:
    assert p_of_pairs(np.zeros(12)) == p_of_few(np.zeros(3)) == 1.0
    assert p_of_pairs(np.full(6, -0.2)) == pytest.approx(2 / 2**6)
    assert p_of_few(np.full(3, -0.2)) == pytest.approx(2 / 2**3)
    assert p_of_pairs(np.ones(1)) is p_of_few(np.ones(1)) is None
    gaps = np.random.default_rng(0).normal(0.5, 1.0, 15)
    assert p_of_pairs(gaps) == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)
    assert p_of_pairs(-gaps) == pytest.approx(p_of_pairs(gaps))


@pytest.mark.parametrize("failed", [None, "client-03 ran out of memory"], ids=["diverged", "failed"])
def test_a_training_that_is_lost_is_worse(failed: str | None, tmp_path: Path) -> None:
    lost = run(utility=None, failed=failed, attacks=(), questions=())
    before, after = audit(tmp_path / "a", run()), audit(tmp_path / "b", lost)
    later = only(before, after)
    assert (target(later).difference.value, target(later).outcome) == (None, "not_tested")
    assert later.runs[0].lost == (failed or "training diverged")
    assert main([str(before), str(after), "--fail-on", "worse"]) == 4
    assert main([str(after), str(before), "--fail-on", "worse"]) == 0
    assert not only(after, audit(tmp_path / "c", lost)).worse


# Leakage


OLD = (0.50, 0.52, 0.55, 0.48, 0.51, 0.60, 0.47, 0.53, 0.50, 0.49, 0.56, 0.52)
RISES = (0.20, 0.15, 0.18, 0.22, 0.19, 0.21, 0.16, 0.24, 0.17, 0.20, 0.23, 0.19)
NEW = tuple(old + rise for old, rise in zip(OLD, RISES, strict=True))


def attack(later: LaterAudit) -> Change:
    return later.runs[0].attacks[0].change


def test_scores_of_equal_clients_are_compared_by_pairs(tmp_path: Path) -> None:
    later = only(audit(tmp_path / "a", run(), scores=OLD), audit(tmp_path / "b", run(auc=0.7), scores=NEW))
    change = attack(later)
    ends = stats.t.interval(0.95, 11, np.mean(RISES), stats.sem(RISES))
    assert change.difference.value == pytest.approx(np.mean(RISES))
    assert change.difference.ci95 == pytest.approx(ends)
    assert (change.basis, change.outcome) == ("paired over 12 clients", "worse")
    assert (change.before.value, change.after.value) == (0.55, 0.7)  # as the reports have them
    assert attack(only(tmp_path / "b", tmp_path / "a")).outcome == "better"


def test_other_clients_are_compared_by_intervals(tmp_path: Path) -> None:
    before = audit(tmp_path / "before", run(), scores=OLD)
    other_setup: dict[str, Any] = {"setup": {"stablefdg": {"clients": 9}}}
    cases: tuple[tuple[Run, dict[str, Any], Sequence[float], str], ...] = (
        (run(auc=0.7, seed=1), {}, NEW, "the seeds differ"),
        (run(auc=0.7, images=None), {}, NEW, "the clients or their images differ"),
        (run(auc=0.7), other_setup, NEW, "the clients or their images differ"),
        (run(auc=0.7), {"preset": "quick"}, NEW, "the presets differ"),
        (run(auc=0.7), {}, (), "no scores of the same clients are stored"),
    )
    for number, (after, config, scores, reason) in enumerate(cases):
        change = attack(only(before, audit(tmp_path / str(number), after, scores=scores, **config)))
        assert change.basis == f"two intervals, taken as independent: {reason}"
        half = np.hypot(0.07, 0.07)
        assert change.difference.ci95 == pytest.approx((0.15 - half, 0.15 + half))


def test_where_lower_leaks_a_fall_is_worse(tmp_path: Path) -> None:
    found = {"leakage": finding(ATTACK, "l1", 0.5, "no_leak_found").leakage}
    old, new = (
        run(
            attacks=(
                finding(ATTACK, "l1", 0.0, "no_leak_found", metrics={"l1": figure(v, 0.01, "lower_leaks")}, **found),
            )
        )
        for v in (0.5, 0.3)
    )
    assert attack(only(audit(tmp_path / "a", old), audit(tmp_path / "b", new))).outcome == "worse"


def test_attacks_that_are_not_compared(tmp_path: Path) -> None:
    exact = finding(
        "exact_recovery", "max_abs_error", 0.1, "leak", metrics={"max_abs_error": figure(1), "recovered": figure(1)}
    )
    hidden = finding(ATTACK, "auc", 0.5, "leak", shared=False)
    before = run(attacks=(exact, hidden), questions=())
    after = run(attacks=(exact, hidden, finding("membership", "auc", 0.5, "leak")), questions=())
    assert only(audit(tmp_path / "a", before), audit(tmp_path / "b", after)).runs[0].attacks == ()


def test_the_strongest_or_changed_attack_is_shown(tmp_path: Path) -> None:
    def tried(name: str, *other: float) -> Path:
        others = [finding(f"attack_{i}", "auc", value, "leak") for i, value in enumerate(other)]
        asked = question("leak", attacks=(0, 1, 2))  # its strongest is style_membership
        return audit(tmp_path / name, run(attacks=(*others, finding(ATTACK, "auc", 0.6, "leak")), questions=(asked,)))

    def shown(before: Path, after: Path) -> str:
        (one,) = only(before, after).runs
        found = one.shown(one.questions[0])
        assert found is not None
        return found.attack

    before = tried("a", 0.5, 0.5)
    assert shown(before, tried("b", 0.51, 0.5)) == ATTACK
    assert shown(before, tried("c", 0.5, 0.9)) == "attack_1"


def test_only_a_verdict_that_moved_to_leak_is_worse(tmp_path: Path) -> None:
    verdicts: tuple[Verdict, ...] = ("leak", "inconclusive", "no_leak_found")
    folders = {verdict: audit(tmp_path / verdict, run(verdict=verdict)) for verdict in verdicts}
    folders["again"] = audit(tmp_path / "again", run(verdict="leak"))
    for was, now, moved, to_leak in (
        ("no_leak_found", "leak", True, True),
        ("inconclusive", "leak", True, True),
        ("leak", "no_leak_found", True, False),
        ("leak", "inconclusive", True, False),
        ("leak", "again", False, False),
    ):
        later = only(folders[was], folders[now])
        (asked,) = later.runs[0].questions
        assert (asked.moved, asked.moved_to_leak, later.worse) == (moved, to_leak, to_leak)
        assert main([str(folders[was]), str(folders[now]), "--fail-on", "worse"]) == (4 if to_leak else 0)


def test_a_question_of_one_audit_is_listed(tmp_path: Path) -> None:
    more = run(questions=(question("no_leak_found"), question("leak", adversary="client")))
    later = only(audit(tmp_path / "a", run()), audit(tmp_path / "b", more))
    both, new = later.runs[0].questions
    assert (new.before, new.question.adversary, later.worse) == (None, "client", False)
    assert [later.runs[0].changed(one) for one in (both, new)] == [False, True]


# Bytes, epsilon, correction


def test_changed_bytes_are_summed_by_kind_and_direction(tmp_path: Path) -> None:
    def row(verb: str, size: int, kind: str = "style_statistics") -> ArtifactRow:
        return ArtifactRow(kind=kind, verb=verb, **{"from": "client"}, to="server", per_client_per_round_bytes=size,
                           shape="", dtype="", times=10, visible_to=())  # fmt: skip

    before = run(artifacts=(row("style", 100), row("fit", 20), row("fit", 5, "model_update")))
    after = run(artifacts=(row("style", 300), row("fit", 5, "model_update"), row("fit", 7, "sample_count")))
    sent = only(audit(tmp_path / "a", before), audit(tmp_path / "b", after)).runs[0].sent
    found = {one.kind: (one.bytes_before, one.bytes_after, one.times_before, one.times_after) for one in sent}
    assert found == {"style_statistics": (120, 300, 20, 10), "sample_count": (None, 7, None, 10)}


def test_a_change_in_all_runs_is_listed_once(tmp_path: Path) -> None:
    proved = Privacy(epsilon_proved=4.0, delta=1e-5, statement="noise", verdict="not_measured")
    before = audit(tmp_path / "a", *seeds([0.6] * 3))
    all_, one = audit(tmp_path / "b", *seeds([0.6] * 3, privacy=proved)), seeds([0.6] * 3)
    one[2] = one[2].model_copy(update={"privacy": proved})
    assert [runs for runs, _ in only(before, all_).epsilon()] == ["", ""]
    changes = {one.name: (one.before, one.after) for one in only(before, all_).runs[0].epsilon}
    assert changes == {"proved": (None, 4.0), "delta": (None, 1e-5)}
    assert [runs for runs, _ in only(before, audit(tmp_path / "c", *one)).epsilon()] == [title(one[2])] * 2


def test_all_tests_are_corrected_together(tmp_path: Path) -> None:
    """A fall with p = .035 is worse only where it is the only test; here it is one of six."""
    folders = [audit(tmp_path / name, run(accuracy)) for name, accuracy in (("a", 0.6), ("b", 0.555), ("c", 0.6))]
    found = of(*folders)
    first = target(found.later[0])
    assert first.p == pytest.approx(0.0377, abs=1e-3)
    assert first.p is not None
    assert (found.tests, first.p_holm, first.outcome) == (6, pytest.approx(6 * first.p), "not_shown")
    assert first.corrected(first.p).outcome == "worse"


# The command


def test_equal_audits_are_not_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (audit(tmp_path / name, run(), scores=OLD) for name in ("a", "b"))
    assert main([str(before), str(after), "--fail-on", "leak", "worse"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "3 tests, corrected together by Holm: 0 worse, 0 better; verdicts that moved to leak: 0" in captured.out
    assert "1 of 1 questions: the same verdict, and no change shown" in captured.out


def test_a_leak_of_the_last_audit_fails_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean, leaks = audit(tmp_path / "a", run()), audit(tmp_path / "b", run(verdict="leak"))
    assert main([str(clean), str(leaks)]) == 0
    assert main([str(leaks), str(clean), "--fail-on", "leak"]) == 0
    capsys.readouterr()
    assert main([str(clean), str(leaks), "--fail-on", "leak", "--fail-on", "worse"]) == 4
    (text,) = capsys.readouterr().err.splitlines()
    assert "1 of 1 questions leak in" in text
    assert "verdicts that moved to leak: 1" in text


@pytest.mark.parametrize(
    ("grade", "codes"), [("trace", (4, 4, 0, 0)), ("moderate", (4, 4, 4, 0)), ("severe", (4, 4, 4, 4))]
)
def test_a_build_fails_from_a_grade_on(grade: Grade, codes: tuple[int, ...], tmp_path: Path) -> None:
    leak = question("leak").model_copy(update={"grade": grade, "grade_interval": ("trace", "severe")})
    clean, leaks = audit(tmp_path / "a", run()), audit(tmp_path / "b", run(questions=(leak,)))
    assert tuple(main([str(clean), str(leaks), "--fail-on", name]) for name in LEAK_CONDITIONS) == codes
    results = Results.load(leaks / "results.json")
    met = [leak_sentence(name, results, "b") is not None for name in LEAK_CONDITIONS]
    assert met == [code == 4 for code in codes]


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ({"questions": (), "attacks": ()}, "membership from style_statistics by server in the client scope (stablefdg"),
        ({"verdict": "not_applicable"}, ": not applicable"),
        ({"failed": True}, ": failed"),
        ({"utility": None, "diverged": "NaN", "questions": (), "attacks": ()}, ": not asked"),
        (None, "no run like stablefdg on"),
    ],
)
def test_missing_questions_fail_a_build(
    later: dict[str, Any] | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, asked = dict(later or {}), run()
    if given.pop("failed", False):
        failed = {"verdict": "inconclusive", "inconclusive_because": "failed", "reason": "failed: a bug"}
        given["questions"] = (asked.questions[0].model_copy(update=failed),)
    kept = run(seed=1)
    before = audit(tmp_path / "a", asked, kept)
    after = audit(tmp_path / "b", *([run(**given)] if later is not None else []), kept)
    for condition in ("leak", "worse"):
        assert main([str(before), str(after), "--fail-on", condition]) == 4
        (text,) = capsys.readouterr().err.splitlines()
        assert why in text
        assert text.endswith("--allow-missing accepts that")
        worse = condition == "worse" and given.get("diverged")  # a lost training is worse, too
        assert main([str(before), str(after), "--fail-on", condition, "--allow-missing"]) == (4 if worse else 0)
        assert why in capsys.readouterr().err
        assert main([str(after), str(before), "--fail-on", condition]) == 0
    assert main([str(before), str(after)]) == 0


def test_a_worse_accuracy_fails_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = audit(tmp_path / "a", run(0.6)), audit(tmp_path / "b", run(0.4))
    assert main([str(before / "results.json"), str(after), "--fail-on", "worse"]) == 4
    assert "figures worse after correction: 1" in capsys.readouterr().err
    assert main([str(before), str(after), "--fail-on", "leak"]) == 0
    assert main([str(after), str(before), "--fail-on", "worse"]) == 0


def test_reports_are_written_whole(tmp_path: Path) -> None:
    before, after = audit(tmp_path / "a", run(0.6)), audit(tmp_path / "b", run(0.4, "leak"))
    out = tmp_path / "new" / "out"
    assert main([str(before), str(after), "--out", str(out), "--fail-on", "worse"]) == 4
    assert sorted(path.name for path in out.iterdir()) == ["compare.html", "compare.json", "compare.md"]
    found = Comparison.model_validate_json((out / "compare.json").read_bytes(), strict=True)
    assert found == of(before, after)
    assert json.loads((out / "compare.json").read_text(encoding="utf-8"))["later"][0]["folder"] == str(after)


def bad(folder: Path) -> dict[str, tuple[list[str], str]]:
    """By name, arguments that are refused and what is said of them."""
    good, other, file = audit(folder / "good", run()), audit(folder / "other", run()), folder / "file"
    file.write_text("precious")
    texts = {"damaged": '{"schema": 2, "runs"', "old": '{"schema": 1, "runs": []}'}
    for name, text in texts.items():
        audit(folder / name, run())
        (folder / name / "results.json").write_text(text, encoding="utf-8")
    empty, elsewhere = audit(folder / "empty"), audit(folder / "elsewhere", run(target="scan"))
    torn = audit(folder / "torn", run(), scores=OLD)
    (torn / "scores.parquet").write_text("{}", encoding="utf-8")
    both, whole = [str(good), str(other)], audit(folder / "whole", run(), scores=OLD)
    return {
        "one run": ([str(good)], "at least two runs, the baseline first, got 1"),
        "missing": ([str(good), str(folder / "gone")], "gone, which does not exist"),
        "file": ([str(good), str(file)], "got the file"),
        "no audit": ([str(good), str(folder)], "results.json, got no file"),
        "damaged": ([str(good), str(folder / "damaged")], "want results of schema 3 in"),
        "old": ([str(good), str(folder / "old")], "schema 3 in .*old.*, got schema"),
        "twice": ([str(good), str(good / "results.json")], "want each run once, got .* twice"),
        "other spelling": ([str(good), str(other / ".." / "good")], "want each run once, got .* twice"),
        "empty": ([str(good), str(empty)], "at least one run"),
        "nothing in common": ([str(good), str(elsewhere)], "want runs of one dataset and target"),
        "torn scores": ([str(whole), str(torn)], "want the scores of .*torn as its audit wrote them"),
        "condition": (
            [*both, "--fail-on", "never"],
            "--fail-on: want leak or leak:GRADE .trace, moderate, severe., or worse, after the runs; got 'never'",
        ),
        "allowed": ([*both, "--allow-missing"], "--allow-missing: has no effect without --fail-on"),
        "conditions": ([*both, "--fail-on", "leak", "leak"], "want each value once"),
        "not attacked": (
            [str(good), str(audit(folder / "bare", run(questions=()))), "--fail-on", "leak"],
            "asks no question",
        ),
        "swallowed": (["--fail-on", "leak", *both], "after the runs; got"),
        "out": ([*both, "--out", str(file)], "--out: want a folder, got the file"),
        "below": ([*both, "--out", str(file / "deep" / "out")], "--out: want a folder, got the file"),
        "word": ([*both, "--colour", "red"], "--colour"),
    }


def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = bad(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for case, (words, text) in cases.items():
        out = [] if "--out" in words else ["--out", str(tmp_path / "out")]
        assert main([*words, *out]) == 2, case
        captured = capsys.readouterr()
        assert (captured.out, len(captured.err.splitlines())) == ("", 1), case
        assert captured.err.startswith("fdgpriv compare: "), case
        assert re.search(text, captured.err), case
        assert sorted(tmp_path.rglob("*")) == before, case


# The reports


def hostile() -> Comparison:
    """Two audits of the made-up results, with names that try to act."""
    noised = made_up("gaussian:epsilon=4,delta=1e-05")
    noised = noised.model_copy(update={"artifacts": noised.artifacts[1:]})
    pair = [results(defenses=("none",)), results().model_copy(update={"runs": (noised,)})]
    return compared([Audit(HOSTILE, Path("nowhere"), one) for one in pair])


def test_the_page_is_complete_and_inert() -> None:
    text, tame = Html().compared(hostile()), Html().compared(hostile().model_copy(update={"baseline": "a"}))
    found = Page(text)
    assert found.open == []
    assert found.tags == Page(tame).tags
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not [value for _, name, value in found.attributes if name in ("href", "src") or name.startswith("on")]
    text = " ".join(" ".join(found.texts).split())
    for said in ("Accuracy", "What was sent", "Epsilon", "corrected together by Holm", "−6", "domain inference"):
        assert said in text


def test_markdown_has_the_same_figures_in_whole_tables() -> None:
    text = Markdown().compared(hostile())
    assert rows(text)
    assert "<script" not in text
    assert comparison_content(hostile()).sentence.rstrip(".") in text.replace("\\", "")


def test_a_format_without_comparisons_says_so() -> None:
    assert Report.named("csv")().compared(hostile()) is None
