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
from _golden import assert_golden
from _results import measured, missing
from conftest import audits_of, fit, shortened
from factories_core import crossing
from factories_core import style as shared
from factories_findings import finding
from factories_scores import conditions
from scipy import stats
from test_claims import told
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


def test_one_method_with_other_fields_is_another() -> None:
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


def test_what_cannot_be_compared_is_null() -> None:
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


def embeddings(mine: AttackFinding, theirs: AttackFinding, gain: Measured, turned: bool = False) -> Claim:
    """H-H4 in the ledger of learned embeddings, or, turned, in that of random ones; `gain` is of learned ones less random."""
    if turned and gain.value is not None:
        gain = measured(-gain.value, round(gain.ci95[1] - gain.value, 6))
    spec, settings, others = ("hfedf", RANDOM, LEARNED) if turned else ("hfedf:embedding=random", LEARNED, RANDOM)
    compared = Compared(theirs, mine, gain) if turned else Compared(mine, theirs, gain)
    return claim("hfedf", "H-H4", settings, beside(spec, others, compared))


def with_fedavg(mine: AttackFinding, settings: Mapping[str, object]) -> Claim:
    """H-H1, with membership in FedAvg's model compared."""
    other = Compared(mine, row("leak", 0.66), measured(-0.12, 0.03, 15))
    return claim("hfedf", "H-H1", LEARNED, beside("fedavg:network=inception", settings, other), attacks=[mine])


def unlike(settings: Mapping[str, object], *others: RunComparison) -> Claim:
    """H-H4 where something else than the embedding differs."""
    return claim("hfedf", "H-H4", settings, *others)


LEARNED_LEAKS = Compared(LEAKS, QUIET, measured(0.07, 0.03))
OTHER_ROUNDS = beside("hfedf:embedding=random,rounds=4", {**RANDOM, "rounds": 4}, LEARNED_LEAKS)
OTHER_METHOD = beside("pfedhn", RANDOM, LEARNED_LEAKS)
OTHER_ATTACK = beside("hfedf:embedding=random", RANDOM, replace(LEARNED_LEAKS, mine=row("leak", 0.6, "identification")))
ERROR = style("no_leak_found", 0.5, "exact_recovery").model_copy(
    update={"headline": "max_abs_error", "metrics": {"max_abs_error": measured(0.08, 0.05)}}
)
UNSENT = LEAKY_STYLE.model_copy(update={"shared": False})
BY_SERVER = LEAKY_STYLE.model_copy(update={"threat": Threat(role="server", auxiliary="A3")})
OUTSIDER, MAKER = (
    LEAKS.model_copy(update={"threat": Threat(role=role, auxiliary="A3")}) for role in ("third_party", "server")
)
OTHER_SECRET = LEAKS.model_copy(update={"attack": "label_histogram", "secret": "labels"})
SAME, RISE = measured(0.0, 0.03), measured(0.1, 0.03)
MORE_BY_FALLING = measured(-0.04, 0.03, direction="lower_leaks")


