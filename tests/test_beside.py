"""Several runs in one report: methods named with fields of their own, figures by pairs, claims that want more than one run."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _results import measured, missing
from conftest import audits_of, fit, shortened
from factories_core import crossing
from factories_core import style as shared
from factories_findings import finding
from factories_scores import conditions
from scipy import stats
from test_judge import FAILS, LOWER, Reader, of

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.attack import Attack
from fdgpriv.audit import main
from fdgpriv.claims import Case, claims
from fdgpriv.claims.run_comparison import Compared, RunComparison, difference, settings_of
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.federation.transcript import Record
from fdgpriv.results.attack_finding import AttackFinding, Threat
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Claim
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Verdict
from fdgpriv.threat import threat
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores

# Methods with fields of their own


def field(config: AuditConfig, spec: str, name: str) -> Any:
    return settings_of(config.method(spec))[name]


def test_fields_override_the_call_and_it_the_preset() -> None:
    config = AuditConfig(preset="quick", settings={"rounds": "7", "lr": "0.5"})
    assert field(config, "stablefdg:rounds=3,received=0", "rounds") == 3
    assert field(config, "stablefdg:rounds=3,received=0", "received") == 0
    assert field(config, "stablefdg:rounds=3,received=0", "lr") == 0.5
    assert field(config, "stablefdg", "rounds") == 7
    assert field(config, "stablefdg", "exploration") == 1.0  # the preset's
    assert field(config, "stablefdg:explore_layers=layer1+layer2,p=1", "explore_layers") == ("layer1", "layer2")


def test_one_method_with_different_fields_is_several_methods() -> None:
    specs = ("stablefdg:received=0", "stablefdg", "stablefdg:received=3")
    assert AuditConfig(methods=specs).checked().methods == specs


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        ("stablefdg:colour=red", "stablefdg: want a field of .*received.*'colour'"),
        ("stablefdg:received", "want name:field=value,field=value; got 'stablefdg:received'"),
        ("stablefdg:received=many", "stablefdg.received: want a whole number of at least 0, got 'many'"),
        ("nobody:received=1", "got 'nobody'"),
        ("stablefdg:received=3 stablefdg:received=3", "--method: want each value once"),
        ("fedavg stablefdg stablefdg:received=1", "once, got stablefdg and stablefdg:received=1"),
        ("all stablefdg:received=3", "got 'all'"),
    ],
)
def test_what_is_no_method_is_refused(specs: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        AuditConfig(methods=tuple(specs.split())).checked()


# Figures by pairs


def attack_scores(values: Mapping[str, Sequence[float]], attack: Attack | None = None, **given: Any) -> AttackScores:
    """TrialScores on whole clients, several units of each."""
    units = [f"{client}/{i}" for client, each in values.items() for i in range(len(each))]
    clients = [client for client, each in values.items() for _ in each]
    scores = TrialScores(
        units=units, clients=clients, headline={"attack": [v for each in values.values() for v in each]}
    )
    return of(attack or Reader(), "client", **{"conditions": conditions({None: scores}), **given})


def test_a_difference_is_by_pairs_of_clients() -> None:
    rng = np.random.default_rng(0)
    mine = {name: rng.normal(size=count).tolist() for name, count in (("a", 3), ("b", 1), ("c", 2), ("d", 2))}
    theirs = {name: rng.normal(size=len(each)).tolist() for name, each in mine.items()}
    found = difference(attack_scores(mine), attack_scores(dict(reversed(theirs.items()))))
    each = [np.mean([x - y for x, y in zip(mine[name], theirs[name], strict=True)]) for name in mine]
    ends = stats.t.interval(0.95, len(each) - 1, np.mean(each), stats.sem(each))
    assert found.value == pytest.approx(np.mean(each))
    assert found.ci95 == pytest.approx(ends)
    assert (found.n, found.direction) == (4, "higher_leaks")
    assert difference(attack_scores(mine, LOWER), attack_scores(theirs, LOWER)).direction == "lower_leaks"


def test_only_units_of_both_runs_are_compared() -> None:
    found = difference(
        attack_scores({"a": [1.0], "b": [2.0], "c": [9.0]}), attack_scores({"b": [1.5], "d": [0.0], "a": [0.0]})
    )
    assert (found.value, found.n) == (0.75, 2)
    alone = difference(attack_scores({"a": [1.0]}), attack_scores({"a": [0.5]}))
    assert (alone.value, alone.ci95, alone.n) == (0.5, None, 1)
    assert alone.reason is not None


def test_what_cannot_be_compared_is_null_with_its_reason() -> None:
    for theirs, why in (
        (attack_scores({"b": [1.0]}), "no unit in common"),
        (attack_scores({}, conditions=conditions({}), not_applicable="it shares none"), "it shares none"),
        (attack_scores({"a": [1.0]}, level="image"), "single images"),
        (of(Reader(), conditions=conditions({1: FAILS})), "no unit in common"),
    ):
        for found in (difference(attack_scores({"a": [1.0]}), theirs), difference(theirs, attack_scores({"a": [1.0]}))):
            assert found.value is None
            assert why in str(found.reason)


@pytest.mark.parametrize(
    ("mine", "theirs", "kind"),
    [
        pytest.param("hfedf", "fedavg:network=inception", "global_model", marks=pytest.mark.slow),
        pytest.param("hfedf", "hfedf:embedding=random", "global_model", marks=pytest.mark.slow),
        ("stablefdg", "stablefdg:received=3", "style_statistics"),
    ],
)
def test_two_methods_are_asked_about_the_same_images(
    tiny: Dataset, monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str, kind: str
) -> None:
    """What the pairs rest on: clients, targets and membership candidates hang on the seed, not on the method."""
    monkeypatch.setattr(TrainingSimulator, "trained", lambda self, sample, rng: sample.received_model)
    asked: list[list[tuple[str, GroundTruth]]] = []
    for spec in (mine, theirs):
        evaluator = fit(shortened(tiny, 32), clients=6, method=spec, settings={"rounds": "2"}).evaluator()
        target, sizes = evaluator.series(kind), (1, None) if kind == "global_model" else (1, 5, None)
        trials = [
            trial
            for role in (("client", "third_party") if kind == "global_model" else ("client",))
            for one in evaluator.adversaries(target, threat(role), sizes)
            for trial in one.trials
        ]
        asked.append(sorted(((trial.unit, trial.truth) for trial in trials), key=lambda pair: pair[0]))
    here, there = asked
    assert len(here) > 12
    assert [unit for unit, _ in here] == [unit for unit, _ in there]
    for (_, one), (_, other) in zip(here, there, strict=True):
        assert torch.equal(one.pool[one.membership_candidates], other.pool[other.membership_candidates])
        assert torch.equal(one.members, other.members)
        assert torch.equal(one.images, other.images)


# Claims that want several runs


def row(verdict: Verdict, value: float, attack: str = "membership", **given: Any) -> AttackFinding:
    """A finding of a client: membership in the model that it was sent, or another attack on styles it was sent."""
    settings = {"artifact": "global_model:group"} if attack == "membership" else {}
    whole: dict[str, Any] = {"threat": Threat(role="client", auxiliary="A3"), **settings, **given}
    return finding(attack, "auc", value, verdict, **whole)


def failing(row: AttackFinding) -> AttackFinding:
    """The same, its positive control without success."""
    weak = row.positive_control.model_copy(update={"p": 0.5, "succeeded": False})
    return row.model_copy(update={"positive_control": weak})


def beside(
    spec: str, settings: Mapping[str, object], *compared: Compared, records: Sequence[Record] = (), method: str = ""
) -> RunComparison:
    return RunComparison(spec, method or spec.partition(":")[0], settings, records, compared)


def claim(method: str, id: str, settings: Mapping[str, object], *others: RunComparison, **given: Any) -> Claim:
    case = Case(given.get("attacks", ()), given.get("records", ()), {}, method, settings, others)
    (found,) = (one for one in claims(method, case) if one.id == id)
    return found


LEARNED, RANDOM = {"rounds": 32, "embedding": "learned"}, {"rounds": 32, "embedding": "random"}
QUIET, LEAKS, UNSURE = row("no_leak_found", 0.51), row("leak", 0.58), row("inconclusive", 0.52)
INCEPTION = {"rounds": 16, "local_epochs": 2, "network": "inception"}


@pytest.mark.parametrize(
    ("mine", "verdict"),
    [(QUIET, "supported"), (LEAKS, "refuted"), (UNSURE, "undecided")],
    ids=["quiet", "leaks", "unsure"],
)
def test_membership_from_another_s_model_stands_beside_fedavg_s(mine: AttackFinding, verdict: str) -> None:
    fedavg = Compared(mine, row("leak", 0.66), measured(-0.12, 0.03, 15))
    found = claim("hfedf", "H-H1", LEARNED, beside("fedavg:network=inception", INCEPTION, fedavg), attacks=[mine])
    assert found.verdict == verdict
    assert found.evidence[1] == (
        "fedavg:network=inception (rounds=16, local_epochs=2): membership by client on global_model:group: auc 0.66 "
        "[0.59, 0.73]; this run minus it: -0.12 [-0.15, -0.09] paired over 15 clients"
    )
    assert found.evidence[-1].startswith("Local-only: AUC 0.5 by construction")
    assert "--method" not in found.reason


def test_the_call_that_adds_the_baseline_is_named() -> None:
    alone = claim("hfedf", "H-H1", LEARNED, attacks=[QUIET])
    other = Compared(QUIET, LEAKS, measured(-0.07, 0.03))
    with_another = claim("hfedf", "H-H1", LEARNED, beside("fedavg", {"network": "backbone"}, other), attacks=[QUIET])
    for found in (alone, with_another):
        assert (found.verdict, "--method hfedf fedavg:network=inception" in found.reason) == ("supported", True)
    assert len(with_another.evidence) == len(alone.evidence) + 1


@pytest.mark.parametrize(
    ("mine", "theirs", "gain", "verdict", "said"),
    [
        (QUIET, QUIET, measured(0.01, 0.03), "undecided", "to within 0.05 of AUC; the sentence claims more"),
        (LEAKS, LEAKS, measured(-0.01, 0.03), "undecided", "to within 0.05 of AUC; the sentence claims more"),
        (LEAKS, QUIET, measured(0.07, 0.03), "refuted", "members are found better"),
        (LEAKS, QUIET, measured(0.02, 0.01), "refuted", "members are found better"),
        (QUIET, QUIET, measured(0.07, 0.03), "undecided", "members are not found"),
        (QUIET, LEAKS, measured(-0.07, 0.03), "undecided", "random embeddings change membership"),
        (QUIET, QUIET, measured(0.01, 0.06), "undecided", "inconclusive: the interval holds 0"),
        (QUIET, failing(UNSURE), measured(0.01, 0.03), "undecided", "fails on its positive control"),
        (QUIET, QUIET, missing("no unit in common"), "undecided", "no unit in common"),
    ],
    ids=["equal", "equal leaks", "more", "little more", "more of nothing", "less", "wide", "weak", "null"],
)
def test_random_embeddings_decide_by_what_learned_ones_add(
    mine: AttackFinding, theirs: AttackFinding, gain: Measured, verdict: str, said: str
) -> None:
    found = claim("hfedf", "H-H4", LEARNED, beside("hfedf:embedding=random", RANDOM, Compared(mine, theirs, gain)))
    assert (found.verdict, said in found.reason) == (verdict, True)
    assert [line.partition(":")[0] for line in found.evidence] == [
        *("embeddings learned", "random", "learned minus random")
    ]
    away = gain
    if gain.value is not None and gain.ci95 is not None:
        away = measured(-gain.value, round(gain.ci95[1] - gain.value, 6))
    turned = claim("hfedf", "H-H4", RANDOM, beside("hfedf", LEARNED, Compared(theirs, mine, away)))
    assert (turned.verdict, turned.reason, turned.evidence) == (found.verdict, found.reason, found.evidence)


def test_other_differences_decide_nothing() -> None:
    one = Compared(LEAKS, QUIET, measured(0.07, 0.03))
    others = (
        beside("hfedf:embedding=random,rounds=4", {**RANDOM, "rounds": 4}, one),
        beside("pfedhn", RANDOM, one),
        beside("hfedf:embedding=random", RANDOM, replace(one, mine=row("leak", 0.6, "identification"))),
    )
    for settings in (LEARNED, {"rounds": 32, "embedding": "autoencoder"}, {}):
        found = claim("hfedf", "H-H4", settings, *others)
        assert found.verdict == "undecided"
        assert "--method hfedf hfedf:embedding=random" in found.reason


def passing(received: int) -> tuple[Record, ...]:
    """Two rounds in which each of six clients is sent the styles of the next ones."""
    names = [f"client-{i}" for i in range(6)]
    return tuple(
        crossing(shared(origin, turn), sender, receiver)
        for turn in range(2)
        for i, origin in enumerate(names)
        for sender, receiver in [
            *([(origin, SERVER)] if received else []),
            *[(SERVER, names[(i + 1 + k) % 6]) for k in range(received)],
        ]
    )


def sent(n: int) -> dict[str, object]:
    return {"rounds": 2, "received": n}


def more(three: AttackFinding, one: AttackFinding, gain: Measured, mine: int = 3) -> Claim:
    """H-S6 in the ledger of the run that is sent `mine` styles; `gain` is that of three less that of one."""
    away = measured(-(gain.value or 0), 0.03, direction=gain.direction)
    told = {1: Compared(three, one, gain), 3: Compared(one, three, away)}
    runs = {
        n: beside(f"stablefdg:received={n}", sent(n), *([told[n]] if n else []), records=passing(n)) for n in (0, 1, 3)
    }
    others = [run for n, run in runs.items() if n != mine]
    return claim("stablefdg", "H-S6", sent(mine), *others, records=passing(mine))


def style(verdict: Verdict, value: float, attack: str = "style_membership") -> AttackFinding:
    return row(verdict, value, attack)


QUIET_STYLE, LEAKY_STYLE = style("no_leak_found", 0.5), style("leak", 0.6)


@pytest.mark.parametrize(
    ("three", "one", "gain", "verdict", "said"),
    [
        (LEAKY_STYLE, style("no_leak_found", 0.51), measured(0.09, 0.03), "refuted", "more of each"),
        (LEAKY_STYLE, LEAKY_STYLE, measured(0.0, 0.03), "refuted", "as much of each"),
        (QUIET_STYLE, QUIET_STYLE, measured(0.0, 0.03), "undecided", "no leak found"),
        (QUIET_STYLE, LEAKY_STYLE, measured(-0.1, 0.03), "undecided", "one style leaks"),
        (style("inconclusive", 0.5), QUIET_STYLE, measured(0.0, 0.03), "undecided", "too few units"),
        (style("no_leak_found", 0.53), QUIET_STYLE, measured(0.04, 0.03), "undecided", "rise"),
        (style("no_leak_found", 0.4), QUIET_STYLE, measured(-0.04, 0.03, direction="lower_leaks"), "undecided", "rise"),
    ],
    ids=["leaks at three", "leaks at both", "none", "leaks at one", "unsure", "rises", "rises by falling"],
)
def test_more_styles_tell_more_where_one_of_three_leaks(
    three: AttackFinding, one: AttackFinding, gain: Measured, verdict: str, said: str
) -> None:
    for mine in (1, 3):
        found = more(three, one, gain, mine)
        assert (found.verdict, said in found.reason) == (verdict, True)
        assert found.evidence[0] == (
            "received=0: none passed on; received=1: 12 styles passed on, 6 sender-receiver pairs; "
            "received=3: 36 styles passed on, 18 sender-receiver pairs"
        )
        assert found.evidence[1].startswith("style_membership by client, auc: three styles 0.")


def test_errors_in_feature_units_are_not_compared() -> None:
    error: dict[str, Any] = {"headline": "max_abs_error", "metrics": {"max_abs_error": measured(0.08, 0.05)}}
    quiet = style("no_leak_found", 0.5, "exact_recovery").model_copy(update=error)
    found = more(quiet, quiet, measured(-0.001, 0.0005, direction="lower_leaks"))
    assert found.reason.startswith("no leak found")
    assert "three minus one not comparable (its unit is the features'" in found.evidence[1]


def test_the_run_without_styles_is_the_control() -> None:
    found = more(LEAKY_STYLE, LEAKY_STYLE, measured(0, 0.03), 0)
    assert (found.verdict, "negative control" in found.reason) == ("undecided", True)
    one = Compared(LEAKY_STYLE, QUIET_STYLE, measured(0.1, 0.03))
    for there in ((), (0,), (1,), (0, 5)):
        found = claim("stablefdg", "H-S6", sent(3), *[beside(f"stablefdg:received={n}", sent(n), one) for n in there])
        assert found.verdict == "undecided"
        assert "--method stablefdg:received=0 stablefdg stablefdg:received=3" in found.reason


def test_only_attacks_on_sent_styles_decide() -> None:
    server = style("leak", 0.9).model_copy(update={"threat": Threat(role="server", auxiliary="A3")})
    for other in (server, row("leak", 0.6), style("leak", 0.6).model_copy(update={"shared": False})):
        assert more(other, other, measured(0.1, 0.03)).reason.startswith("not measured: needs attacks by a client")


# Several runs of one method in one report

THREE = ["stablefdg:received=0", "stablefdg", "stablefdg:received=3"]
CALL = [
    *("--preset", "quick", "--clients", "6", "--set", "rounds=1", "local_epochs=1", "--method", *THREE),
    *("--attack", "style_membership:simulations=12", "--threat", "client"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: Dataset) -> Iterator[Path]:
    """The folder of an audit of StableFDG in three settings, on 64 images a domain, without drawings."""
    with audits_of(tiny, drawn=False):
        out = tmp_path_factory.mktemp("three") / "out"
        assert main([*CALL, "--out", str(out)]) == 0
        yield out


def test_runs_of_one_method_are_told_apart_by_what_was_asked(done: Path) -> None:
    found = Results.load(done / "results.json")
    assert [run.method for run in found.runs] == THREE == found.config["methods"]
    assert json.loads((done / "config.json").read_text(encoding="utf-8"))["methods"] == THREE
    assert len(list((done / "transcript").iterdir())) == len(list((done / "scores").iterdir())) == 3
    with (done / "results.csv").open(encoding="utf-8", newline="") as file:
        assert {line["method"] for line in csv.DictReader(file)} == set(THREE)
    for name in ("report.md", "report.html"):
        text = (done / name).read_text(encoding="utf-8")
        assert all(spec in text for spec in THREE)
    passed = [[row.times for row in run.artifacts if row.via == "server"] for run in found.runs]
    assert passed == [[], [6], [18]]


def test_each_has_its_paper_s_claims_and_sees_the_others(done: Path) -> None:
    runs = Results.load(done / "results.json").runs
    (none, one, three) = ({claim.id: claim for claim in run.claims}["H-S6"] for run in runs)
    assert "negative control" in none.reason
    assert one.evidence == three.evidence  # their verdicts are corrected over each run's own claims
    assert one.evidence[0].startswith(
        "received=0: none passed on; received=1: 6 styles passed on, 6 sender-receiver pairs"
    )
    assert "paired over 6 clients" in one.evidence[1]
    values = [run.attacks[0].metrics["auc"].value for run in runs[1:]]
    assert values[0] is not None
    assert values[1] is not None
    assert f"three minus one {values[1] - values[0]:+.3g} [" in one.evidence[1]


def test_resuming_three_settings_does_nothing_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any) -> None:
        raise AssertionError("trained or evaluated again")

    before = Results.load(done / "results.json").comparable()
    monkeypatch.setattr("fdgpriv.federation.local_engine.LocalEngine.run", never)
    monkeypatch.setattr(AttackEvaluation, "_evaluated", never)
    assert main([*CALL, "--out", str(done), "--resume"]) == 0
    assert Results.load(done / "results.json").comparable() == before
    assert main([*(word.replace("received=3", "received=2") for word in CALL), "--out", str(done), "--resume"]) == 2
