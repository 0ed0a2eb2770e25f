"""Trust: the weight between what an artifact tells and what the adversary predicts without it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from factories_core import observation, style, truth
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.evaluation.artifact_weight import artifact_weights, weight_at
from fdgpriv.evaluation.scoring import averaged
from fdgpriv.evaluation.trial import CalibrationTrial, ScoredObservation
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.threat import threat
from fdgpriv.verdicts.trial_scores import TrialScores

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

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction | None:
        return None if self.blind else torch.tensor(0.0)

    def askable(self, truth: GroundTruth) -> bool:
        return truth.earlier_index == -1


def trusted(
    task: Task,
    clients: Sequence[int],
    *,
    shifted: bool = False,
    sizes: Sequence[int | None] = (),
    places: Any = (),
    named: Sequence[str] = (),
) -> Mapping[int | None, float]:
    """The trust in attacks that are sure, on one artifact of each of these rows, which are `named` clients' or each its own."""
    names = named or [f"client {client}" for client in clients]
    adversary: Any = SimpleNamespace(threat=threat("third_party"), sources=("a",))
    trials = [
        CalibrationTrial(name, size, ScoredObservation(observation(style()), truth(count=client, earlier_index=at)))
        for name, client, size, at in zip(
            names, clients, sizes or [None] * len(clients), places or [-1] * len(clients), strict=True
        )
    ]
    return artifact_weights(task, adversary, trials, [torch.tensor(1.0)] * len(trials), shifted)


SPREAD = {0.25: [1, 1, 2, 2, 2], 0.75: [-1, 0.5, 5, 5, 5], 1.0: [-9, -1, 50, 50, 50]}  # mean - 1.28 sd: 0.9, -0.9, -11
EVEN = {0.25: [4, 4, 4, 4], 0.75: [4, 4, 4, 3], 1.0: [3, 3, 4, 3]}  # lost: 0, 0.25 +- 0.25, 0.75 +- 0.25
CLOSE = EVEN | {0.75: [4, 4, 4, 3.7]}  # lost: 0.075 +- 0.075


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("rows", "shifted", "weight"),
    [
        (SPREAD, True, 0.25),  # the lowest decile of looks decides
        (SPREAD | {0.5: SPREAD[0.25]}, True, 0.5),  # the largest of equal ones
        ({1.0: [-9, -1, 50, 50, 50]}, True, 0.0),
        ({1.0: [-1, 8, 9, 8, 9]}, True, 1.0),  # 6.6 - 1.28 * 4.3
        (EVEN, False, 0.25),
        (CLOSE, False, 0.75),  # the largest within one standard error
        (CLOSE | {1.0: [4, 3.7, 4, 4]}, False, 1.0),
        ({1.0: [-1, -1, -1, -1]}, False, 0.0),
        ({1.0: [0.5, -0.5, 0.2, 0.1]}, False, 0.0),  # 0.08 +- 0.2: a gain that may be chance
        ({1.0: [0.5, 0.1, 0.2, 0.1]}, False, 1.0),  # 0.23 +- 0.09
        ({1.0: [-1, 2, -2, -2]}, False, 0.0),
    ],
)
def test_the_weight_of_made_up_gains(
    rows: Mapping[float, Sequence[float]], shifted: bool, weight: float, sign: int
) -> None:
    assert trusted(Table(rows, sign), range(len(rows[1.0])), shifted=shifted) == {None: weight}


@dataclass(frozen=True)
class Errors(Table):
    """A prediction is a weight, its error is looked up by weight and client."""

    compares_ratios = True

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        return torch.tensor([self.rows[round(float(p), 2)][t.count] for p, t in zip(predictions, truths, strict=True)])


def test_ratios_of_errors_are_compared() -> None:
    """Every look's error falls to a third, by .0002 to .2: of the gains themselves the lowest decile is below 0."""
    blind = [0.0003, 0.003, 0.03, 0.3]
    rows = {weight / 4: [error * (1 - weight / 6) for error in blind] for weight in range(5)}
    assert trusted(Errors(rows, -1), range(4), shifted=True) == {None: 1.0}
    gains = {weight: [blind[i] - error for i, error in enumerate(errors)] for weight, errors in rows.items()}
    assert trusted(Table(gains), range(4), shifted=True) == {None: 0.0}


def test_the_artifacts_of_one_client_count_as_one() -> None:
    """Nine artifacts of one client do not outweigh two clients."""
    assert trusted(Table({1.0: [2, -1.1, -1.1]}), [0] * 9 + [1, 2]) == {None: 0.0}  # -0.07 +- 1.03
    assert trusted(Table({1.0: [-1, 5, 5.1]}), [0] * 9 + [1, 2]) == {None: 1.0}  # 3.0 +- 2.0


def test_chance_within_a_look_is_taken_out() -> None:
    """Two looks that gain 1 and 2 on average, by artifacts that vary by 8."""
    rows = {1.0: [-7.0, 9.0, -6.0, 10.0]}
    assert trusted(Table(rows), [0, 1, 2, 3], shifted=True) == {None: 0.0}
    assert trusted(Table(rows), [0, 1, 2, 3], shifted=True, named=["a", "a", "b", "b"]) == {None: 1.0}
    assert trusted(Table({1.0: [-1]}), [0]) == {None: 0.0}


def test_each_size_has_its_weight() -> None:
    rows = {1.0: [1.0, -1.0]}
    assert trusted(Table(rows), [0, 0, 1], sizes=[1, 5, None]) == {1: 1.0, 5: 1.0, None: 0.0}
    assert trusted(Table(rows, hides=True), [0, 0, 0, 0], sizes=[1, 5, None, 2]) == {None: 1.0}
    assert trusted(Table(rows), [0, 1], sizes=[1, 1], places=[-1, 0]) == {1: 1.0}  # the second is not askable
    assert trusted(Table(rows, blind=True), [0, 1]) == trusted(Table(rows), []) == {}


def test_uncalibrated_sizes_have_the_next_smaller_weight() -> None:
    found = {1: 0.25, 20: 0.75, None: 1.0}
    assert [weight_at(found, size) for size in (1, 5, 20, 25, None)] == [0.25, 0.25, 0.75, 0.75, 1.0]
    assert weight_at({5: 0.5, 20: 0.75}, 1) == weight_at({None: 0.5}, 3) == 0.5
    assert weight_at({5: 0.5, 20: 0.75}, None) == 0.75
    assert weight_at({}, 1) is None


def test_the_scores_of_repeats_are_averaged() -> None:
    def run(one: float, other: float, trusted: float | None) -> TrialScores:
        table = {"attack": [one, other], "noise": [other, one]}
        crossed = {"a": [one, one]}
        return TrialScores(
            ["a/1", "b/1"], ["a", "b"], table, {"ssim": table}, crossed, {"attack": {}}, artifact_weight=trusted
        )

    def of(*runs: TrialScores) -> TrialScores:
        return averaged([{"images": one} for one in runs])["images"]

    found = of(run(1, 2, 0.5), run(3, 5, 1.0), run(5, 2, 0.0))
    assert (found.units, found.clients, found.aggregates) == (["a/1", "b/1"], ["a", "b"], {"attack": {}})
    assert found.headline == found.details["ssim"] == {"attack": [3, 3], "noise": [3, 3]}
    assert found.crossed == {"a": [3, 3]}
    assert found.artifact_weight == 0.5
    assert of(run(1, 2, None), run(2, 3, None)).artifact_weight is None
    assert of(run(1, 2, 0.5)) == run(1, 2, 0.5)
