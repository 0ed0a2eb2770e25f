"""Models and updates as what is examined: what a reader of them looks at."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifact import STATISTICS, ModelState
from fdgpriv.federation import Dataset, generator
from fdgpriv.subjects import Holding, TrainingCraft
from fdgpriv.threat import threat

LAST = {
    "fedavg": ("head.weight", "head.bias"),
    "stablefdg": ("head.weight", "head.bias"),
    "pardon": ("head.weight", "head.bias"),
    "hfedf": ("head.weight", "head.bias"),
}


@pytest.fixture(scope="module", params=LAST)
def trained(request: pytest.FixtureRequest, digits: Dataset) -> tuple[str, Fitted]:
    return request.param, fit(shortened(digits, 48), clients=3, method=request.param)


def test_the_last_layer_is_the_one_that_tells_classes_apart(trained: tuple[str, Fitted]) -> None:
    """Wherever its tensors stand: a projection or an attention may come after it in the network."""
    method, fitted = trained
    subject = next(s for s in fitted.proctor().subjects.values() if isinstance(s.craft, TrainingCraft) and not s.alone)
    assert isinstance(subject.craft, TrainingCraft)
    assert subject.craft.last_layer == LAST[method]
    name, artifact = next(iter(subject.wire.items()))
    assert isinstance(artifact, ModelState) or method == "hfedf"
    shuffled = replace(artifact, state=dict(sorted(artifact.tensors().items(), reverse=True)))  # type: ignore[call-arg]
    row, again = (subject.craft.vector(one, subject.sent[name]) for one in (artifact, shuffled))
    assert torch.equal(row, again)
    statistics = sum(t.numel() for name, t in artifact.tensors().items() if name.endswith(STATISTICS[:2]))
    last = sum(artifact.tensors()[name].numel() for name in LAST[method])
    assert len(row) == statistics + last


def test_fewer_artifacts_are_asked_about_where_one_takes_a_training(trained: tuple[str, Fitted]) -> None:
    _, fitted = trained
    proctor = fitted.proctor()
    (subject,) = [s for s in proctor.subjects.values() if isinstance(s.craft, TrainingCraft) and not s.alone]
    sittings = proctor.sittings(subject, threat("server"), (1, 2), reconstruction=False)
    asked = Counter((item.client, item.size) for sitting in sittings for item in sitting.items)
    assert {count for (_, size), count in asked.items() if size == 1} == {3}
    assert {count for (_, size), count in asked.items() if size == 2} == {1}
    assert {client for client, _ in asked} >= set(fitted.population.clients)


def test_what_was_trained_with_the_same_draws_is_remembered_and_nobody_can_tell(trained: tuple[str, Fitted]) -> None:
    """The model, and what is drawn after it, are those of a craft that remembers nothing."""
    _, fitted = trained
    first, other = _craft(fitted), _craft(fitted)
    held, index = _held(fitted), torch.arange(3)
    rngs = [generator(5) for _ in range(3)]
    models = [
        first.trained_once(held, index, rngs[0]),
        first.trained_once(held, index, rngs[1]),
        other.trained_once(held, index, rngs[2]),
    ]
    assert models[0] is models[1]
    assert models[2] is not models[0]
    assert all(torch.equal(tensor, models[2].state[name]) for name, tensor in models[0].state.items())
    assert len({float(torch.rand((), generator=rng)) for rng in rngs}) == 1


@pytest.mark.parametrize("change", ["draws", "images", "index"])
def test_what_differs_is_trained_anew(trained: tuple[str, Fitted], change: str) -> None:
    _, fitted = trained
    craft, held, index = _craft(fitted), _held(fitted), torch.arange(3)
    before = craft.trained_once(held, index, generator(5))
    held = replace(held, images=held.images.flip(3).contiguous()) if change == "images" else held
    after = craft.trained_once(held, index + (change == "index"), generator(5 + (change == "draws")))
    assert any(not torch.equal(tensor, after.state[name]) for name, tensor in before.state.items())


def _craft(fitted: Fitted) -> TrainingCraft:
    return next(s.craft for s in fitted.proctor().subjects.values() if isinstance(s.craft, TrainingCraft))


def _held(fitted: Fitted) -> Holding:
    name, data = next(iter(fitted.population.clients.items()))
    subject = next(s for s in fitted.proctor().subjects.values() if isinstance(s.craft, TrainingCraft))
    return Holding(data.images, data.labels, subject.sent[name])
