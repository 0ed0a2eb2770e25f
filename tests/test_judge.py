"""From scores to verdicts: made-up scores, whose verdict is plain, come out in the right words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, GroundTruth, Observation, Prediction
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_scores import CLIENT_CONTROLS, DOMAIN_CONTROLS, AttackScores
from fdgpriv.evaluation.scores import Scores, ScoresByName
from fdgpriv.evaluation.verdicts import attack_findings
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.rule import NO_OTHER_CLIENT
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.threat import threat

CLIENTS = tuple(f"client-{i:02d}" for i in range(12))
CHANCE = dict.fromkeys(CLIENT_CONTROLS, 0.0)


class MadeUp(Task):
    """Its scores are made up."""

    secret, family, metric, relevant = "nothing", "property", "accuracy", 0.1

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
) -> Scores:
    """Scores on which the attack scores `attack` on the average, the others what they say, `per_client` units each."""
    levels = {"attack": attack, **others}
    rng = np.random.default_rng(seed)
    clients = [client for client in CLIENTS for _ in range(per_client)]
    units = [f"{client}/{i % per_client}" if per_client > 1 else client for i, client in enumerate(clients)]
    headline: ScoresByName = {
        name: (sign * (level + spread * rng.normal(size=len(clients)))).tolist() for name, level in levels.items()
    }
    return Scores(units=units, clients=clients, headline=headline)


LEAKS = scores(1, 2.0, per_client=4)
FAILS = scores(2, 0.0, per_client=4)

STYLES = "style_statistics"


def attack_scores(
    whole: Scores | None, single: Scores | None = LEAKS, attack: Attack | None = None, role: str = "server", **more: Any
) -> AttackScores:
    sizes = {1: single, None: whole}
    found = {"by_size": {size: at for size, at in sizes.items() if at is not None}, "auxiliary_images": 1234, **more}
    return of(attack or Reader(), role, **found)


def of(attack: Attack, role: str = "server", **found: Any) -> AttackScores:
    return AttackScores.of(attack, threat(role), STYLES, **{"level": "client", "shared": True, **found})


def judged(one: AttackScores, seed: int = 0) -> AttackFinding:
    return attack_findings({"x": one}, seed)["x"]


LEAK, NO_LEAK, UNSURE = "leak", "no_leak_found", "inconclusive"


def words(found: AttackFinding) -> tuple[str, str]:
    return found.verdict, found.verdict_domain


# The four words


def test_what_beats_every_control_is_a_leak_in_both_scopes() -> None:
    found = judged(attack_scores(scores(3, 2.0)))
    assert words(found) == (LEAK, LEAK)
    for line in (found.leakage, found.leakage_domain):
        assert line is not None
        assert line.p is not None
        assert line.p_corrected is not None
        assert line.p <= line.p_corrected <= LEVEL
        assert line.margin is not None
        assert 1.5 < line.margin[0] < 2 < line.margin[1] < 2.8
    assert "beats every control" in (found.reason or "")
    assert found.leakage.value is None  # there is no bound
    assert found.leakage.reason


def test_what_beats_no_control_is_no_leak_found_where_the_positive_control_leaks() -> None:
    found = judged(attack_scores(scores(4, -0.1)))
    assert words(found) == (NO_LEAK, NO_LEAK)
    assert found.positive_control is not None
    assert found.positive_control.succeeded is True
    assert found.positive_control.value.value == pytest.approx(2.0, abs=0.3)
    assert "excluded" in (found.reason or "")
    for name in DOMAIN_CONTROLS:  # intersection-union: the attack must beat every control
        assert words(judged(attack_scores(scores(5, 2.0, {**CHANCE, name: 2.1})))) == (NO_LEAK, NO_LEAK)


def test_a_failure_proves_nothing_where_the_positive_control_fails_too_or_there_is_none() -> None:
    found = judged(attack_scores(scores(6, -0.1), single=FAILS))
    assert words(found) == (UNSURE, UNSURE)
    assert found.positive_control is not None
    assert found.positive_control.succeeded is False
    for said in ("positive control", "strength=3", "1,234 auxiliary images"):  # and what budget it had
        assert said in (found.reason or "")
    none = judged(attack_scores(scores(6, -0.1), single=None))
    assert words(none) == (UNSURE, UNSURE)
    assert none.positive_control is None


def test_what_was_significant_before_the_correction_only_is_inconclusive() -> None:
    """One weak leak alone is a leak; among many attacks of a report it is not, nor is it excluded."""
    weak = scores(7, 0.4)
    alone = judged(attack_scores(weak))
    assert alone.verdict == "leak"
    nulls = {f"null {i}": attack_scores(scores(100 + i, 0.0), single=FAILS) for i in range(20)}
    found = attack_findings({"x": attack_scores(weak), **nulls}, 0)["x"]
    assert found.leakage.p is not None
    assert found.leakage.p_corrected is not None
    assert found.leakage.p <= LEVEL < found.leakage.p_corrected
    assert found.verdict == "inconclusive"
    assert "correction" in (found.reason or "")


def test_what_was_not_evaluated_is_not_applicable_with_the_reason_and_does_not_weigh_on_the_rest() -> None:
    said = "fedavg shares no style_statistics"
    one = of(Reader(), shared=False, not_applicable=said)
    found = judged(one)
    assert words(found) == ("not_applicable", "not_applicable")
    assert found.reason == found.reason_domain == said
    assert (found.n, found.metrics, found.units) == (0, {}, None)
    alone, among = (
        judged(attack_scores(LEAKS)),
        attack_findings({"x": attack_scores(LEAKS), **{f"n{i}": one for i in range(50)}}, 0)["x"],
    )
    assert alone.leakage.p_corrected == among.leakage.p_corrected


# The two scopes


def test_a_pure_domain_leak_is_no_leak_of_the_client_and_its_scope_does_not_read_the_other_client() -> None:
    """Another client of the same domain does as well, even absurdly well, so what leaks is the domain."""
    plain = judged(attack_scores(scores(9, 2.0)))
    absurd = scores(9, 2.0)
    absurd.headline["other_client"] = [1e9] * len(CLIENTS)
    for whole in (scores(8, 2.0, {**CHANCE, "other_client": 2.1, "domain_mean": 2.0}), absurd):
        found = judged(attack_scores(whole))
        assert words(found) == (NO_LEAK, LEAK)
        assert "other_client" in found.leakage.against
        assert found.leakage_domain is not None
        assert set(found.leakage_domain.against) == set(DOMAIN_CONTROLS)
        assert {"other_client", "domain_mean"}.isdisjoint(found.leakage_domain.against)
    assert plain.leakage_domain is not None
    assert (found.leakage_domain.p, found.leakage_domain.margin) == (
        plain.leakage_domain.p,
        plain.leakage_domain.margin,
    )


def test_without_another_client_or_another_domain_its_scope_is_inconclusive() -> None:
    def without(name: str) -> AttackFinding:
        return judged(
            attack_scores(scores(10, 2.0, {other: level for other, level in CHANCE.items() if other != name}))
        )

    found = without("other_client")
    assert (*words(found), found.reason) == (UNSURE, LEAK, NO_OTHER_CLIENT)
    found = without("other_domain")
    assert found.verdict_domain == UNSURE
    assert "domain" in (found.reason_domain or "")


def test_an_attack_that_asks_for_the_domain_has_no_client_scope() -> None:
    found = judged(attack_scores(scores(11, 2.0), attack=reader(scopes=("domain",))))
    assert (found.verdict, found.verdict_domain) == ("not_applicable", "leak")
    assert found.reason
    assert found.positive_control is not None
    assert set(found.positive_control.controls) == set(DOMAIN_CONTROLS)


def test_only_who_knows_the_domain_is_tested_against_its_mean() -> None:
    strong = {**CHANCE, "domain_mean": 3.0}
    assert judged(attack_scores(scores(12, 2.0, strong), role="server")).verdict == "no_leak_found"
    ignorant = judged(attack_scores(scores(12, 2.0, strong), role="third_party"))
    assert ignorant.verdict == "leak"
    assert "domain_mean" not in ignorant.leakage.against


# Signs, units, tables


def test_lower_leaks_more_where_the_metric_says_so() -> None:
    single = scores(1, 2.0, per_client=4, sign=-1)
    leak = judged(attack_scores(scores(13, 2.0, sign=-1), single, LOWER))
    assert words(leak) == (LEAK, LEAK)
    assert leak.metrics["accuracy"].direction == "lower_leaks"
    assert words(judged(attack_scores(scores(13, 2.0, sign=1), single, LOWER))) == (NO_LEAK, NO_LEAK)


def test_hits_without_a_miss_can_be_judged() -> None:
    """0 and 1 only: the interval comes from the bounds of the metric."""
    whole, single = scores(14, 1.0, spread=0.0), scores(14, 1.0, per_client=4, spread=0.0)
    assert words(judged(attack_scores(whole, single, reader(bounds=(0.0, 1.0))))) == (LEAK, LEAK)


def test_images_of_one_client_are_one_unit() -> None:
    """Clients, not images, are resampled; ten images of each of three clients are three units."""
    rng = np.random.default_rng(0)
    clients = [client for client in CLIENTS[:3] for _ in range(10)]
    headline: ScoresByName = {"attack": (2 + 0.1 * rng.normal(size=30)).tolist()}
    headline |= {name: (0.1 * rng.normal(size=30)).tolist() for name in CLIENT_CONTROLS}
    found = judged(attack_scores(Scores(units=clients, clients=clients, headline=headline)))
    assert found.units is not None
    assert found.units.n == 3
    assert found.verdict == "inconclusive"  # three units cannot reach p <= 0.025


def test_the_verdict_is_about_the_artifact_on_the_wire_and_shadows_are_counted() -> None:
    """A client-level style is judged by whole clients; the single image beside it is the positive control."""
    shadows = (*CLIENTS[:5], "shadow-99")
    for level, kind, n in (("client", "client", 12), ("image", "target", 48)):
        found = judged(attack_scores(scores(16, 0.0), level=level, shadows=shadows))
        assert found.artifact == f"style_statistics:{level}"
        assert found.units is not None
        assert (found.units.kind, found.units.n, found.units.federated, found.units.shadows) == (kind, n, 7, 5)
        if level == "client":
            assert found.metrics["accuracy"].value == pytest.approx(0.0, abs=0.3)
            assert found.upper_bounds["single_image"]["accuracy"].value == pytest.approx(2.0, abs=0.2)
            assert [point.images for point in found.curve] == [1, None]
    assert found.verdict == LEAK


def test_the_tables_hold_the_scores() -> None:
    whole = scores(17, 2.0, {**CHANCE, "autoencoder": 4.0, "nearest_own": 3.0})
    whole.details = {"lpips[x]": {"attack": [0.5] * 12, "noise": [0.9] * 12}}
    found = judged(attack_scores(whole))
    assert found.metrics["accuracy"].value == pytest.approx(np.mean(whole.headline["attack"]))
    assert found.metrics["accuracy"].n == 12
    assert found.metrics["lpips[x]"].value == 0.5
    assert found.metrics["lpips[x]"].direction == "lower_leaks"
    assert set(found.controls) == set(CLIENT_CONTROLS)
    assert found.controls["noise"]["lpips[x]"].value == 0.9
    for name in CLIENT_CONTROLS:
        assert found.controls[name]["accuracy"].value == pytest.approx(np.mean(whole.headline[name]))
    assert {"autoencoder", "nearest_own", "single_image"} == set(found.upper_bounds)
    assert found.leakage.value == pytest.approx(0.5, abs=0.15)  # half way from the controls to the autoencoder
    assert found.threat.role == "server"
    assert found.headline == "accuracy"


def test_an_attack_on_every_layer_is_proved_on_the_deepest() -> None:
    layers = {"layer1": FAILS, "layer4": LEAKS}
    found = judged(of(Reader(), level="image", shared=False, by_size={1: FAILS}, ablations=layers))
    assert found.verdict == "no_leak_found"
    assert found.positive_control is not None
    assert found.positive_control.succeeded
    assert found.metrics["accuracy@layer4"].value == pytest.approx(2.0, abs=0.2)
    assert found.metrics["accuracy@layer1"].value == pytest.approx(0.0, abs=0.2)
    assert found.shared is False


@pytest.mark.slow
def test_a_report_of_null_attacks_rarely_says_leak() -> None:
    """No more than 4 in 100 reports of five attacks in which nothing leaks."""
    alarms = 0
    for seed in range(100):
        attacks = {str(i): attack_scores(scores(1000 * seed + i, 0.0), single=FAILS) for i in range(5)}
        alarms += any(LEAK in words(row) for row in attack_findings(attacks, seed).values())
    assert alarms <= 4


# Several rounds


def over_rounds(level: float) -> AttackScores:
    """Whole clients and single images read over one round, where nothing leaks, and over three, at this level."""
    points = [
        (rounds, size, scores(4 + rounds, at, spread=0.2))
        for rounds, at in ((1, 0.0), (3, level))
        for size in (5, None)
    ]
    return attack_scores(scores(3, 0.0), by_rounds=points)


def test_a_rise_over_rounds_is_tested_with_the_family_and_so_is_what_all_rounds_leak() -> None:
    found = judged(over_rounds(1.5))
    assert found.verdict != "leak"
    assert [(p.rounds, p.images) for p in found.rounds] == [(1, 5), (1, None), (3, 5), (3, None)]
    assert [p.p_rise_corrected is not None and p.p_rise_corrected <= LEVEL for p in found.rounds] == [False] * 2 + [
        True
    ] * 2
    assert [p.verdict for p in found.rounds] == [None, None, None, "leak"]
    rise = found.rounds[-1].rise
    assert rise is not None
    assert (rise.n, rise.value) == (12, pytest.approx(1.5, abs=0.3))


def test_no_rise_is_found_where_rounds_say_the_same_and_rounds_change_no_other_score() -> None:
    found, without, again = judged(over_rounds(0.0)), judged(attack_scores(scores(3, 0.0))), judged(over_rounds(0.0))
    assert all(p.p_rise is None or p.p_rise > LEVEL for p in found.rounds)
    assert found.rounds[-1].verdict == NO_LEAK
    assert (found.metrics, found.curve) == (without.metrics, without.curve)
    assert found == again
