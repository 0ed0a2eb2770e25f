"""From marks to verdicts: made-up marks, whose verdict is plain, come out in the right words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.exam.marks import Marks, Scores
from fdgpriv.exam.paper import CLIENT_LINE, DOMAIN_LINE, Paper
from fdgpriv.finding import AttackFinding
from fdgpriv.judge import judge
from fdgpriv.roles import Attack
from fdgpriv.threat import threat
from fdgpriv.verdict import LEVEL, NO_OTHER_CLIENT

CLIENTS = tuple(f"client-{i:02d}" for i in range(12))
CHANCE = dict.fromkeys(CLIENT_LINE, 0.0)


@dataclass(frozen=True)
class Reader(Attack):
    """Reads nothing: its marks are made up."""

    family = "property"
    reads = ("style_statistics",)
    headline = "accuracy"
    higher_leaks = True
    threats = ("server",)

    strength: int = 3

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        raise NotImplementedError

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        raise NotImplementedError


class LessIsMore(Reader):
    """Of a metric that falls where more leaks."""

    higher_leaks = False


class OfDomains(Reader):
    """Asks for the domain only."""

    lines = ("domain",)


class Bounded(Reader):
    """Of a metric in [0, 1]."""

    bounds = (0.0, 1.0)


def marks(
    seed: int,
    attack: float,
    others: Mapping[str, float] = CHANCE,
    *,
    per_client: int = 1,
    spread: float = 0.3,
    sign: int = 1,
) -> Marks:
    """Marks on which the attack scores `attack` on the average, the others what they say, `per_client` units each."""
    levels = {"attack": attack, **others}
    rng = np.random.default_rng(seed)
    clients = [client for client in CLIENTS for _ in range(per_client)]
    units = [f"{client}/{i % per_client}" if per_client > 1 else client for i, client in enumerate(clients)]
    headline: Scores = {
        name: (sign * (level + spread * rng.normal(size=len(clients)))).tolist() for name, level in levels.items()
    }
    return Marks(units=units, clients=clients, headline=headline)


LEAKS = marks(1, 2.0, per_client=4)
FAILS = marks(2, 0.0, per_client=4)

STYLES = "style_statistics"


def paper(
    whole: Marks | None, single: Marks | None = LEAKS, attack: Attack | None = None, role: str = "server"
) -> Paper:
    found = {1: single, None: whole}
    return Paper(
        attack=attack or Reader(),
        threat=threat(role),
        kind="style_statistics",
        level="client",
        shared=True,
        auxiliary_images=1234,
        marks={size: at for size, at in found.items() if at is not None},
    )


def judged(one: Paper, seed: int = 0) -> AttackFinding:
    return judge({"x": one}, seed)["x"]


# The four words


def test_what_beats_every_control_is_a_leak_on_both_lines() -> None:
    found = judged(paper(marks(3, 2.0)))
    assert (found.verdict, found.verdict_domain) == ("leak", "leak")
    for line in (found.leakage, found.leakage_domain):
        assert line is not None
        assert line.p is not None
        assert line.p_corrected is not None
        assert line.p <= line.p_corrected <= LEVEL
        assert line.margin is not None
        assert 1.5 < line.margin[0] < 2 < line.margin[1] < 2.8
    assert "beats every control" in (found.reason or "")


def test_what_beats_no_control_is_no_leak_found_where_the_positive_control_leaks() -> None:
    found = judged(paper(marks(4, -0.1)))
    assert (found.verdict, found.verdict_domain) == ("no_leak_found", "no_leak_found")
    assert found.positive_control is not None
    assert found.positive_control.succeeded is True
    assert found.positive_control.value.value == pytest.approx(2.0, abs=0.3)
    assert "excluded" in (found.reason or "")


def test_beating_all_controls_but_one_is_no_leak() -> None:
    """Intersection-union: the attack must beat every control."""
    for name in DOMAIN_LINE:
        found = judged(paper(marks(5, 2.0, {**CHANCE, name: 2.1})))
        assert (found.verdict, found.verdict_domain) == ("no_leak_found", "no_leak_found")


def test_a_failure_proves_nothing_where_the_positive_control_fails_too() -> None:
    found = judged(paper(marks(6, -0.1), single=FAILS))
    assert (found.verdict, found.verdict_domain) == ("inconclusive", "inconclusive")
    assert found.positive_control is not None
    assert found.positive_control.succeeded is False
    assert "positive control" in (found.reason or "")
    assert "strength=3" in (found.reason or "")  # what budget it had
    assert "1,234 auxiliary images" in (found.reason or "")


def test_a_failure_proves_nothing_where_there_is_no_positive_control() -> None:
    found = judged(paper(marks(6, -0.1), single=None))
    assert (found.verdict, found.verdict_domain) == ("inconclusive", "inconclusive")
    assert found.positive_control is None


def test_what_was_significant_before_the_correction_only_is_inconclusive() -> None:
    """One weak leak alone is a leak; among many papers of a report it is not, nor is it excluded."""
    weak = marks(7, 0.4)
    alone = judged(paper(weak))
    assert alone.verdict == "leak"
    nulls = {f"null {i}": paper(marks(100 + i, 0.0), single=FAILS) for i in range(20)}
    found = judge({"x": paper(weak), **nulls}, 0)["x"]
    assert found.leakage.p is not None
    assert found.leakage.p_corrected is not None
    assert found.leakage.p <= LEVEL < found.leakage.p_corrected
    assert found.verdict == "inconclusive"
    assert "correction" in (found.reason or "")


def test_what_was_not_examined_is_not_applicable_with_the_reason() -> None:
    one = Paper(
        Reader(),
        threat("server"),
        "style_statistics",
        "client",
        shared=False,
        not_applicable="fedavg shares no style_statistics",
    )
    found = judged(one)
    assert (found.verdict, found.verdict_domain) == ("not_applicable", "not_applicable")
    assert found.reason == found.reason_domain == "fedavg shares no style_statistics"
    assert (found.n, found.metrics, found.units) == (0, {}, None)


def test_what_is_not_applicable_does_not_weigh_on_the_rest() -> None:
    """Family 1 leaves not-applicable cells out of the correction."""
    none = {f"n{i}": Paper(Reader(), threat("server"), STYLES, "client", False, not_applicable="no") for i in range(50)}
    alone, among = judged(paper(LEAKS)), judge({"x": paper(LEAKS), **none}, 0)["x"]
    assert alone.leakage.p_corrected == among.leakage.p_corrected


# The two lines


def test_a_pure_domain_leak_is_no_leak_of_the_client() -> None:
    """Another client of the same domain does as well, so what leaks is the domain."""
    whole = marks(8, 2.0, {**CHANCE, "other_client": 2.1, "domain_mean": 2.0})
    found = judged(paper(whole))
    assert (found.verdict, found.verdict_domain) == ("no_leak_found", "leak")
    assert "other_client" in found.leakage.against
    assert found.leakage_domain is not None
    assert set(found.leakage_domain.against) == set(DOMAIN_LINE)
    assert {"other_client", "domain_mean"}.isdisjoint(found.leakage_domain.against)


def test_the_domain_line_does_not_read_the_other_client_at_all() -> None:
    """Not even a control that is absurdly good."""
    plain = judged(paper(marks(9, 2.0)))
    absurd = marks(9, 2.0)
    absurd.headline["other_client"] = [1e9] * len(CLIENTS)
    found = judged(paper(absurd))
    assert found.verdict == "no_leak_found"
    assert found.verdict_domain == plain.verdict_domain == "leak"
    assert found.leakage_domain is not None
    assert plain.leakage_domain is not None
    assert found.leakage_domain.p == plain.leakage_domain.p
    assert found.leakage_domain.margin == plain.leakage_domain.margin


def test_without_another_client_of_the_domain_the_client_line_is_inconclusive() -> None:
    controls = {name: level for name, level in CHANCE.items() if name != "other_client"}
    found = judged(paper(marks(10, 2.0, controls)))
    assert (found.verdict, found.reason) == ("inconclusive", NO_OTHER_CLIENT)
    assert found.verdict_domain == "leak"


def test_without_another_domain_the_domain_line_is_inconclusive() -> None:
    controls = {name: level for name, level in CHANCE.items() if name != "other_domain"}
    found = judged(paper(marks(10, 2.0, controls)))
    assert found.verdict_domain == "inconclusive"
    assert "domain" in (found.reason_domain or "")


def test_an_attack_that_asks_for_the_domain_has_no_client_line() -> None:
    found = judged(paper(marks(11, 2.0), attack=OfDomains()))
    assert (found.verdict, found.verdict_domain) == ("not_applicable", "leak")
    assert found.reason
    assert found.positive_control is not None
    assert set(found.positive_control.controls) == set(DOMAIN_LINE)


def test_only_who_knows_the_domain_is_tested_against_its_mean() -> None:
    strong = {**CHANCE, "domain_mean": 3.0}
    assert judged(paper(marks(12, 2.0, strong), role="server")).verdict == "no_leak_found"
    ignorant = judged(paper(marks(12, 2.0, strong), role="third_party"))
    assert ignorant.verdict == "leak"
    assert "domain_mean" not in ignorant.leakage.against


# Signs, units, tables


def test_less_is_more_where_the_metric_says_so() -> None:
    single = marks(1, 2.0, per_client=4, sign=-1)
    leak = judged(paper(marks(13, 2.0, sign=-1), single, LessIsMore()))
    assert leak.verdict == leak.verdict_domain == "leak"
    assert leak.metrics["accuracy"].direction == "lower_leaks"
    worse = judged(paper(marks(13, 2.0, sign=1), single, LessIsMore()))
    assert worse.verdict == worse.verdict_domain == "no_leak_found"


def test_hits_without_a_miss_can_be_judged() -> None:
    """0 and 1 only: the interval comes from the bounds of the metric."""
    whole = marks(14, 1.0, spread=0.0)
    single = marks(14, 1.0, per_client=4, spread=0.0)
    found = judged(paper(whole, single, Bounded()))
    assert found.verdict == found.verdict_domain == "leak"


def test_images_of_one_client_are_one_unit() -> None:
    """AUDIT 3: clients, not images, are resampled; ten images of each of three clients are three units."""
    rng = np.random.default_rng(0)
    clients = [client for client in CLIENTS[:3] for _ in range(10)]
    headline: Scores = {"attack": (2 + 0.1 * rng.normal(size=30)).tolist()}
    headline |= {name: (0.1 * rng.normal(size=30)).tolist() for name in CLIENT_LINE}
    found = judged(paper(Marks(units=clients, clients=clients, headline=headline)))
    assert found.units is not None
    assert found.units.n == 3
    assert found.verdict == "inconclusive"  # three units cannot reach p <= 0.025


def test_shadows_are_counted() -> None:
    one = paper(marks(15, 2.0))
    one.shadows = frozenset({*CLIENTS[:5], "shadow-99"})
    found = judged(one)
    assert found.units is not None
    assert (found.units.kind, found.units.n, found.units.federated, found.units.shadows) == ("client", 12, 7, 5)
    one.level = "image"
    found = judged(one)
    assert found.units is not None
    assert (found.units.kind, found.units.n, found.units.federated, found.units.shadows) == ("target", 48, 7, 5)


def test_the_verdict_is_about_the_artifact_on_the_wire() -> None:
    """A client-level style is judged by whole clients; the single image beside it is the positive control."""
    one = paper(marks(16, 0.0))
    found = judged(one)
    assert found.artifact == "style_statistics:client"
    assert found.metrics["accuracy"].value == pytest.approx(0.0, abs=0.3)
    assert found.upper_bounds["single_image"]["accuracy"].value == pytest.approx(2.0, abs=0.2)
    assert [point.images for point in found.curve] == [1, None]
    one.level = "image"
    found = judged(one)
    assert found.artifact == "style_statistics:image"
    assert found.verdict == "leak"


def test_the_tables_hold_what_was_marked() -> None:
    whole = marks(17, 2.0, {**CHANCE, "autoencoder": 4.0, "nearest_own": 3.0})
    whole.details = {"lpips[x]": {"attack": [0.5] * 12, "noise": [0.9] * 12}}
    found = judged(paper(whole))
    assert found.metrics["accuracy"].value == pytest.approx(np.mean(whole.headline["attack"]))
    assert found.metrics["accuracy"].n == 12
    assert found.metrics["lpips[x]"].value == 0.5
    assert found.metrics["lpips[x]"].direction == "lower_leaks"
    assert set(found.controls) == set(CLIENT_LINE)
    assert found.controls["noise"]["lpips[x]"].value == 0.9
    for name in CLIENT_LINE:
        assert found.controls[name]["accuracy"].value == pytest.approx(np.mean(whole.headline[name]))
    assert {"autoencoder", "nearest_own", "single_image"} == set(found.upper_bounds)
    assert found.leakage.value == pytest.approx(0.5, abs=0.15)  # half way from the controls to the autoencoder
    assert found.threat.role == "server"
    assert found.headline == "accuracy"


def test_leakage_is_null_with_a_reason_where_there_is_no_bound() -> None:
    found = judged(paper(marks(18, 2.0)))
    assert found.leakage.value is None
    assert found.leakage.reason
    assert found.leakage.p is not None


def test_an_attack_on_every_layer_is_proved_on_the_deepest() -> None:
    one = Paper(Reader(), threat("server"), STYLES, "image", shared=False, marks={1: FAILS})
    one.by_layer = {"layer1": FAILS, "layer4": LEAKS}
    found = judged(one)
    assert found.verdict == "no_leak_found"
    assert found.positive_control is not None
    assert found.positive_control.succeeded
    assert found.metrics["accuracy@layer4"].value == pytest.approx(2.0, abs=0.2)
    assert found.metrics["accuracy@layer1"].value == pytest.approx(0.0, abs=0.2)
    assert found.shared is False


def test_equal_marks_are_judged_equally_whatever_the_seed_of_others() -> None:
    one = judge({"x": paper(marks(19, 2.0))}, 3)["x"]
    again = judge({"x": paper(marks(19, 2.0))}, 3)["x"]
    assert json.dumps(one.model_dump(mode="json")) == json.dumps(again.model_dump(mode="json"))


@pytest.mark.slow
def test_a_report_of_null_papers_rarely_says_leak() -> None:
    """No more than 4 in 100 reports of five papers in which nothing leaks."""
    alarms = 0
    for seed in range(100):
        papers = {str(i): paper(marks(1000 * seed + i, 0.0), single=FAILS) for i in range(5)}
        found = judge(papers, seed).values()
        alarms += any("leak" in (row.verdict, row.verdict_domain) for row in found)
    assert alarms <= 4


# Several rounds


def over_rounds(level: float) -> Paper:
    """Whole clients and single images read over one round, where nothing leaks, and over three, at this level."""
    one = paper(marks(3, 0.0))
    one.by_rounds = [
        (rounds, size, marks(4 + rounds, at, spread=0.2)) for rounds, at in ((1, 0.0), (3, level)) for size in (5, None)
    ]
    return one


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


def test_no_rise_is_found_where_rounds_say_the_same() -> None:
    found = judged(over_rounds(0.0))
    assert all(p.p_rise is None or p.p_rise > LEVEL for p in found.rounds)
    assert found.rounds[-1].verdict == "no_leak_found"


def test_questions_over_rounds_change_no_other_mark() -> None:
    with_rounds, without = judged(over_rounds(0.0)), judged(paper(marks(3, 0.0)))
    assert with_rounds.metrics == without.metrics
    assert with_rounds.curve == without.curve
