"""Trust: the weight between what an artifact tells and what the adversary predicts without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
<<<<<<< HEAD
from conftest import TARGET, Evaluator, Fitted
=======
>>>>>>> trusttests
from factories_core import observation, style, truth
from torch import Tensor

from fdgpriv.adversary import Adversary, GroundTruth, Prediction
<<<<<<< HEAD
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.evaluation.auxiliary import AuxiliaryData
from fdgpriv.evaluation.calibration import Calibration, CalibrationLayout
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, ScoredObservation, TrialNeeds
from fdgpriv.evaluation.trust import trust, weight_of
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.threat import THREATS, Auxiliary, threat

EACH_ROLE = pytest.mark.parametrize("role", THREATS)
SHIFTED = {"server": False, "client": True, "third_party": True, "insider": False}


@pytest.fixture(scope="module")
def by_role(evaluator: Evaluator) -> Mapping[str, list[AdversaryTrials]]:
    return {role: evaluator.style_adversaries(threat(role), (1, None)) for role in THREATS}


def keys(images: Tensor) -> set[str]:
    return {sha1(image.contiguous().numpy().tobytes()).hexdigest() for image in images}


# The adversary's images


@pytest.mark.parametrize("kind", [Auxiliary.SAME_DOMAINS, Auxiliary.OWN_DOMAIN, Auxiliary.OTHER_DOMAIN])
def test_practice_and_held_back_images_are_the_public_ones_in_two_parts(fitted: Fitted, kind: Auxiliary) -> None:
    population = fitted.population
    held, holder = AuxiliaryData(population, 3), population.sources[1]
    practice, back = held.practice(kind, holder, {}), held.held_back(kind, holder)
    whole = {
        Auxiliary.SAME_DOMAINS: list(population.auxiliary.values()),
        Auxiliary.OWN_DOMAIN: [population.auxiliary[holder]],
        Auxiliary.OTHER_DOMAIN: [population.target],
    }[kind]
    assert [d.name for d in practice] == [d.name for d in back] == [d.name for d in whole]
    for own, kept, every in zip(practice, back, whole, strict=True):
        assert len(own) > len(population.dataset.classes)
        assert len(own) + len(kept) == len(every)
        assert keys(own.images) | keys(kept.images) == keys(every.images)
        assert len(keys(every.images)) == len(every)  # so that the two parts are disjoint
    again = held.practice(kind, holder, {}), held.held_back(kind, holder)
    assert all(a.images is b.images for a, b in zip((*practice, *back), (*again[0], *again[1]), strict=True))
    assert (whole[0].name == TARGET) is (kind is Auxiliary.OTHER_DOMAIN)


@pytest.mark.parametrize(("public", "kept"), [(11, 0), (12, 1), (13, 2), (16, 4), (40, 10)])
def test_of_few_public_images_more_than_there_are_classes_are_for_practice(
    fitted: Fitted, public: int, kept: int
) -> None:
    few = {name: domain.take(torch.arange(public)) for name, domain in fitted.population.auxiliary.items()}
    held = AuxiliaryData(replace(fitted.population, auxiliary=few), 0)
    assert [len(domain) for domain in held.held_back(Auxiliary.SAME_DOMAINS, "")] == [kept] * 3
    assert [len(domain) for domain in held.practice(Auxiliary.SAME_DOMAINS, "", {})] == [public - kept] * 3


def test_leaked_images_are_for_practice_and_never_held_back(fitted: Fitted) -> None:
    population, held = fitted.population, AuxiliaryData(fitted.population, 0)
    leaked = {name: torch.tensor([0, 2]) for name in population.clients}
    for d, domain in enumerate(held.practice(Auxiliary.LEAKED, "", leaked)):
        own = [data.images[:3:2] for name, data in population.clients.items() if population.main_domain(name) == d]
        public = held.practice(Auxiliary.SAME_DOMAINS, "", {})[d].images
        assert torch.equal(domain.images, torch.cat([public, *own]))
    pairs = zip(held.held_back(Auxiliary.LEAKED, ""), held.held_back(Auxiliary.SAME_DOMAINS, ""), strict=True)
    assert all(a.images is b.images for a, b in pairs)
    assert held.held_back(Auxiliary.NONE, "") == held.practice(Auxiliary.NONE, "", {}) == ()


# Simulated artifacts


@EACH_ROLE
def test_calibration_is_on_simulated_clients_with_held_back_images(
    by_role: Mapping[str, list[AdversaryTrials]], evaluator: Evaluator, role: str
) -> None:
    clients = evaluator.population.clients.values()
    private = set().union(*(keys(data.images) | keys(data.held_out_images) for data in clients))
    for one in by_role[role]:
        assert one.shifted is SHIFTED[role] is (len(one.adversary.held_back) == 1)
        assert len({trial.client for trial in one.calibration}) == 9
        assert [trial.size for trial in one.calibration].count(1) == 18
        held_back = set().union(*(keys(domain.images) for domain in one.adversary.held_back))
        for trial in one.calibration:
            known = trial.one.truth
            assert trial.client not in evaluator.population.clients
            assert known.count == trial.one.observation.n_images == (one.adversary.typical if trial.size is None else 1)
            shown = torch.cat([known.images, known.pool[known.candidates.flatten()]])
            assert not keys(shown) & private
            assert one.shifted or keys(shown) <= held_back
            assert not one.shifted or not keys(shown) & held_back


@EACH_ROLE
def test_candidates_of_simulated_artifacts_are_the_simulated_clients_images(
    by_role: Mapping[str, list[AdversaryTrials]], role: str
) -> None:
    for one in by_role[role]:
        for trial in one.calibration:
            seen, known = trial.one.observation, trial.one.truth
            assert torch.equal(seen.candidates, known.candidates)
            assert torch.equal(seen.membership_candidates, known.membership_candidates)
            assert one.adversary.candidates is known.pool
            for row, position in enumerate(known.positions.tolist()):
                assert torch.equal(known.pool[seen.candidates[row, position]], known.images[row])
            candidates = known.pool[seen.membership_candidates]
            members, others = candidates[known.members], candidates[~known.members]
            both = min(len(members), len(known.images))
            assert torch.equal(members[:both], known.images[:both])
            assert len(others) > 0
            assert not keys(members) & keys(others)


def test_nothing_is_simulated_for_global_and_joint_artifacts_or_without_images(evaluator: Evaluator) -> None:
    held: Any = [(0, evaluator.population.auxiliary[evaluator.population.sources[0]], None)]
    layout = CalibrationLayout(evaluator.population, Any, evaluator._maker, TrialNeeds(), 20, 0)  # type: ignore[arg-type]

    def found(target: Any, held_back: Any = held) -> Calibration:
        return replace(layout, target=target).calibration(held_back, (1, None), torch.empty(0, 3, 32, 32), "a", False)

    target = evaluator.target(StyleStatistics.kind)
    empty = held[0][1].take(torch.arange(0))
    for none in (
        found(SimpleNamespace(is_global=True, joint=False)),
        found(SimpleNamespace(is_global=False, joint=True)),
        found(target, []),
        found(target, [(0, empty, None)]),
    ):
        assert none.trials == ()
        assert none.pool is None
    assert len(found(target).trials) == 9 * 3

=======
from fdgpriv.evaluation.scores import Scores, averaged
from fdgpriv.evaluation.trial import CalibrationTrial, ScoredObservation
from fdgpriv.evaluation.trust import trust, weight_of
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.threat import threat
>>>>>>> trusttests

# The weight


@dataclass(frozen=True)
class Table(Task):
    """A prediction is a weight, its score is looked up by weight and client."""

    rows: Mapping[float, Sequence[float]]
    sign: int = 1
    hides: bool = False
    blind: bool = False
    secret, metric, relevant = "content", "gain", 1.0

    @property
    def higher_leaks(self) -> bool:  # type: ignore[override]
        return self.sign > 0

    @property
    def hides_size(self) -> bool:  # type: ignore[override]
        return self.hides

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        table = {0.0: [0.0] * 9, **self.rows}
        lost = [-1e3] * 9
        return torch.tensor(
            [self.sign * table.get(float(p), lost)[t.count] for p, t in zip(predictions, truths, strict=True)]
        )

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        return {}

    def unaided(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction | None:
        return None if self.blind else torch.tensor(0.0)

    def askable(self, truth: GroundTruth) -> bool:
        return truth.place == -1


def trusted(
    task: Task, clients: Sequence[int], *, shifted: bool = False, sizes: Sequence[int | None] = (), places: Any = ()
) -> Mapping[int | None, float]:
    """The trust in attacks that are sure, on one artifact of each of these clients."""
    adversary: Any = SimpleNamespace(threat=threat("third_party"), sources=("a",))
    trials = [
        CalibrationTrial(
            f"client {client}", size, ScoredObservation(observation(style()), truth(count=client, place=at))
        )
        for client, size, at in zip(clients, sizes or [None] * len(clients), places or [-1] * len(clients), strict=True)
    ]
    return trust(task, adversary, trials, [torch.tensor(1.0)] * len(trials), shifted)


SPREAD = {0.25: [0, 1, 1, 1, 1], 0.75: [-1, 0.5, 9, 9, 9], 1.0: [-9, -1, 50, 50, 50]}  # second least: 1, 0.5, -1
EVEN = {0.25: [4, 4, 4, 4], 0.75: [4, 4, 4, 3], 1.0: [3, 3, 4, 3]}  # lost: 0, 0.25 +- 0.25, 0.75 +- 0.25


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("rows", "shifted", "weight"),
    [
        (SPREAD, True, 0.25),  # the lower quartile of clients decides
        (SPREAD | {0.5: SPREAD[0.25]}, True, 0.5),  # the largest of equal ones
        ({1.0: [-9, -1, 50, 50, 50]}, True, 0.0),
        ({1.0: [-9, 0, 50, 50, 50]}, True, 1.0),
        (EVEN, False, 0.75),  # the largest within one standard error
        (EVEN | {1.0: [4, 3, 4, 4]}, False, 1.0),
        ({1.0: [-1, -1, -1, -1]}, False, 0.0),
        ({1.0: [-1, 2, -2, -2]}, False, 1.0),  # a loss that may be chance
    ],
)
def test_the_weight_of_made_up_gains(
    rows: Mapping[float, Sequence[float]], shifted: bool, weight: float, sign: int
) -> None:
    assert trusted(Table(rows, sign), range(len(rows[1.0])), shifted=shifted) == {None: weight}


def test_the_artifacts_of_one_client_count_as_one() -> None:
    """Three artifacts of a client that gains 2 do not outweigh two clients that lose 3."""
    assert trusted(Table({1.0: [2, -3, -3.1]}), [0] * 9 + [1, 2]) == {None: 1.0}  # -1.4 +- 1.7
    assert trusted(Table({1.0: [2, -9, -9.1]}), [0] * 9 + [1, 2]) == {None: 0.0}  # -5.4 +- 3.7
    assert trusted(Table({1.0: [-1]}), [0]) == {None: 0.0}


def test_each_size_has_its_weight_but_where_it_is_the_secret() -> None:
    rows = {1.0: [1.0, -1.0]}
    assert trusted(Table(rows), [0, 0, 1], sizes=[1, 5, None]) == {1: 1.0, 5: 1.0, None: 0.0}
    assert trusted(Table(rows, hides=True), [0, 0, 0, 0], sizes=[1, 5, None, 2]) == {None: 1.0}
    assert trusted(Table(rows), [0, 1], sizes=[1, 1], places=[-1, 0]) == {1: 1.0}  # the second is not askable
    assert trusted(Table(rows, blind=True), [0, 1]) == trusted(Table(rows), []) == {}


def test_the_weight_of_a_size_that_was_not_calibrated_is_that_of_the_next_smaller() -> None:
    found = {1: 0.25, 20: 0.75, None: 1.0}
    assert [weight_of(found, size) for size in (1, 5, 20, 25, None)] == [0.25, 0.25, 0.75, 0.75, 1.0]
    assert weight_of({5: 0.5, 20: 0.75}, 1) == weight_of({None: 0.5}, 3) == 0.5
    assert weight_of({5: 0.5, 20: 0.75}, None) == 0.75
    assert weight_of({}, 1) is None


def test_the_scores_of_repeats_are_averaged() -> None:
    def run(one: float, other: float, trusted: float | None) -> Scores:
        table = {"attack": [one, other], "noise": [other, one]}
        crossed = {"a": [one, one]}
        return Scores(["a/1", "b/1"], ["a", "b"], table, {"ssim": table}, crossed, {"attack": {}}, trusted)

    found = averaged([run(1, 2, 0.5), run(3, 5, 1.0), run(5, 2, 0.0)])
    assert (found.units, found.clients, found.realism) == (["a/1", "b/1"], ["a", "b"], {"attack": {}})
    assert found.headline == found.details["ssim"] == {"attack": [3, 3], "noise": [3, 3]}
    assert found.crossed == {"a": [3, 3]}
    assert found.trust == 0.5
    assert averaged([run(1, 2, None), run(2, 3, None)]).trust is None
    assert averaged([run(1, 2, 0.5)]) == run(1, 2, 0.5)
