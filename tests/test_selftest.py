"""The self test passes on our rules, and fails where one of them is broken or a test is not calibrated."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import mostly_slow
from factories_scores import RUN_KEY, conditions

from fdgpriv.results.attack_finding import Threat
from fdgpriv.selftest import alarms, command, epsilon_alarms, false_leaks, main, stored
from fdgpriv.selftest.alarms import Check
from fdgpriv.selftest.false_leaks import NullReport, evaluations
from fdgpriv.selftest.null_reports import Evaluation, mixed, permuted
from fdgpriv.statistics import resolution, rule
from fdgpriv.statistics.questions import Answer
from fdgpriv.verdicts.attack_scores import AttackScores, to_tables
from fdgpriv.verdicts.trial_scores import TrialScores

QUICK = ["--runs", "100", "--draws", "2000", "--seed", "1"]
CLIENTS = [f"client-{i:02}" for i in range(15)]
DOMAINS = {client: ("scan", "type", "outline")[i % 3] for i, client in enumerate(CLIENTS)}


def stored_scores(secret: str, kind: str, leak: float = 0.0, proof: float = 2.5, **changes: Any) -> AttackScores:
    """One attack: units of unequal difficulty, a lead of `leak` on the artifacts and of `proof` on the positive control."""
    rng = np.random.default_rng(len(kind) + 10 * len(secret))
    hard = rng.normal(size=15)
    crossed = hard + rng.normal(size=(15, 15)) + leak * np.eye(15)
    worse = {"noise": 9.0, "mean_image": 6.0, "other_client": 0.0, "other_domain": 0.0}
    others = {name: (hard + rng.normal(size=15) - by).tolist() for name, by in worse.items()}
    whole = TrialScores(CLIENTS, CLIENTS, {"attack": crossed.diagonal().tolist(), **others})
    whole.crossed = dict(zip(CLIENTS, crossed.tolist(), strict=True))
    clients = [client for client in CLIENTS for _ in range(3)]
    base = {name: rng.normal(size=45) - worse.get(name, 0.0) for name in ("attack", *others)}
    base["attack"] = base["attack"] + proof + rng.normal(size=45)
    single = TrialScores(
        [f"{c}/1/{i}" for i, c in enumerate(clients)], clients, {k: v.tolist() for k, v in base.items()}
    )
    made: dict[str, Any] = {
        "attack": f"guess_{secret}", "task": "guess", "secret": secret, "metric": "psnr", "higher_leaks": True, "bounds": None,
        "scopes": ("domain",) if secret == "domain" else ("client", "domain"), "relevant": 1.0, "exact": False,
        "budget": "none", "single_images": True, "threat": Threat(role="server", auxiliary="none", capabilities=()),
        "kind": kind, "shared": True, "conditions": conditions({1: single, None: whole}), "domains": DOMAINS,
    }  # fmt: skip
    return AttackScores(**(made | changes))


def written(folder: Path, *scores: AttackScores) -> Path:
    """A run's folder with these scores."""
    by_name = {f"cell/attack{i}@server on {attack.kind}": attack for i, attack in enumerate(scores)}
    to_tables(RUN_KEY, by_name).save(folder)
    return folder


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the rules in a thread, where what a test replaces is replaced."""
    monkeypatch.setattr(command, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    some = [
        stored_scores(secret, kind)
        for secret in ("content", "labels", "membership", "domain")
        for kind in ("style_statistics", "model_state")
    ]
    return written(tmp_path_factory.mktemp("run"), *some)


@pytest.mark.parametrize("processes", mostly_slow([True, False], [False]))
def test_it_passes_on_scores_without_leaks(
    processes: bool, run: Path, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if not processes:
        request.getfixturevalue("in_this_process")
    figure = tmp_path / "power.svg"
    few = ["--runs", "40", "--draws", "2000", "--seed", "1", "--reports", "40"]
    assert main([*few, "--scores", str(run), "--figure", str(figure)]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if line.endswith("| pass |")]
    assert "FAIL" not in said
    assert [row.split(" | ")[0] for row in rows[:2]] == ["| client", "| domain"]
    assert [row.split(" | ")[0] for row in rows[2:6]] == ["| content", "| domain", "| labels", "| membership"]
    assert len(rows) == 2 + 4 + len(alarms.NULLS) + 2 + len(epsilon_alarms.cases()) + 2 * len(epsilon_alarms.CLAIMS)
    assert figure.read_text(encoding="utf-8").count("lead = resolution") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_broken_verdict_or_bound_fails_it(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(alarms, "rule", lambda line, rng: 0.0)
    monkeypatch.setattr(epsilon_alarms, "split_half", epsilon_alarms.uncorrected_maximum)
    monkeypatch.setattr(epsilon_alarms, "noise_multiplier", lambda epsilon, delta: 1e-3)
    assert main([*QUICK, "--scores", str(run), "--reports", "5"]) == 1
    said = capsys.readouterr().out
    assert "| verdict, clients | 100 of 100 | at most 4 | FAIL |" in said
    failed = [line for line in said.splitlines() if line.endswith("| FAIL |")]
    assert [line for line in failed if line.startswith("| Clopper-Pearson, split half: nothing released")]
    assert [line for line in failed if line.startswith("| noise as claimed: 4 | 100 of 100 | at most 0")]


def test_verdicts_without_corrections_fail(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncorrected(questions: dict[str, Any]) -> dict[str, Answer]:
        ps = {key: min(e.test.per_control["other_client"].p for e in one.values()) for key, one in questions.items()}
        return {key: Answer("leak" if p <= 0.1 else "inconclusive", "") for key, p in ps.items()}

    monkeypatch.setattr("fdgpriv.verdicts.questions.answers", uncorrected)
    found = false_leaks.false_leaks(null_reports(run, 50), np.random.default_rng(0))
    assert found.alarms > found.allowed
    assert found.false_share > 0.05
    assert not found.passed


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_too_small_resolution_fails(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real: Callable[..., float | None] = resolution.resolution
    monkeypatch.setattr(rule, "resolution", lambda *given: (real(*given) or 0.0) / 2)
    assert main([*QUICK, "--scores", str(run), "--reports", "50"]) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if "guess_content" in line and "FAIL" in line]


def null_reports(run: Path, count: int, scope: str = "client") -> list[NullReport]:
    (report,) = stored.of_run(run)
    rng = np.random.default_rng(0)
    return [NullReport.drawn(evaluations(report, scope), rng) for _ in range(count)]


@pytest.mark.parametrize("scope", ["client", "domain"])
def test_a_leak_is_gone_from_permuted_artifacts(scope: str) -> None:
    one = stored.reduced(stored_scores("content", "style_statistics", leak=10.0))
    evaluation, rng = Evaluation(one, scope), np.random.default_rng(0)
    control = "other_client" if scope == "client" else "other_domain"
    leads = []
    for _ in range(400):
        sent = permuted(DOMAINS, scope, rng)
        assert sorted(sent.values()) == CLIENTS
        assert all(DOMAINS[mine] == DOMAINS[other] for mine, other in sent.items()) == (scope == "client")
        scores = evaluation.null(sent, rng)
        leads.append(float((scores["attack"] - scores[control]).mean()))
    assert abs(np.mean(leads)) < 4 * np.std(leads) / 20
    own = evaluation.null({client: client for client in CLIENTS}, rng)
    assert own["attack"].tolist() == one.by_size[None].headline["attack"]
    assert (own["attack"] - own[control]).mean() > 5


def test_global_artifacts_are_permuted() -> None:
    names = [f"{name} {i}" for name in ("other_client", "other_domain") for i in range(3)]
    one = stored_scores("membership", "global_model", level="group", scopes=("client",))
    one.by_size[None].crossed = {name: [float(i)] * 15 for i, name in enumerate(names)}
    kept = stored.reduced(one)
    scores = Evaluation(kept, "client").null({client: client for client in CLIENTS}, np.random.default_rng(0))
    assert set(scores["attack"]) == {0.0, 1.0, 2.0}
    assert (scores["attack"] + 2 * scores["other_client"]).tolist() == [3.0] * 15


def test_a_planted_leak_replaces_drawn_clients() -> None:
    null, leaking = {"attack": np.zeros(4), "b": np.ones(4)}, {"attack": np.array([5.0, 5.0, np.nan, 5.0])}
    assert mixed(null, leaking, np.array([0.1, 0.6, 0.1, 0.3]), 0.5)["attack"].tolist() == [5.0, 0.0, 0.0, 5.0]


def test_stored_scores_are_read_as_exported(run: Path, tmp_path: Path) -> None:
    reports, path = stored.of_run(run), tmp_path / "scores.zip"
    stored.write(reports, RUN_KEY, path)
    assert stored.read(path) == reports
    first = path.read_bytes()
    stored.write(stored.read(path), RUN_KEY, path)
    assert path.read_bytes() == first
    path.write_bytes(b"{}")
    with pytest.raises(ValueError, match="want scores that --export wrote"):
        stored.read(path)


def test_the_shipped_scores_are_those_of_a_default_run() -> None:
    (report,) = stored.read(command.SHIPPED)
    assert {attack.secret for attack in report.values()} >= {
        "domain",
        "labels",
        "membership",
        "content",
        "average_look",
    }
    assert {len(attack.by_size[None].clients) for attack in report.values()} == {30}
    assert all(attack.by_size[None].crossed and attack.undefended is not None for attack in report.values())


def test_a_check_that_cannot_fail_fails() -> None:
    assert Check("ours", 40, 1000, 40).passed
    assert not Check("ours", 41, 1000, 40).passed
    assert Check("theirs", 41, 1000, 40, mistaken=True).passed
    assert not Check("theirs", 40, 1000, 40, mistaken=True).passed


def test_the_seed_decides() -> None:
    def found(seed: int) -> int:
        return alarms.verdict_alarms(alarms.clients, alarms.resample_images, 20, np.random.default_rng(seed))

    assert found(3) == found(3)
    assert len({found(seed) for seed in range(4)}) > 1


def test_wrong_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path)
    for words in (
        *("--runs 0", "--draws 3", "--seed x", "--reports 0", "--figure power.txt"),
        *(f"--scores {nowhere}", f"--scores {nowhere} --full", f"--export {nowhere} x --seed 1"),
    ):
        assert main(words.split()) == 2
    monkeypatch.setattr(command, "SHIPPED", tmp_path / "scores.zip")
    capsys.readouterr()
    assert main([]) == 2
    assert "want scores of a default run" in capsys.readouterr().err
