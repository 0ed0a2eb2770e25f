"""Models and updates as what is examined: what a reader of them looks at."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from conftest import Fitted, fit, shortened

from fdgpriv.artifact import STATISTICS, ModelState
from fdgpriv.federation import Dataset
from fdgpriv.subjects import TrainingCraft
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