def claims_by_case() -> dict[str, tuple[Claim, str]]:
    """Claims over several runs, and their verdicts."""
    return {
        "FedAvg beside a quiet model": (with_fedavg(QUIET, INCEPTION), "undecided"),
        "FedAvg beside a leaking model": (with_fedavg(LEAKS, INCEPTION), "refuted"),
        "FedAvg beside an open question": (with_fedavg(UNSURE, INCEPTION), "undecided"),
        "FedAvg with another network": (with_fedavg(QUIET, {"network": "backbone"}), "undecided"),
        "no FedAvg": (claim("hfedf", "H-H1", LEARNED, attacks=[QUIET]), "undecided"),
        "an outsider who obtains the model": (claim("hfedf", "H-H1", LEARNED, attacks=[QUIET, OUTSIDER]), "refuted"),
        "another attack on the model": (claim("hfedf", "H-H1", LEARNED, attacks=[QUIET, OTHER_SECRET]), "refuted"),
        "the server on the model": (claim("hfedf", "H-H1", LEARNED, attacks=[QUIET, MAKER]), "undecided"),
        "equal": (embeddings(QUIET, QUIET, measured(0.01, 0.03)), "undecided"),
        "equal leaks": (embeddings(LEAKS, LEAKS, measured(-0.01, 0.03)), "undecided"),
        "more by learned ones": (embeddings(LEAKS, QUIET, measured(0.07, 0.03)), "refuted"),
        "a little more": (embeddings(LEAKS, QUIET, measured(0.02, 0.01)), "refuted"),
        "more of nothing": (embeddings(QUIET, QUIET, measured(0.07, 0.03)), "undecided"),
        "less by learned ones": (embeddings(QUIET, LEAKS, measured(-0.07, 0.03)), "undecided"),
        "wide": (embeddings(QUIET, QUIET, measured(0.01, 0.06)), "undecided"),
        "weak attack": (embeddings(QUIET, failing(UNSURE), measured(0.01, 0.03)), "undecided"),
        "nothing in common": (embeddings(QUIET, QUIET, missing("no unit in common")), "undecided"),
        **{f"unlike in {name}": (unlike(settings, OTHER_ROUNDS, OTHER_METHOD, OTHER_ATTACK), "undecided")
           for name, settings in (("more", LEARNED), ("kind", {"rounds": 32, "embedding": "autoencoder"}), ("all", {}))},
        "three leak, one does not": (more(LEAKY_STYLE, style("no_leak_found", 0.51), measured(0.09, 0.03)), "refuted"),
        "three and one leak": (more(LEAKY_STYLE, LEAKY_STYLE, SAME), "refuted"),
        "none leaks": (more(QUIET_STYLE, QUIET_STYLE, SAME), "undecided"),
        "one leaks, three do not": (more(QUIET_STYLE, LEAKY_STYLE, measured(-0.1, 0.03)), "undecided"),
        "three open": (more(style("inconclusive", 0.5), QUIET_STYLE, SAME), "undecided"),
        "a rise": (more(style("no_leak_found", 0.53), QUIET_STYLE, measured(0.04, 0.03)), "undecided"),
        "a rise by falling": (more(style("no_leak_found", 0.4), QUIET_STYLE, MORE_BY_FALLING), "undecided"),
        "an error in feature units": (more(ERROR, ERROR, measured(-0.001, 0.0005, direction="lower_leaks")), "undecided"),
        "attacks by the server": (more(BY_SERVER, BY_SERVER, RISE), "undecided"),
        "attacks on the model": (more(row("leak", 0.6), row("leak", 0.6), RISE), "undecided"),
        "attacks on what was not sent": (more(UNSENT, UNSENT, RISE), "undecided"),
        "the run without styles": (more(LEAKY_STYLE, LEAKY_STYLE, SAME, 0), "undecided"),
        **{f"three beside {there}": (claim("stablefdg", "H-S6", sent(3), *[
            beside(f"stablefdg:received={n}", sent(n), Compared(LEAKY_STYLE, QUIET_STYLE, RISE)) for n in there
           ]), "undecided") for there in ((), (0,), (1,), (0, 5))},
    }  # fmt: skip


def test_claims_over_several_runs() -> None:
    """Verdicts as above; reasons and evidence in golden/claims_of_runs.txt."""
    lines = []
    for name, (found, verdict) in claims_by_case().items():
        assert found.verdict == verdict, name
        lines.append(told(f"{name}, {found.id}", found.verdict, found.reason, found.evidence))
    assert_golden("claims_of_runs.txt", "".join(lines))


def test_both_runs_of_a_pair_are_told_the_same() -> None:
    for mine, theirs, gain in (
        (LEAKS, QUIET, measured(0.07, 0.03)),
        (QUIET, failing(UNSURE), measured(0.01, 0.03)),
        (QUIET, QUIET, missing("no unit in common")),
    ):
        assert embeddings(mine, theirs, gain) == embeddings(mine, theirs, gain, turned=True)
    for three, one, gain in ((LEAKY_STYLE, QUIET_STYLE, RISE), (QUIET_STYLE, LEAKY_STYLE, measured(-0.1, 0.03))):
        assert more(three, one, gain, 1) == more(three, one, gain, 3)


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


def test_runs_of_one_method_keep_their_settings(done: Path) -> None:
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


def test_each_run_has_its_claims_and_sees_the_others(done: Path) -> None:
    runs = Results.load(done / "results.json").runs
    (none, one, three) = ({claim.id: claim for claim in run.claims}["H-S6"] for run in runs)
    assert "negative control" in none.reason
    assert one.evidence == three.evidence  # their verdicts are corrected over each run's own claims
    assert one.evidence[0].startswith(
        "received=0: none passed on; received=1: 6 styles passed on, 6 sender-receiver pairs"
    )
    assert "paired over 6 clients" in one.evidence[1]
    values = [run.attacks[0].metrics["auc"].value for run in runs[1:]]
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
