"""Planted leaks: how they are mixed into artifacts, how often they are found, and where that is asked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Evaluator
from factories import equal, leads
from factories_core import model_state, style
from factories_scores import conditions

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.planted import WEIGHTS, planted_power, undecided
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials, Trial
from fdgpriv.simulation.mixture import Mixture, identity
from fdgpriv.simulation.planted import Plant
from fdgpriv.statistics.questions import Absent, Evidence
from fdgpriv.statistics.resolution import power
from fdgpriv.statistics.rule import Test as Outcome
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores

planting: Any = import_module("fdgpriv.evaluation.planted")


# Mixtures


def test_a_mixture_runs_from_one_artifact_to_the_other() -> None:
    base, leak = style("photo", 0), style("sketch", 1)
    for weight in (0.0, 0.3, 1.0):
        found = Mixture(base, leak, weight).artifact()
        assert (found.client, found.round) == ("photo", 0)
        assert found.facts() == base.facts()
        for name, tensor in found.tensors().items():
            wanted = [
                (1 - weight) * a + weight * b
                for a, b in zip(base.tensors()[name].tolist(), leak.tensors()[name].tolist(), strict=True)
            ]
            torch.testing.assert_close(tensor, torch.tensor(wanted))
    assert equal(Mixture(base, leak, 0.0).artifact().tensors(), base.tensors())
    assert equal(Mixture(base, leak, 1.0).artifact().tensors(), leak.tensors())


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_counters_are_not_mixed(weight: float) -> None:
    base = model_state(weight=torch.zeros(2), steps=torch.tensor(3))
    leak = model_state(weight=torch.ones(2), steps=torch.tensor(8))
    found = Mixture(base, leak, weight).artifact().tensors()
    torch.testing.assert_close(found["weight"], torch.full((2,), weight))
    assert found["steps"].dtype is torch.int64
    assert int(found["steps"]) == 3


# The weight at which a leak matters

CLIENTS = [f"c{i}" for i in range(12)]


def scores(mean: float, sd: float = 1.0, sizes: int = 1) -> TrialScores:
    """TrialScores with this lead over every control, the same for all targets of a client."""
    found, clients = leads(mean, len(CLIENTS), 1, sd)[:, 0].repeat(sizes), np.repeat(CLIENTS, sizes).tolist()
    levels = dict.fromkeys(("noise", "mean_image", "other_client", "other_domain"), [10.0] * len(clients))
    return TrialScores(clients, clients, {"attack": (10 + found).tolist(), **levels})


@dataclass(frozen=True)
class Reading(Attack):
    """Predicts the public mean, half and half with the image of the line-up that has the nearest style unless it is blind."""

    blind: bool = False
    reads = (StyleStatistics,)
    task = Images()
    threats = ("server",)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        mean = adversary.public_images[0].mean(0)
        if self.blind:
            return Predictions([mean] * len(observations))
        styles = torch.cat(adversary.styles(adversary.candidates), dim=1)
        found = []
        for one in observations:
            row = one.candidates[0]
            wanted = torch.cat([one.artifact.tensors()["mean"], one.artifact.tensors()["std"]])
            nearest = adversary.candidates[row[(styles[row] - wanted).square().sum(1).argmin()]]
            found.append((nearest + mean) / 2)
        return Predictions(found)


def entry(by_size: Mapping[int | None, TrialScores], attack: Attack | None = None, **given: Any) -> AttackScores:
    made = {"level": "client", "shared": True, "conditions": conditions(by_size), **given}
    return attack_scores(attack or Reading(), threat("server"), StyleStatistics.kind, **made)


@pytest.mark.parametrize(
    ("means", "share", "before"),
    [
        ((0.0, 0.5, 3.0, 9.0), 0.2, 1),  # 0.5 + 0.2 * 2.5 is the relevant effect of 1 dB
        ((0.0, 4.0, 8.0, 9.0), 0.25, 0),
        ((0.0, 0.0, 0.0, 1.0), 1.0, 2),
        ((1.5, 2.0, 3.0, 4.0), 0.0, 0),  # there without any planted leak
    ],
)
def test_a_leak_is_looked_for_where_it_just_matters(means: Sequence[float], share: float, before: int) -> None:
    by_weight = [scores(mean, 0.8 + i) for i, mean in enumerate(means)]
    one = entry({None: by_weight[0]})
    low, high = (one.lead_test("client", by_weight[i]).leads() for i in (before, min(before + 1, 3)))
    wanted = power((1 - share) * low + share * high, np.random.default_rng(7))
    assert planting._power_at_relevant_lead(one, "client", by_weight, 7) == wanted


def test_a_failed_positive_control_finds_nothing() -> None:
    for means in ((0.0, 0.2, 0.5, 0.9), (0.0, 0.0, 0.0, 0.0), (-1.0, -1.0, -1.0, -1.0)):
        by_weight = [scores(mean, 0.01) for mean in means]
        assert planting._power_at_relevant_lead(entry({None: by_weight[0]}), "client", by_weight, 0) == 0


def test_single_images_are_planted_first() -> None:
    """In relevant effects, 1 dB here; others only where they leak 1.5 times that."""
    by_size = {1: scores(2.0), 2: scores(3.0), 5: scores(2.9), 20: scores(1.6), None: scores(9.0)}
    assert planting._leaking_sizes(entry(by_size), ["client"]) == [1, 2]
    assert planting._leaking_sizes(entry({1: scores(9.0), 2: scores(1.4), None: scores(0.0)}), ["client"]) == [1]
    assert planting._leaking_sizes(entry({1: scores(0.0), 2: scores(1.6), None: scores(0.0)}), ["client"]) == [1, 2]
    assert planting._leaking_sizes(entry(by_size), []) == []


@pytest.mark.parametrize(
    ("powers", "evaluations", "share"),
    [
        ([0.97], 1, 0.97),
        ([0.9, 0.92], 2, 0.92),  # not clearly found with one artifact per client
        ([0.3, 0.6, 0.96], 3, 0.96),
        ([0.3, 0.6, 0.1, 0.85], 4, 0.85),
        ([0.3, 0.6, 0.1, 0.2], 4, 0.6),
    ],
)
def test_more_artifacts_only_where_needed(
    powers: list[float], evaluations: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[tuple[int, int]] = []

    def power_of(self: Any, scopes: Any, n: int, each: int) -> dict[str, float]:
        evaluated.append((n, each))
        return {"client": powers[len(evaluated) - 1]}

    monkeypatch.setattr(planting._Planting, "power", power_of)
    one = entry({1: scores(2.0), 5: scores(3.0), None: scores(0.0)})
    nothing: Any = None
    assert planted_power(nothing, nothing, one, ["client"], generator(0)) == {"client": share}
    assert evaluated == [(1, 1), (1, 6), (5, 1), (5, 6)][:evaluations]


def test_units_are_clients() -> None:
    lead_test: Any = entry({None: scores(2.0)}).lead_test("client", scores(2.0, sizes=3))
    torch.testing.assert_close(lead_test.leads()[:, 0].mean(), np.float64(2.0))
    assert lead_test.leads().shape == (12, 4)


# On a trained federation


@pytest.mark.parametrize("blind", [False, True])
def test_a_planted_leak_is_found_by_who_can_read(evaluator: Evaluator, blind: bool) -> None:
    trials = AttackTrials(evaluator, Reading(blind), threat("server"))
    adversaries = trials.adversaries(evaluator.series(StyleStatistics.kind), (1, None))
    one = entry(evaluate_trials(trials.attack, adversaries, (), generator(0))[0], trials.attack)
    found = planted_power(trials, adversaries, one, ("client",), generator(1))
    assert found.keys() == {"client"}
    assert found["client"] == 0 if blind else found["client"] > 0.5
    assert planted_power(trials, adversaries, one, (), generator(1)) == {}
    whole = [replace(a, trials=[t for t in a.trials if t.size is None]) for a in adversaries]
    assert planted_power(trials, whole, one, ("client",), generator(1)) == {}


def test_single_artifacts_are_evaluated_once(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = AttackTrials(evaluator, Reading(), threat("server"))
    adversaries = trials.adversaries(evaluator.series(StyleStatistics.kind), (1, None))
    scores_of_all = entry(evaluate_trials(trials.attack, adversaries, (), generator(0))[0], trials.attack)

    def first_of_each(trials: Sequence[Trial]) -> list[Trial]:
        return list({(trial.client, trial.size): trial for trial in reversed(trials)}.values())

    cut = [replace(adversary_trials, trials=first_of_each(adversary_trials.trials)) for adversary_trials in adversaries]
    monkeypatch.setattr(planting, "HIGH_POWER", 1.1)  # so that more artifacts are always wanted
    evaluated: list[int] = []
    evaluate = planting.evaluate_tasks

    def counted(attack: Attack, planted: Sequence[AdversaryTrials], *more: Any) -> Any:
        evaluated.append(sum(len(adversary_trials.trials) for adversary_trials in planted))
        return evaluate(attack, planted, *more)

    monkeypatch.setattr(planting, "evaluate_tasks", counted)
    planted_power(trials, cut, scores_of_all, ("client",), generator(1))
    once = len(evaluated)
    planted_power(trials, adversaries, scores_of_all, ("client",), generator(1))
    assert 0 < once <= len(WEIGHTS)
    assert len(evaluated) - once > once  # of several artifacts a client, the second number is another evaluation
    assert max(evaluated[once:]) > max(evaluated[:once])


@pytest.mark.parametrize("size", [None, 1])
def test_a_planted_trial_asks_of_few_images(evaluator: Evaluator, size: int | None) -> None:
    """In the client's whole artifact; where single images are shared, in another client's of the domain."""
    (one,) = evaluator.style_adversaries(threat("server"), (1, None))
    whole = {trial.client: trial for trial in one.trials if trial.size is None}
    planted_trials = {weight: planting._planted(one, size, 1, weight, 6, 3) for weight in WEIGHTS}
    place: Counter[tuple[str, float]] = Counter()
    for weight, trial in ((weight, trial) for weight, found in planted_trials.items() for trial in found.trials):
        leak = [t for t in one.trials if t.client == trial.client and t.size == 1][place[trial.client, weight]]
        place[trial.client, weight] += 1
        last = [t for t in one.trials if t.client == trial.client and t.size == 1][-1]
        where = (whole[trial.client].by_role["attack"] if size is None else last.by_role["other_client"])[0]
        base = where.observation
        planted, single = trial.by_role["attack"][0], leak.by_role["attack"][0]
        assert (trial.unit, trial.given) == (trial.client, {})
        assert planted.truth.members is single.truth.members
        # what either client trained on is no non-member
        assert planted.truth.senders == (*single.truth.senders, *where.truth.senders)
        assert torch.equal(planted.observation.candidates, single.observation.candidates)
        assert planted.observation.n_images == base.n_images
        wanted = Mixture(base.artifact, single.observation.artifact, weight).artifact()
        assert equal(planted.observation.artifact.tensors(), wanted.tensors())
        known = {0: identity(base.sent), 1: identity(single.observation.sent)}  # caches know these
        assert [w for w, number in known.items() if number == identity(planted.observation.sent)] == [weight] * (
            weight in known
        )
    singles = [c for c in one.calibration if c.size == 1]
    assert {len(found.calibration) for found in planted_trials.values()} == {len(singles)} != {0}
    known = {(c.client, c.size): c.scored for c in one.calibration}
    for trial in planted_trials[0.0].calibration:  # the artifact that a leak is planted in
        tensors = trial.scored.observation.artifact.tensors()
        bases = {
            client: other.truth.domain
            for (client, n), other in known.items()
            if n == size and equal(other.observation.artifact.tensors(), tensors)
        }
        if size is None:
            assert list(bases) == [trial.client]
        else:
            assert bases.keys() - {trial.client}  # two simulated clients may hold the same image
            assert set(bases.values()) == {trial.scored.truth.domain}


def test_practice_has_the_same_planted_leak(evaluator: Evaluator) -> None:
    """Each of few images, mixed at the trials' weight with one of a whole client of the same images, and told so."""
    (one,) = evaluator.style_adversaries(threat("server"), (1, None))
    weights = (0.0, 0.4, 1.0)
    domain, own = one.adversary.domains[0], one.adversary
    plant = Plant(0.0, own.typical, False, own.seed)
    found = [
        planting._with_plant(planting._planted(one, None, 1, weight, 6, 3), 1, replace(plant, weight=weight))
        for weight in weights
    ]

    def mean(index: Sequence[int]) -> torch.Tensor:
        return own.simulate(domain.images, domain.labels, torch.tensor(index), generator(0)).tensors()["mean"]

    single, covers = mean([3]), list[torch.Tensor]()
    for planted, weight in zip(found, weights, strict=True):
        adversary = planted.adversary
        assert adversary.sizes == (1,)
        assert adversary.cache is not own.cache
        assert {o.n_images for trial in planted.trials for o in trial.observations()} == {1}
        assert {c.scored.observation.n_images for c in planted.calibration} == {1}
        made = adversary.simulate(domain.images, domain.labels, torch.tensor([3]), generator(0))
        (again,) = adversary.simulate_jointly([(domain, torch.tensor([3]))], generator(0))
        assert equal(made.tensors(), again.tensors())
        if weight < 1:
            covers.append((made.tensors()["mean"] - weight * single) / (1 - weight))
        else:
            torch.testing.assert_close(made.tensors()["mean"], single)
    torch.testing.assert_close(*covers)  # drawn by the same generator from the same simulated clients
    of_domain = [mean(torch.randperm(len(domain), generator=generator(i))[: own.typical].tolist()) for i in range(6)]
    between = max(float((a - b).norm()) for a in of_domain for b in of_domain)
    assert min(float((covers[0] - whole).norm()) for whole in of_domain) < between
    assert float((covers[0] - single).norm()) > between


