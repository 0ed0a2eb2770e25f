"""The comparison of audits: what changed is computed by pairs, corrected once, and fails a build only by its rule."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _golden import assert_golden
from _results import HOSTILE, measured, results
from _results import run as made_up
from factories_findings import figure, finding, question
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown
from scipy import stats
from test_reports import Page, rows

from fdgpriv.compare import main
from fdgpriv.compare.audits import Audit, read
from fdgpriv.compare.comparison import compared
from fdgpriv.compare.matching import matched
from fdgpriv.report import Report
from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.change import Change
from fdgpriv.results.comparison import Comparison, LaterAudit
from fdgpriv.results.finding import Results
from fdgpriv.results.run import ArtifactRow, EpsilonMeasured, ImagesByDomain, Privacy, Run
from fdgpriv.results.score_tables import RunKey, ScoreTables
from fdgpriv.results.utility_finding import Utility
from fdgpriv.statistics.change import difference_of_intervals, p_of_few, p_of_pairs
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Verdict
from fdgpriv.training import Cell
from fdgpriv.verdicts.attack_scores import AttackScores, to_tables
from fdgpriv.verdicts.trial_scores import Condition, TrialScores

ATTACK = "style_membership"
OLD = (0.50, 0.52, 0.55, 0.48, 0.51, 0.60, 0.47, 0.53, 0.50, 0.49, 0.56, 0.52)
RISES = (0.20, 0.15, 0.18, 0.22, 0.19, 0.21, 0.16, 0.24, 0.17, 0.20, 0.23, 0.19)
NEW = tuple(old + rise for old, rise in zip(OLD, RISES, strict=True))
PROVED = Privacy(
    epsilon_proved=4.0, delta=1e-5, statement="noise", verdict="consistent",
    epsilon_measured=EpsilonMeasured(one_run=0.2, one_run_ceiling=1.5),
)  # fmt: skip


def run(accuracy: float = 0.6, verdict: Verdict = "no_leak_found", auc: float = 0.55, **given: Any) -> Run:
    """A run with one attack by the server, and the question that it answers."""
    useful = Utility(
        source_accuracy=measured(0.9, 0.02, 300, "higher_better"),
        target_accuracy=measured(accuracy, 0.03, 900, "higher_better"),
        calibration_error=measured(0.1, 0.01, 900, "lower_better"),
    )
    usual = {"utility": useful, "attacks": (finding(ATTACK, "auc", auc, verdict),), "questions": (question(verdict),)}
    return made_up("none").model_copy(update={**usual, "claims": (), "figures": (), **given})


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
    names = [f"client-{i:02d}" for i in range(len(scores))]
    return AttackScores(
        attack=ATTACK, task="members", secret="membership", metric="auc", higher_leaks=True, bounds=(0.0, 1.0),
        scopes=("client",), relevant=0.1, exact=False, budget="", single_images=False,
        threat=Threat(role="server", auxiliary="A3"), kind="style_statistics", shared=True,
        conditions={Condition(): TrialScores(units=names, clients=names, headline={"attack": list(scores)})},
    )  # fmt: skip


def only(*folders: Path) -> LaterAudit:
    (later,) = compared(read(folders)).later
    return later


def target(later: LaterAudit) -> Change:
    return next(one.change for one in later.accuracies if one.images == "target")


def attack(later: LaterAudit) -> Change:
    return later.runs[0].attacks[0].change


# Which runs are compared


@pytest.mark.parametrize(
    ("before", "after", "differs", "pairs"),
    [
        ([run(), run(seed=1)], [run(seed=7), run(seed=1), run()], set(), [(0, 2), (1, 1)]),
        ([run()], [run(method="stablefdg:rounds=5")], set(), [(0, 0)]),
        (
            [run(), run(method="stablefdg:rounds=5")],
            [run(method="stablefdg:rounds=5"), run(method="stablefdg:rounds=9")],
            set(),
            [(1, 0), (0, 1)],
        ),
        ([run()], [run(defense="gaussian")], {"defense"}, [(0, 0)]),
        ([run()], [run(seed=4)], {"seed"}, [(0, 0)]),
        ([run()], [run(method="fedavg")], {"method"}, [(0, 0)]),
    ],
    ids=["all fields", "settings", "several settings", "defense", "seed", "method"],
)
def test_runs_match_in_all_fields_or_all_but_one(
    before: list[Run], after: list[Run], differs: set[str], pairs: list[tuple[int, int]]
) -> None:
    found = matched(before, after)
    assert {"method", "dataset", "target", "seed", "defense"} - set(found.by) == differs
    assert list(found.pairs) == [(before[i], after[j]) for i, j in pairs]


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


# Accuracy


def test_several_seeds_are_compared_by_pairs(tmp_path: Path) -> None:
    old, new = [0.60, 0.64, 0.58, 0.62], [0.50, 0.55, 0.46, 0.53]
    folders = [
        audit(tmp_path / name, *(run(accuracy, seed=seed) for seed, accuracy in enumerate(accuracies)))
        for name, accuracies in (("a", old), ("b", new))
    ]
    change = target(only(*folders))
    gaps = np.subtract(new, old)
    assert change.difference.value == pytest.approx(-0.10)
    assert change.difference.ci95 == pytest.approx(stats.t.interval(0.95, 3, gaps.mean(), stats.sem(gaps)))
    assert change.p == pytest.approx(stats.ttest_rel(new, old).pvalue)
    assert (change.basis, change.difference.n, change.outcome) == ("paired over 4 seeds", 4, "worse")
    assert (change.before.value, change.after.value) == (pytest.approx(0.61), pytest.approx(0.51))


def test_targets_of_one_seed_are_pairs(tmp_path: Path) -> None:
    old = [run(0.5, target=name) for name in ("scan", "blend", "type")]
    new = [run(0.5 + gap, target=one.target) for one, gap in zip(old, (0.1, 0.2, 0.3), strict=True)]
    change = target(only(audit(tmp_path / "a", *old), audit(tmp_path / "b", *new)))
    assert (change.basis, change.difference.value) == ("paired over 3 targets", pytest.approx(0.2))
    again = [one.model_copy(update={"seed": 1}) for one in (*old, *new)]
    both = audit(tmp_path / "c", *old, *again[:3]), audit(tmp_path / "d", *new, *again[3:])
    assert target(only(*both)).basis == "paired over 2 seeds"


def test_two_intervals_are_subtracted_square_and_add() -> None:
    before = Measured(value=0.5, ci95=(0.4, 0.8), n=9, direction="higher_better")
    after = Measured(value=0.9, ci95=(0.5, 1.0), n=7, direction="higher_better")
    gap, _ = difference_of_intervals(before, after)
    assert gap.ci95 == pytest.approx((0.4 - np.hypot(0.4, 0.3), 0.4 + np.hypot(0.1, 0.1)))
    assert gap.n == 7
    gap, p = difference_of_intervals(measured(0.60, 0.03), measured(0.52, 0.03))
    half = np.hypot(0.03, 0.03)
    assert gap.ci95 == pytest.approx((-0.08 - half, -0.08 + half))
    assert p == pytest.approx(2 * stats.norm.sf(0.08 / (half / stats.norm.ppf(0.975))))
    assert difference_of_intervals(before, before)[1] == 1.0
    bare = after.model_copy(update={"ci95": None})
    assert difference_of_intervals(before, bare)[0].reason == "want an interval of both"


def test_p_of_pairs_at_its_edges() -> None:
    assert p_of_pairs(np.zeros(12)) == p_of_few(np.zeros(3)) == 1.0
    assert p_of_pairs(np.full(6, -0.2)) == pytest.approx(2 / 2**6)
    assert p_of_few(np.full(3, -0.2)) == pytest.approx(2 / 2**3)
    assert p_of_pairs(np.ones(1)) is p_of_few(np.ones(1)) is None
    gaps = np.random.default_rng(0).normal(0.5, 1.0, 15)
    assert p_of_pairs(gaps) == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue)
    assert p_of_pairs(-gaps) == pytest.approx(p_of_pairs(gaps))


# Leakage


def test_scores_of_equal_clients_are_compared_by_pairs(tmp_path: Path) -> None:
    later = only(audit(tmp_path / "a", run(), scores=OLD), audit(tmp_path / "b", run(auc=0.7), scores=NEW))
    change = attack(later)
    assert change.difference.value == pytest.approx(np.mean(RISES))
    ends = stats.t.interval(0.95, 11, np.mean(RISES), stats.sem(RISES))
    assert change.difference.ci95 == pytest.approx(ends)
    assert (change.basis, change.outcome) == ("paired over 12 clients", "worse")
    assert (change.before.value, change.after.value) == (0.55, 0.7)  # as the reports have them
    assert attack(only(tmp_path / "b", tmp_path / "a")).outcome == "better"


INTERVALS = "two intervals, taken as independent: "


@pytest.mark.parametrize(
    ("after", "config", "digests", "basis"),
    [
        ({"seed": 1}, {}, [], INTERVALS + "the seeds differ"),
        ({"images": None}, {}, [], INTERVALS + "the clients or their images differ"),
        ({}, {"setup": {"stablefdg": {"clients": 9}}}, [], INTERVALS + "the clients or their images differ"),
        ({}, {"preset": "quick"}, [], INTERVALS + "the presets differ"),
        ({}, {"scores": ()}, [], INTERVALS + "no scores of the same clients are stored"),
        ({}, {}, ["1" * 64, "2" * 64], INTERVALS + "the images or labels of the dataset differ"),
        ({}, {}, ["1" * 64, None], "paired over 12 clients"),  # of a version that computed no digest
    ],
)
def test_other_clients_are_compared_by_intervals(
    after: dict[str, Any], config: dict[str, Any], digests: list[str | None], basis: str, tmp_path: Path
) -> None:
    old = audit(tmp_path / "a", run(), scores=OLD)
    new = audit(tmp_path / "b", run(auc=0.7, **after), **{"scores": NEW, **config})
    for folder, sha256 in zip((old, new), digests, strict=False):
        read_back = Results.load(folder / "results.json")
        read_back.model_copy(update={"dataset": read_back.dataset.model_copy(update={"sha256": sha256})}).save(folder)
    later = only(old, new)
    assert attack(later).basis == basis
    if basis.startswith(INTERVALS):
        half = np.hypot(0.07, 0.07)
        assert attack(later).difference.ci95 == pytest.approx((0.15 - half, 0.15 + half))
    assert ("images or labels of digits: SHA-256 11111111… → 22222222…" in later.differs) == ("labels" in basis)


def test_where_lower_leaks_a_fall_is_worse(tmp_path: Path) -> None:
    folders = [
        audit(
            tmp_path / str(value),
            run(attacks=(finding(ATTACK, "l1", 0.0, "leak", metrics={"l1": figure(value, 0.01, "lower_leaks")}),)),
        )
        for value in (0.5, 0.3)
    ]
    assert attack(only(*folders)).outcome == "worse"


def test_attacks_that_are_not_compared(tmp_path: Path) -> None:
    errors = {"max_abs_error": figure(1), "recovered": figure(1)}
    exact = finding("exact_recovery", "max_abs_error", 0.1, "leak", metrics=errors)
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
        return one.shown(one.questions[0]).attack

    before = tried("a", 0.5, 0.5)
    assert shown(before, tried("b", 0.51, 0.5)) == ATTACK
    assert shown(before, tried("c", 0.5, 0.9)) == "attack_1"


def test_all_tests_are_corrected_together(tmp_path: Path) -> None:
    """A fall with p = .035 is worse only where it is the only test; here it is one of six."""
    found = compared(read([audit(tmp_path / name, run(at)) for name, at in (("a", 0.6), ("b", 0.555), ("c", 0.6))]))
    first = target(found.later[0])
    assert first.p == pytest.approx(0.0377, abs=1e-3)
    assert (found.tests, first.p_holm, first.outcome) == (6, pytest.approx(6 * first.p), "not_shown")
    assert first.corrected(first.p).outcome == "worse"


# What fails a build


FAILED = {"verdict": "inconclusive", "inconclusive_because": "failed", "reason": "failed: a bug"}
LOST = {"utility": None, "attacks": (), "questions": ()}
FAILING, ADDED = question("no_leak_found").model_copy(update=FAILED), question("leak", adversary="client")
KEPT = run(seed=1)

# By name: the baseline, the later audit, the conditions that fail, and those that do if answers may be missing.
GATE: dict[str, tuple[list[Run], list[Run], str, str]] = {
    "equal": ([run()], [run()], "", ""),
    "leak, none before": ([run()], [run(verdict="leak")], "leak worse", "leak worse"),
    "leak, open before": ([run(verdict="inconclusive")], [run(verdict="leak")], "leak worse", "leak worse"),
    "leak as before": ([run(verdict="leak")], [run(verdict="leak")], "leak", "leak"),
    "no leak any more": ([run(verdict="leak")], [run()], "", ""),
    "open, leak before": ([run(verdict="leak")], [run(verdict="inconclusive")], "", ""),
    "accuracy fell": ([run(0.6)], [run(0.4)], "worse", "worse"),
    "accuracy rose": ([run(0.4)], [run(0.6)], "", ""),
    "diverged": ([run(), KEPT], [run(**LOST, diverged="NaN"), KEPT], "leak worse", "worse"),
    "failed": ([run(), KEPT], [run(**LOST, failed="client-03: no memory"), KEPT], "leak worse", "worse"),
    "diverged before, too": ([run(**LOST), KEPT], [run(**LOST), KEPT], "", ""),
    "attack failed": ([run()], [run(questions=(FAILING,))], "leak worse", ""),
    "not applicable": ([run()], [run(verdict="not_applicable")], "leak worse", ""),
    "not asked": ([run(), KEPT], [run(questions=(), attacks=()), KEPT], "leak worse", ""),
    "not run": ([run(), KEPT], [KEPT], "leak worse", ""),
    "asked in addition": ([run()], [run(questions=(ADDED, question("no_leak_found")))], "leak", "leak"),
}


def test_what_fails_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed in each case is in golden/compare.txt."""
    monkeypatch.chdir(tmp_path)
    lines = []
    for name, (before, after, failing, without_missing) in GATE.items():
        folders = [str(audit(Path(name) / end, *runs)) for end, runs in (("before", before), ("after", after))]
        for condition in ("leak", "worse"):
            assert main([*folders, "--fail-on", condition]) == (4 if condition in failing else 0), (name, condition)
            printed = capsys.readouterr()
            lines += [printed.out, printed.err] if condition == "leak" else [printed.err]
            if failing != without_missing:
                code = main([*folders, "--fail-on", condition, "--allow-missing"])
                assert code == (4 if condition in without_missing else 0), (name, condition)
                assert "--allow-missing: " in capsys.readouterr().err
    assert main([str(Path("accuracy fell", end)) for end in ("before", "after")]) == 0  # fails only on request
    assert_golden("compare.txt", "".join(lines))


