"""From scores to verdicts: made-up scores, whose verdict is plain, come out in the right words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from _golden import assert_golden
from factories_scores import conditions
from scipy import stats
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_evaluation import attack_scores as evaluated
from fdgpriv.results.attack_finding import OVER_OWN_COLOUR, AttackFinding, Leakage
from fdgpriv.results.question import Question
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.rule import NO_OTHER_CLIENT
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.threat import threat
from fdgpriv.verdicts.attack_scores import (
    CLIENT_CONTROLS,
    DOMAIN_CONTROLS,
    KNOWN_DOMAIN_CONTROLS,
    LABEL_PRIORS,
    AttackScores,
)
from fdgpriv.verdicts.judge import judge
from fdgpriv.verdicts.trial_scores import ScoresByRole, TrialScores

CLIENTS = tuple(f"client-{i:02d}" for i in range(12))
CHANCE = dict.fromkeys((name for name in CLIENT_CONTROLS if name not in LABEL_PRIORS), 0.0)


class MadeUp(Task):
    """Its scores are made up."""

    secret, metric, relevant = "content", "accuracy", 1.0

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        raise NotImplementedError

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        raise NotImplementedError


@dataclass(frozen=True)
class Reader(Attack):
    """Infers nothing: its scores are made up."""

    reads = (StyleStatistics,)
    task: ClassVar[Task] = MadeUp()
    threats = ("server",)

    strength: int = 3

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        raise NotImplementedError


def reader(**facts: Any) -> Attack:
    """An attack on a made-up task, which has these facts."""
    asked: type[Reader] = type("Asked", (Reader,), {"task": type("Facts", (MadeUp,), facts)()})
    return asked()


LOWER = reader(higher_leaks=False)


def scores(
    seed: int,
    attack: float,
    others: Mapping[str, float] = CHANCE,
    *,
    per_client: int = 1,
    spread: float = 0.3,
    sign: int = 1,
) -> TrialScores:
    """TrialScores on which the attack scores `attack` on the average, the others what they say, `per_client` units each."""
    levels = {"attack": attack, **others}
    rng = np.random.default_rng(seed)
    clients = [client for client in CLIENTS for _ in range(per_client)]
    units = [f"{client}/{i % per_client}" if per_client > 1 else client for i, client in enumerate(clients)]
    headline: ScoresByRole = {
        name: (sign * (level + spread * rng.normal(size=len(clients)))).tolist() for name, level in levels.items()
    }
    return TrialScores(units=units, clients=clients, headline=headline)


LEAKS = scores(1, 2.0, per_client=4)
FAILS = scores(2, 0.0, per_client=4)

STYLES = "style_statistics"
FOUND = {"client": 0.9, "domain": 0.9}  # planted leaks


def attack_scores(
    whole: TrialScores | None,
    single: TrialScores | None = LEAKS,
    attack: Attack | None = None,
    role: str = "third_party",
    **more: Any,
) -> AttackScores:
    sizes = {1: single, None: whole}
    further = {name: more.pop(name) for name in ("undefended", "by_rounds") if name in more}
    found = {
        "conditions": conditions({size: at for size, at in sizes.items() if at is not None}, **further),
        "auxiliary_images": 1234,
        "planted": FOUND,
        **more,
    }
    return of(attack or Reader(), role, **found)


def of(attack: Attack, role: str = "third_party", **found: Any) -> AttackScores:
    return evaluated(attack, threat(role), STYLES, **{"level": "client", "shared": True, **found})


@dataclass(frozen=True)
class Judged:
    """The entry of one attack that is a report by itself, and its questions by scope."""

    finding: AttackFinding
    questions: Mapping[str, Question]

    @property
    def verdicts(self) -> tuple[str | None, str | None]:
        """In the client and the domain scope; None where that is not asked."""
        one, other = (self.questions.get(scope) for scope in ("client", "domain"))
        return one.verdict if one else None, other.verdict if other else None

    @property
    def client(self) -> tuple[Question, Leakage]:
        return self.questions["client"], self.finding.leakage["client"]

    @property
    def domain(self) -> tuple[Question, Leakage]:
        return self.questions["domain"], self.finding.leakage["domain"]


def judged(one: AttackScores, seed: int = 0, beside: Mapping[str, AttackScores] | None = None) -> Judged:
    """The attack, judged beside others of its report."""
    verdicts = judge({"run/x": one, **{f"other/{name}": more for name, more in (beside or {}).items()}}, seed)
    questions = verdicts.questions.of_cell("run", ["run/x"])
    return Judged(verdicts.findings["run/x"], {question.scope: question for question in questions})


# The verdict of each case, in the client and the domain scope


def nulls(count: int, single: TrialScores = LEAKS) -> dict[str, AttackScores]:
    """Attacks on as many other kinds of artifact, of which nothing leaks."""
    found = {f"{i}": attack_scores(scores(100 + i, 0.0), single, CLIENT_ONLY) for i in range(count)}
    return {name: one.model_copy(update={"kind": f"kind_{name}"}) for name, one in found.items()}


def lacking(name: str, role: str = "third_party") -> AttackScores:
    """A leak tested without this control."""
    return attack_scores(scores(10, 2.0, {other: at for other, at in CHANCE.items() if other != name}), role=role)


def answering_its_prior(planted: float) -> AttackScores:
    whole = scores(15, 0.5, {**dict.fromkeys(CLIENT_CONTROLS, -2.0), "mean_image": 0.0})
    whole.headline["attack"] = whole.headline["mean_image"]
    return attack_scores(whole, planted=dict.fromkeys(FOUND, planted))


def three_clients() -> AttackScores:
    """Ten images of each of three clients are three units, which cannot reach p <= .025."""
    rng = np.random.default_rng(0)
    clients = [client for client in CLIENTS[:3] for _ in range(10)]
    headline: ScoresByRole = {"attack": (2 + 0.1 * rng.normal(size=30)).tolist()}
    headline |= {name: (0.1 * rng.normal(size=30)).tolist() for name in CLIENT_CONTROLS}
    return attack_scores(TrialScores(units=clients, clients=clients, headline=headline))


def absurd_other_client() -> AttackScores:
    whole = scores(9, 2.0)
    whole.headline["other_client"] = [1e9] * len(CLIENTS)
    return attack_scores(whole)


CLIENT_ONLY = reader(scopes=("client",))
NOT_SHARED = of(Reader(), not_applicable="fedavg shares no style_statistics")
WEAK = attack_scores(scores(7, 0.3), attack=CLIENT_ONLY)
DOMAIN_MEAN = scores(12, 2.0, {**CHANCE, "domain_mean": 3.0})
OPPOSITE = scores(1, 2.0, per_client=4, sign=-1)
HITS = reader(bounds=(0.0, 1.0), relevant=0.2)
LEAK, NO_LEAK, UNSURE, NOT_ASKED = "leak", "no_leak_found", "inconclusive", "not_applicable"

CASES: dict[str, tuple[AttackScores, str | None, str | None]] = {
    "leak": (attack_scores(scores(3, 2.0)), LEAK, LEAK),
    "no leak": (attack_scores(scores(4, -0.1)), NO_LEAK, NO_LEAK),
    "noise as good": (attack_scores(scores(5, 2.0, {**CHANCE, "noise": 2.1})), NO_LEAK, NO_LEAK),
    "mean image as good": (attack_scores(scores(5, 2.0, {**CHANCE, "mean_image": 2.1})), NO_LEAK, NO_LEAK),
    "other client as good": (attack_scores(scores(8, 2.0, {**CHANCE, "other_client": 2.1})), NO_LEAK, LEAK),
    "other client absurdly good": (absurd_other_client(), NO_LEAK, LEAK),
    "other domain as good": (attack_scores(scores(5, 2.0, {**CHANCE, "other_domain": 2.1})), NO_LEAK, NO_LEAK),
    "without other_client": (lacking("other_client"), UNSURE, LEAK),
    "without other_domain": (lacking("other_domain"), LEAK, UNSURE),
    "positive control failed": (attack_scores(scores(6, -0.1), single=FAILS), UNSURE, UNSURE),
    "no positive control": (attack_scores(scores(6, -0.1), single=None), UNSURE, UNSURE),
    "planted in the client scope only": (attack_scores(scores(4, -0.1), planted={"client": 0.9}), NO_LEAK, UNSURE),
    "answers its prior": (answering_its_prior(0.9), NO_LEAK, NO_LEAK),
    "answers its prior, planted leak not found": (answering_its_prior(0.1), UNSURE, UNSURE),
    "not evaluated": (NOT_SHARED, NOT_ASKED, NOT_ASKED),
    "asks for the domain": (attack_scores(scores(11, 2.0), attack=reader(scopes=("domain",))), None, LEAK),
    "domain's mean better, server": (attack_scores(DOMAIN_MEAN, role="server"), UNSURE, None),  # worse than nothing
    "domain's mean better, third party": (attack_scores(DOMAIN_MEAN), LEAK, LEAK),
    "leak, server": (attack_scores(scores(3, 2.0), role="server"), LEAK, None),  # it knows the domain: one question
    "without other_client, server": (lacking("other_client", "server"), UNSURE, LEAK),
    "lower leaks": (attack_scores(scores(13, 2.0, sign=-1), OPPOSITE, LOWER), LEAK, LEAK),
    "higher where lower leaks": (attack_scores(scores(13, 2.0), OPPOSITE, LOWER), UNSURE, UNSURE),
    "worse than a random artifact": (attack_scores(scores(4, -0.1, {**CHANCE, "random_style": 1.0})), NO_LEAK, NO_LEAK),
    "worse than another prior": (attack_scores(scores(4, -0.1, {**CHANCE, "uniform": 1.0})), UNSURE, UNSURE),
    "hits without a miss": (
        attack_scores(scores(14, 1.0, spread=0.0), scores(14, 1.0, per_client=4, spread=0.0), HITS), LEAK, LEAK,
    ),
    "three clients": (three_clients(), UNSURE, UNSURE),
    "a single image crossed": (attack_scores(scores(16, 0.0), level="image"), LEAK, LEAK),
    "weak, alone": (WEAK, LEAK, None),
}  # fmt: skip


@cache
def case(name: str) -> Judged:
    return judged(CASES[name][0])


@cache
def corrected_leak() -> Judged:
    """A weak leak, which alone is a leak, among other questions of which nothing leaks."""
    return judged(WEAK, beside=nulls(4, FAILS))


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_of_each_case(name: str) -> None:
    assert case(name).verdicts == CASES[name][1:]


def test_the_reasons_of_the_verdicts() -> None:
    found = {name: case(name) for name in CASES} | {"weak, among others": corrected_leak()}
    lines = [
        f"{name}, {scope} scope\n    {question.verdict}: {question.reason}\n"
        for name, one in found.items()
        for scope, question in one.questions.items()
    ]
    assert_golden("reasons_of_questions.txt", "".join(lines))


def test_figures_of_a_leak() -> None:
    found = case("leak")
    for question, test in (found.client, found.domain):
        assert question.p == test.p  # one attack: Simes changes nothing
        assert question.p <= question.q <= LEVEL
        assert question.beyond_doubt
        assert (test.marked, test.verdict) == (True, LEAK)
        assert (question.strongest.attack, question.strongest.metric) == (found.finding.attack, "accuracy")
        assert question.strongest.control == test.control
        assert 1.5 < test.lead.ci95[0] < 2 < test.lead.ci95[1] < 2.8
        assert test.value is None  # there is no bound
        assert test.reason


def test_figures_of_no_leak() -> None:
    found = case("no leak")
    question, test = found.client
    assert found.finding.positive_control.succeeded is True
    assert found.finding.positive_control.value.value == pytest.approx(2.0, abs=0.3)
    assert question.upper_bound < 1.0 == question.relevant
    assert (question.upper_bound, question.resolution, test.planted) == (test.upper_bound, test.resolution, 0.9)
    assert not test.marked
    prior, prior_test = case("answers its prior").client
    assert (prior.upper_bound, prior_test.upper_bound, prior_test.p) == (None, None, 1.0)  # leads of exactly 0


def test_figures_of_open_questions() -> None:
    found = case("positive control failed")
    assert found.finding.positive_control.succeeded is False
    assert found.client[0].inconclusive_because == "weak_attack"
    assert case("no positive control").finding.positive_control is None
    assert case("planted in the client scope only").domain[0].inconclusive_because == "weak_attack"
    lone = case("without other_client").client
    assert lone[0].reason == lone[1].reason == NO_OTHER_CLIENT
    absent = case("not evaluated").finding
    assert (absent.n, absent.metrics, absent.units) == (0, {}, None)
    assert absent.reason == "fedavg shares no style_statistics"
    assert case("three clients").finding.units.n == 3
    question, test = corrected_leak().client
    assert question.p <= LEVEL < 0.05 < question.q
    assert (question.verdict, question.inconclusive_because) == (UNSURE, "not_after_correction")
    assert (test.verdict, test.marked) == (LEAK, False)  # by itself it is one; claims correct that over claims


def test_a_question_s_interval_is_widened() -> None:
    whole = scores(3, 2.0)
    question, test = judged(attack_scores(whole, attack=CLIENT_ONLY), beside=nulls(4)).client
    d = np.asarray(whole.headline["attack"]) - np.asarray(whole.headline[question.strongest.control])
    level = 1 - 0.05 * 1 / 5  # one of 5 questions leaks
    assert question.lead.ci95 == pytest.approx(tuple(stats.ttest_1samp(d, 0).confidence_interval(level)))
    assert test.lead.ci95 == pytest.approx(tuple(stats.ttest_1samp(d, 0).confidence_interval(0.95)))


def test_unevaluated_attacks_are_not_corrected_for() -> None:
    among = judged(CASES["leak"][0], beside={str(i): NOT_SHARED for i in range(50)})
    assert case("leak").client[0].q == pytest.approx(among.client[0].q, rel=1e-6)


def test_controls_of_each_scope() -> None:
    absurd, plain = case("other client absurdly good"), judged(attack_scores(scores(9, 2.0)))
    assert "other_client" in absurd.client[1].against
    known = set(CHANCE) & set(DOMAIN_CONTROLS) - set(KNOWN_DOMAIN_CONTROLS)
    assert set(absurd.domain[1].against) == known
    assert (absurd.domain[1].p, absurd.domain[1].lead) == (plain.domain[1].p, plain.domain[1].lead)
    domain = case("asks for the domain").finding
    assert domain.main == domain.leakage["domain"]
    assert set(domain.positive_control.controls) == known
    ignorant = case("domain's mean better, third party")
    assert "domain_mean" not in (*ignorant.client[1].against, *ignorant.domain[1].against)
    lower = case("lower leaks")
    assert lower.finding.metrics["accuracy"].direction == "lower_leaks"
    assert lower.client[1].lead.direction == "higher_leaks"  # a lead is oriented
    assert lower.client[1].lead.value > 1


# Units and tables


def test_the_verdict_is_about_what_crossed() -> None:
    """A client-level style is judged by whole clients; the single image beside it is the positive control."""
    shadows = (*CLIENTS[:5], "shadow-99")
    for level, kind, n in (("client", "client", 12), ("image", "target", 48)):
        one = judged(attack_scores(scores(16, 0.0), level=level, shadows=shadows))
        found = one.finding
        assert found.artifact == f"style_statistics:{level}"
        assert (found.units.kind, found.units.n, found.units.federated, found.units.shadows) == (kind, n, 7, 5)
        federated, apart = (found.apart[name] for name in ("federated", "shadows"))
        assert (federated.n, apart.n) == (7 * n // 12, 5 * n // 12)
        at = scores(16, 0.0) if level == "client" else LEAKS
        own = [value for value, client in zip(at.headline["attack"], at.clients, strict=True) if client not in shadows]
        assert federated.value == pytest.approx(np.mean(own))
        together = (7 * (federated.value or 0) + 5 * (apart.value or 0)) / 12
        assert together == pytest.approx(found.metrics["accuracy"].value)
        if level == "client":
            assert found.metrics["accuracy"].value == pytest.approx(0.0, abs=0.3)
            assert found.upper_bounds["single_image"]["accuracy"].value == pytest.approx(2.0, abs=0.2)
            assert [point.images for point in found.curve] == [1, None]


def test_the_tables_hold_the_scores() -> None:
    whole = scores(17, 2.0, {**CHANCE, "autoencoder": 4.0, "nearest_own": 3.0})
    whole.details = {"lpips[x]": {"attack": [0.5] * 12, "noise": [0.9] * 12}}
    found = judged(attack_scores(whole)).finding
    assert found.metrics["accuracy"].value == pytest.approx(np.mean(whole.headline["attack"]))
    assert found.metrics["accuracy"].n == 12
    assert found.metrics["lpips[x]"].value == 0.5
    assert found.metrics["lpips[x]"].direction == "lower_leaks"
    assert set(found.controls) == set(CHANCE)
    assert found.controls["noise"]["lpips[x]"].value == 0.9
    for name in CHANCE:
        assert found.controls[name]["accuracy"].value == pytest.approx(np.mean(whole.headline[name]))
    assert {"autoencoder", "nearest_own", "single_image"} == set(found.upper_bounds)
    assert found.leakage["client"].value == pytest.approx(
        0.5, abs=0.15
    )  # half way from the controls to the autoencoder
    assert found.threat.role == "third_party"
    assert found.headline == "accuracy"


def test_reconstructions_are_compared_with_a_colour() -> None:
    single = scores(17, 2.0, {**CHANCE, "own_colour": 1.5}, per_client=3, spread=0.2)
    found = judged(attack_scores(scores(16, 0.0), single)).finding
    lead = found.metrics[OVER_OWN_COLOUR]
    each = np.asarray(single.headline["attack"]) - np.asarray(single.headline["own_colour"])
    ends = stats.t.interval(0.95, len(each) - 1, each.mean(), stats.sem(each))
    assert (lead.value, lead.n, lead.ci95) == (pytest.approx(each.mean()), len(each), pytest.approx(ends))
    assert OVER_OWN_COLOUR not in judged(attack_scores(scores(16, 0.0))).finding.metrics
    behind = scores(18, 0.0, {**CHANCE, "own_colour": 1.5}, per_client=3, spread=0.2)
    defended = judged(
        attack_scores(scores(16, 0.0), behind, undefended=single)
    ).finding  # the positive control is undefended
    assert defended.metrics[OVER_OWN_COLOUR] == lead
    alone = judged(attack_scores(None, behind, undefended=single, level="image")).finding
    assert (alone.metrics[OVER_OWN_COLOUR].value or 0) < -1  # the verdict is about what was sent


def test_an_attack_on_layers_is_proved_on_the_deepest() -> None:
    layers = {"layer1": FAILS, "layer4": LEAKS}
    one = of(Reader(), level="image", shared=False, conditions=conditions({1: FAILS}, by_layer=layers), planted=FOUND)
    found = judged(one).finding
    assert found.leakage["client"].verdict == NO_LEAK
    assert found.positive_control.succeeded
    assert found.metrics["accuracy@layer4"].value == pytest.approx(2.0, abs=0.2)
    assert found.metrics["accuracy@layer1"].value == pytest.approx(0.0, abs=0.2)
    assert found.shared is False


# Several rounds


def over_rounds(level: float) -> AttackScores:
    """Whole clients and single images read over one round, where nothing leaks, and over three, at this level."""
    points = [
        (rounds, size, scores(4 + rounds, at, spread=0.2))
        for rounds, at in ((1, 0.0), (3, level))
        for size in (5, None)
    ]
    return attack_scores(scores(3, 0.0), by_rounds=points)


def test_the_rise_and_the_leak_over_rounds_are_tested() -> None:
    one = judged(over_rounds(1.5))
    found = one.finding
    assert one.verdicts == (NO_LEAK, NO_LEAK)
    assert [(p.rounds, p.images) for p in found.rounds] == [(1, 5), (1, None), (3, 5), (3, None)]
    assert [p.p_rise is not None and p.p_rise <= LEVEL for p in found.rounds] == [False] * 2 + [True] * 2
    assert [p.verdict for p in found.rounds] == [None, None, None, "leak"]
    rise = found.rounds[-1].rise
    assert rise.n == 12
    assert rise.value == pytest.approx(1.5, abs=0.3)


def test_equal_rounds_show_no_rise() -> None:
    rounds, alone = over_rounds(0.0), attack_scores(scores(3, 0.0))
    found, without, again = (judged(one).finding for one in (rounds, alone, rounds))
    assert all(p.p_rise is None or p.p_rise > LEVEL for p in found.rounds)
    assert found.rounds[-1].verdict == NO_LEAK
    assert (found.metrics, found.curve) == (without.metrics, without.curve)
    assert found == again