SEEN = Outcome(0.1, -0.2, 0.4, 0.3, 12, "noise", {})
POSITIVE = replace(SEEN, difference=3.0, p=0.001)
OPEN = Evidence(SEEN, 1.0, POSITIVE)


@pytest.mark.parametrize(
    ("evidence", "asked"),
    [
        (OPEN, True),
        (replace(OPEN, test=replace(SEEN, p=0.026)), True),
        (replace(OPEN, test=replace(SEEN, p=0.021)), True),
        (replace(OPEN, test=replace(SEEN, p=0.019)), False),  # a leak, before the correction
        (replace(OPEN, test=replace(SEEN, p=None)), False),
        (replace(OPEN, test=replace(SEEN, upper=1.0)), False),  # too coarse
        (replace(OPEN, test=replace(SEEN, upper=None)), False),
        (replace(OPEN, positive=replace(POSITIVE, p=0.03)), False),  # weak
        (replace(OPEN, positive=replace(POSITIVE, difference=0.9)), False),
        (replace(OPEN, positive=None), False),
        (Absent("no other client"), False),
    ],
)
def test_planted_leaks_are_sought_where_needed(evidence: Evidence | Absent, asked: bool) -> None:
    by_scope = {"client": evidence, "domain": OPEN}
    one: Any = SimpleNamespace(shared=True, exact=False)
    assert undecided(one, by_scope, 1) == (["client", "domain"] if asked else ["domain"])
    assert undecided(SimpleNamespace(shared=False, exact=False), by_scope, 1) == []  # type: ignore[arg-type]
    assert undecided(SimpleNamespace(shared=True, exact=True), by_scope, 1) == []  # type: ignore[arg-type]


def test_simes_may_raise_p() -> None:
    by_scope = {"client": replace(OPEN, test=replace(SEEN, p=0.009))}
    one: Any = SimpleNamespace(shared=True, exact=False)
    assert [undecided(one, by_scope, asking) for asking in (1, 2, 3)] == [[], [], ["client"]]