@pytest.mark.parametrize(("grade", "codes"), [("trace", [4, 0, 0]), ("moderate", [4, 4, 0]), ("severe", [4, 4, 4])])
def test_a_build_fails_from_a_grade_on(grade: str, codes: list[int], tmp_path: Path) -> None:
    leak = question("leak").model_copy(update={"grade": grade, "grade_interval": ("trace", "severe")})
    folders = [str(audit(tmp_path / "a", run())), str(audit(tmp_path / "b", run(questions=(leak,))))]
    assert [main([*folders, "--fail-on", f"leak:{least}"]) for least in ("trace", "moderate", "severe")] == codes


def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, other, file = audit(tmp_path / "good", run()), audit(tmp_path / "other", run()), tmp_path / "file"
    file.write_text("precious")
    for name, text in {"damaged": '{"schema": 2, "runs"', "old": '{"schema": 1, "runs": []}'}.items():
        audit(tmp_path / name, run())
        (tmp_path / name / "results.json").write_text(text, encoding="utf-8")
    empty, elsewhere = audit(tmp_path / "empty"), audit(tmp_path / "elsewhere", run(target="scan"))
    bare = audit(tmp_path / "bare", run(questions=()))
    torn, whole = audit(tmp_path / "torn", run(), scores=OLD), audit(tmp_path / "whole", run(), scores=OLD)
    (torn / "scores.parquet").write_text("{}", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for words, text in (
        ([good], "at least two runs, the baseline first, got 1"),
        ([good, tmp_path / "gone"], "gone, which does not exist"),
        ([good, file], "got the file"),
        ([good, tmp_path], "results.json, got no file"),
        ([good, tmp_path / "damaged"], "want results of schema 3 in"),
        ([good, tmp_path / "old"], "schema 3 in .*old.*, got schema"),
        ([good, good / "results.json"], "want each run once, got .* twice"),
        ([good, other / ".." / "good"], "want each run once, got .* twice"),
        ([good, empty], "at least one run"),
        ([good, elsewhere], "want runs of one dataset and target"),
        ([whole, torn], "want the scores of .*torn as its audit wrote them"),
        ([good, other, "--fail-on", "never"], "want leak or leak:GRADE .*, or worse, after the runs; got 'never'"),
        ([good, other, "--allow-missing"], "--allow-missing: has no effect without --fail-on"),
        ([good, other, "--fail-on", "leak", "leak"], "want each value once"),
        ([good, bare, "--fail-on", "leak"], "asks no question"),
        (["--fail-on", "leak", good, other], "after the runs; got"),
        ([good, other, "--out", file], "--out: want a folder, got the file"),
        ([good, other, "--out", file / "deep" / "out"], "--out: want a folder, got the file"),
        ([good, other, "--colour", "red"], "--colour"),
    ):
        out = [] if "--out" in words else ["--out", tmp_path / "out"]
        assert main(list(map(str, [*words, *out]))) == 2, text
        captured = capsys.readouterr()
        assert (captured.out, len(captured.err.splitlines())) == ("", 1), text
        assert re.search(f"^fdgpriv compare: .*{text}", captured.err)
        assert sorted(tmp_path.rglob("*")) == before, text


# The reports


def row(verb: str, size: int, kind: str = "style_statistics") -> ArtifactRow:
    """A line of the ledger: what each client sends in a round."""
    return ArtifactRow(kind=kind, verb=verb, **{"from": "client"}, to="server", per_client_per_round_bytes=size,
                       shape="", dtype="", times=10, visible_to=())  # fmt: skip


def test_reports_say_all_that_changed(tmp_path: Path) -> None:
    """Pairs of three seeds, more noise in all but one, a leak more, other bytes, and runs that only one audit has."""
    sent = (row("style", 100), row("fit", 20), row("fit", 5, "model_update"))
    later = (row("style", 300), row("fit", 5, "model_update"), row("fit", 7, "sample_count"))
    method = "stablefdg:rounds=5"
    old = [run(0.6 + seed / 100, artifacts=sent, seed=seed) for seed in range(3)]
    new = [run(0.5, "leak", 0.7, artifacts=later, seed=s, method=method) for s in range(3)]
    new[:2] = [one.model_copy(update={"privacy": PROVED}) for one in new[:2]]
    before = audit(tmp_path / "before", *old, run(seed=7), scores=OLD)
    after = audit(tmp_path / "after", *new, run(target="scan"), scores=NEW, device="cuda")
    out = tmp_path / "new" / "out"
    assert main([str(before), str(after), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["compare.html", "compare.json", "compare.md"]
    found = Comparison.model_validate_json((out / "compare.json").read_bytes(), strict=True)
    assert found == compared(read([before, after]))
    assert json.loads((out / "compare.json").read_text(encoding="utf-8"))["later"][0]["folder"] == str(after)
    changed = found.later[0].runs[0].sent
    sizes = {one.kind: (one.bytes_before, one.bytes_after, one.times_before, one.times_after) for one in changed}
    assert sizes == {"style_statistics": (120, 300, 20, 10), "sample_count": (None, 7, None, 10)}
    assert_golden("compare.md", (out / "compare.md").read_text().replace(f"{tmp_path}/", ""))


def fewer_images() -> ImagesByDomain:
    """The images of the usual run, of which each domain trains on five fewer."""
    usual = run().images
    assert usual is not None
    domains = {name: count.model_copy(update={"train": count.train - 5}) for name, count in usual.domains.items()}
    return usual.model_copy(update={"train": usual.train - 15, "domains": domains})


@pytest.mark.parametrize(
    ("before", "after", "images", "warning"),
    [
        ({}, {"preset": "quick"}, None, "preset: default → quick"),
        ({}, {"setup": {"stablefdg": {"clients": 30}}}, None, ""),  # the other did not record them
        ({"images": 20}, {"images": 600}, None, "images: 20 → 600"),
        (
            {"setup": {"stablefdg": {"clients": 12, "partition": "dirichlet"}}},
            {"setup": {"stablefdg": {"clients": 30, "partition": "dirichlet"}}},
            None,
            "clients: 12 → 30",
        ),
        ({}, {}, fewer_images(), "images of clients: 1,215 train, 135 held out → 1,200 train, 135 held out"),
        ({}, {"threats": ["server"]}, None, ""),
        ({}, {"device": "cuda"}, None, ""),
    ],
)
def test_other_presets_clients_or_images_are_not_comparable(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    before: dict[str, Any],
    after: dict[str, Any],
    images: ImagesByDomain | None,
    warning: str,
) -> None:
    """They are printed side by side under a line that says so; nothing is tested, and nothing gates."""
    worse = run(0.3, "leak", 0.9)
    worse = worse if images is None else worse.model_copy(update={"images": images})
    folders = [audit(tmp_path / "a", run(), scores=OLD, **before), audit(tmp_path / "b", worse, scores=NEW, **after)]
    code = main([*map(str, folders), "--out", str(tmp_path / "out"), "--fail-on", "worse", "leak"])
    out, err = capsys.readouterr()
    text = (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    later = only(*folders)
    if warning:
        assert code == 0
        assert out.splitlines()[0] == f"not comparable: {warning}"
        assert f"gates nothing: not comparable: {warning}" in err
        assert text.splitlines()[2] == f"**Not tested.** Not comparable: {warning}."
        assert {change.outcome for change in later.changes()} == {"not_tested"}
        assert (later.worse, later.moved_to_leak()) == (False, 0)
        assert "moved to leak" not in out + text
    else:
        assert code == 4
        assert "not comparable" not in out + err + text
        assert (later.worse, later.moved_to_leak()) == (True, 1)


def test_hostile_names_are_only_text() -> None:
    noised = made_up("gaussian:epsilon=4,delta=1e-05")
    noised = noised.model_copy(update={"artifacts": noised.artifacts[1:]})
    pair = [results(defenses=("none",)), results().model_copy(update={"runs": (noised,)})]
    hostile = compared([Audit(HOSTILE, Path("nowhere"), one) for one in pair])
    found, tame = Page(Html().compared(hostile)), Page(Html().compared(hostile.model_copy(update={"baseline": "a"})))
    assert found.open == []
    assert found.tags == tame.tags
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not [value for _, name, value in found.attributes if name in ("href", "src") or name.startswith("on")]
    for heading in ("Accuracy", "Epsilon", "Artifact"):
        assert heading in found.texts
    text = Markdown().compared(hostile)
    assert rows(text)
    assert "<script" not in text
    assert Report.named("csv")().compared(hostile) is None
