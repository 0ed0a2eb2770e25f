"""Models whose outputs overflow are not evaluated by attacks, which say so in one line instead of failing."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import Fitted, shortened
from factories import fitted_once
from factories_scores import RUN_KEY

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.not_measured import not_measured
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.threat import threat

KIND = ModelState.kind


@pytest.fixture(scope="module")
def fitted(digits: Dataset) -> Fitted:
    return fitted_once(shortened(digits, 48), clients=3, method="fedavg")


@pytest.fixture
def overflowing(fitted: Fitted) -> Evaluator:
    """One of the clients shared a model of finite parameters that overflows, as strong noise makes one."""
    evaluator = fitted.evaluator()
    series = evaluator.series(KIND)
    client = series.clients[1]
    wire = {**series.wire, client: without_variance(series.wire[client])}
    evaluator.artifact_series = {KIND: replace(series, wire=wire)}
    return evaluator


def without_variance(artifact: Artifact) -> ModelState:
    """The model with variances 0 and a thousand times its weights."""
    state = {
        name: 0 * tensor if name.endswith("running_var") else 1000 * tensor if tensor.ndim > 1 else tensor
        for name, tensor in artifact.tensors().items()
    }
    return ModelState(client=artifact.client, round=artifact.round, state=state)


def test_overflow_is_counted(fitted: Fitted, overflowing: Evaluator) -> None:
    """Against every model on one image after the other."""
    for evaluator, count in ((fitted.evaluator(), 0), (overflowing, 1)):
        series = evaluator.series(KIND)
        assert isinstance(series.simulator, TrainingSimulator)
        images = next(iter(evaluator.population.auxiliary.values())).images[:4]
        infinite = 0
        for artifact in series.wire.values():
            assert artifact.not_finite() is None
            network = series.simulator.network().eval()
            network.load_state_dict(artifact.tensors(), strict=False)
            with torch.no_grad():
                infinite += any(not bool(network(image[None]).isfinite().all()) for image in images)
        assert infinite == count
        reason = evaluator.overflow_reason(series)
        assert (reason is not None) == (count > 0)
        assert reason is None or reason.startswith(f"{count} of 3 models that were shared give outputs")


@pytest.mark.parametrize("attack", ["deep_inversion", "gradient_inversion"])
def test_overflow_is_not_applicable(overflowing: Evaluator, attack: str, tmp_path: Path) -> None:
    trials = AttackTrials(overflowing, Attack.parse(attack), threat("server"), curve=False)
    by_task = AttackEvaluation(trials, attack, KIND, True, tmp_path, "cell", RUN_KEY).run()
    assert not any(scores.failed for scores in by_task.values())
    reason = overflowing.overflow_reason(overflowing.series(KIND))
    assert {scores.not_applicable for scores in by_task.values()} == {reason}


def test_parameters_are_read_nevertheless() -> None:
    """Attacks that look at tensors alone do not mind, and membership ranks outputs whatever they are."""
    unaffected = ("label_histogram", "client_size", "linkage", "membership")
    assert not any(Attack.named(name).evaluates_models for name in unaffected)


def test_layers_that_overflow_are_left_out(digits: Dataset) -> None:
    """Of a network whose last stages are scaled up: their styles are infinite, those before are not."""
    fitted = fitted_once(shortened(digits, 48), clients=3)
    evaluator = fitted.evaluator()
    assert evaluator.recorded_styles is not None
    series = evaluator.series(StyleStatistics.kind)
    layers = series.simulator.layers()
    assert evaluator.finite_layers(series) == layers
    name, domain = next(iter(evaluator.population.auxiliary.items()))
    without = replace(evaluator.population, auxiliary={name: domain.part(0, 0)})
    assert fitted.evaluator(without).finite_layers(series) == layers  # no public image is no overflow
    assert not any("not finite" in sentence for sentence in sentences(evaluator))
    network = deepcopy(evaluator.recorded_styles.model)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim > 1 and layers[-1] in name:
                parameter.mul_(1e30)
    styles = replace(evaluator.recorded_styles, model=network)
    simulator = replace(series.simulator, recorded_styles=styles)
    overflowing = fitted.evaluator()
    overflowing.artifact_series = {StyleStatistics.kind: replace(series, simulator=simulator)}
    assert overflowing.finite_layers(overflowing.series(StyleStatistics.kind)) == layers[:-1]
    assert sum(f"styles at {layers[-1]}, which are not finite" in sentence for sentence in sentences(overflowing)) == 1


def sentences(evaluator: Evaluator) -> list[str]:
    return not_measured(evaluator, None, None, attacked=True, once=True, few=True)
