"""Models and updates as what is evaluated: what a reader of them looks at."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifacts.parameters import STATISTICS, ModelState, ModelUpdate
from fdgpriv.data.dataset import Dataset
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.tasks.images import Images
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

LAST = ("head.weight", "head.bias")


@pytest.fixture(scope="module", params=["stablefdg", pytest.param("pardon", marks=pytest.mark.slow), "hfedf"])
def trained(request: pytest.FixtureRequest, digits: Dataset) -> tuple[str, Fitted]:
    settings = {"hidden": "4"} if request.param == "hfedf" else {}
    return request.param, fit(shortened(digits, 48), clients=3, method=request.param, settings=settings)


def test_the_last_layer_separates_classes(trained: tuple[str, Fitted]) -> None:
    """Wherever its tensors stand: a projection or an attention may come after it in the network."""
    method, fitted = trained
    target = next(
        s
        for s in fitted.evaluator().artifact_series.values()
        if isinstance(s.simulator, TrainingSimulator) and not s.is_global
    )
    assert isinstance(target.simulator, TrainingSimulator)
    assert target.simulator.last_layer == LAST
    name, artifact = next(iter(target.wire.items()))
    assert isinstance(artifact, ModelState) or method == "hfedf"
    shuffled = replace(artifact, state=dict(sorted(artifact.tensors().items(), reverse=True)))  # type: ignore[call-arg]
    row, again = (target.simulator.vector(one, target.received_model[name]) for one in (artifact, shuffled))
    assert torch.equal(row, again)
    statistics = sum(t.numel() for name, t in artifact.tensors().items() if name.endswith(STATISTICS[:2]))
    last = sum(artifact.tensors()[name].numel() for name in LAST)
    first = 0 if statistics else artifact.tensors()["backbone.body.stem.0.weight"].numel()  # without BatchNorm
    assert len(row) == statistics + first + last


def test_expensive_artifacts_are_asked_about_less(trained: tuple[str, Fitted]) -> None:
    _, fitted = trained
    evaluator = fitted.default_evaluator()
    (target,) = [
        s for s in evaluator.artifact_series.values() if isinstance(s.simulator, TrainingSimulator) and not s.is_global
    ]
    for task, singles in ((DomainLabel(), 3), (Images(), 1)):  # drawing an image is expensive, too
        adversaries = evaluator.adversaries(target, threat("server"), (1, 2), task)
        asked = Counter((trial.client, trial.size) for one in adversaries for trial in one.trials)
        assert {count for (_, size), count in asked.items() if size == 1} == {singles}
        assert {count for (_, size), count in asked.items() if size == 2} == {1}
        assert {client for client, _ in asked} >= set(fitted.population.clients)


def test_trainings_of_equal_draws_are_remembered(trained: tuple[str, Fitted], monkeypatch: pytest.MonkeyPatch) -> None:
    """The model, and what is drawn after it, are those of a simulator that remembers nothing."""
    _, fitted = trained
    train, trainings = TrainingSimulator.trained, list[TrainingSimulator]()

    def counted(self: TrainingSimulator, *given: Any) -> ModelState:
        trainings.append(self)
        return train(self, *given)

    monkeypatch.setattr(TrainingSimulator, "trained", counted)
    first, other = _simulator(fitted), _simulator(fitted)
    sample = ClientSample(_held(fitted), torch.arange(3))
    rngs = [generator(5) for _ in range(3)]
    models = [
        first.trained_once(sample, rngs[0]),
        first.trained_once(sample, rngs[1]),
        other.trained_once(sample, rngs[2]),
    ]
    assert trainings == [first, other]
    for model in models[1:]:
        assert list(model.state) == list(models[0].state)
        assert all(torch.equal(tensor, model.state[name]) for name, tensor in models[0].state.items())
    assert len({float(torch.rand((), generator=rng)) for rng in rngs}) == 1


def test_what_differs_is_trained_again(trained: tuple[str, Fitted]) -> None:
    _, fitted = trained
    simulator, held = _simulator(fitted), _held(fitted)
    sample = ClientSample(held, torch.arange(3))
    before = simulator.trained_once(sample, generator(5))
    flipped = replace(held, images=held.images.flip(3).contiguous())
    other_images, other_index = replace(sample, party=flipped), replace(sample, index=sample.index + 1)
    for changed, seed in ((sample, 6), (other_images, 5), (other_index, 5)):
        after = simulator.trained_once(changed, generator(seed))
        assert any(not torch.equal(tensor, after.state[name]) for name, tensor in before.state.items())


def test_a_simulated_client_draws_its_own_dropout(digits: Dataset) -> None:
    settings = {"network": "inception", "image_changes": "none", "batch_size": "1", "local_epochs": "1", "lr": "0.01"}
    fitted = fit(shortened(digits, 48), clients=3, method="fedavg", settings=settings)
    simulator, sample = _simulator(fitted), ClientSample(_held(fitted), torch.arange(1))  # nothing else is drawn
    one, again, other = (simulator.trained(sample, generator(seed)).state for seed in (1, 1, 2))
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.items())
    assert any(not torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_undefended_artifacts_train_without_noise(digits: Dataset) -> None:
    """DP-SGD is in the steps: a positive control that is trained by it finds nothing."""
    evaluator = fit(shortened(digits, 48), clients=3, method="fedavg", defense="dpsgd:epsilon=0.5").evaluator()
    name, data = next(iter(evaluator.population.clients.items()))
    alike = {}
    for who in (evaluator, evaluator.undefended):
        target = who.series("model_state")
        received = target.received_model[name]
        sample = ClientSample(ClientImages(data.images, data.labels, received), torch.arange(1), defended=False)
        made = [target.simulator.simulate(sample, generator(seed)) for seed in (1, 2)]
        one, other = (ModelUpdate.between(received, state) for state in made if isinstance(state, ModelState))
        flat = [
            torch.cat([t.flatten() for t in update.state.values() if t.is_floating_point()]) for update in (one, other)
        ]
        alike[who is evaluator] = float(torch.cosine_similarity(*flat, dim=0))
    assert abs(alike[True]) < 0.2
    assert alike[False] > 0.5


def _simulator(fitted: Fitted) -> TrainingSimulator:
    return next(
        s.simulator for s in fitted.evaluator().artifact_series.values() if isinstance(s.simulator, TrainingSimulator)
    )


def _held(fitted: Fitted) -> ClientImages:
    name, data = next(iter(fitted.population.clients.items()))
    target = next(s for s in fitted.evaluator().artifact_series.values() if isinstance(s.simulator, TrainingSimulator))
    return ClientImages(data.images, data.labels, target.received_model[name])
