"""Simulated artifacts: few stay that nobody uses, and those that are simulated again have the same values."""

from collections import Counter
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Generator

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation import cached_simulator
from fdgpriv.simulation.artifact_series import EarlierRound
from fdgpriv.simulation.cached_simulator import CachedSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample

PARTY = ClientImages(torch.zeros(40, 3, 4, 4), torch.zeros(40, dtype=torch.long))
NBYTES = 8 * 1024


class Drawing:
    """Simulates a model of 8 KiB, of random numbers, and counts."""

    def __init__(self) -> None:
        self.count: Counter[int] = Counter()

    def simulate(self, sample: ClientSample, rng: Generator) -> Artifact:
        self.count[int(sample.index)] += 1
        return ModelState(client="a", round=0, state={name: torch.rand(1024, generator=rng) for name in ("w", "b")})


@pytest.fixture
def drawing() -> Drawing:
    return Drawing()


def simulated(simulator: CachedSimulator, drawing: Drawing, image: int, earlier: bool = False) -> Artifact:
    series: Any = SimpleNamespace(expensive=True, called="model_state", simulator=drawing)
    sample = ClientSample(PARTY, torch.tensor([image]))
    if earlier:
        return simulator.simulate_earlier(series, EarlierRound(0, drawing, {}), "a", sample)  # type: ignore[arg-type]
    return simulator.simulate(series, "a", sample, torch.Generator())


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("slow", [False, True])
def test_unused_artifacts_have_at_most_so_many_bytes(
    drawing: Drawing, earlier: bool, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick artifacts up to three, slow ones up to seven stay; the latest ones."""
    monkeypatch.setattr(cached_simulator, "QUICK_S", -1.0 if slow else 1e9)
    simulator, stays = CachedSimulator(0, 7 * NBYTES, 3 * NBYTES), 7 if slow else 3
    artifacts = [simulated(simulator, drawing, image, earlier) for image in range(20)]
    values = [artifact.tensors()["w"].clone() for artifact in artifacts]
    tensors = [ref(artifact.tensors()["w"]) for artifact in artifacts]
    del artifacts
    assert [reference() is not None for reference in tensors] == [image >= 20 - stays for image in range(20)]
    for image, expected in enumerate(values):
        assert torch.equal(simulated(simulator, drawing, image, earlier).tensors()["w"], expected)
    assert drawing.count.keys() == set(range(20))
    fresh = CachedSimulator(0)
    assert torch.equal(simulated(fresh, drawing, 5, earlier).tensors()["w"], values[5])
    assert not torch.equal(simulated(fresh, drawing, 5, not earlier).tensors()["w"], values[5])


def test_used_artifacts_are_simulated_once(drawing: Drawing) -> None:
    """Whatever the limit: a copy would take twice the memory, and caches would not know it."""
    simulator = CachedSimulator(0, NBYTES, NBYTES)
    used = [simulated(simulator, drawing, image) for image in range(10)]
    again = [simulated(simulator, drawing, image) for image in range(10)]
    assert drawing.count == Counter(range(10))
    assert all(a.tensors()["w"] is b.tensors()["w"] for a, b in zip(used, again, strict=True))
    renamed = used[3].seen_as("b")
    del used, again
    assert simulated(simulator, drawing, 3).tensors()["b"] is renamed.tensors()["b"]
    assert drawing.count[3] == 1


def test_a_slow_artifact_in_use_outlasts_newer_ones(drawing: Drawing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_simulator, "QUICK_S", -1.0)
    simulator = CachedSimulator(0, 3 * NBYTES, NBYTES)
    for image in (0, 1, 2, 0, 3, 4, 0):
        simulated(simulator, drawing, image)
    assert drawing.count == Counter(range(5))


def test_forgotten_artifacts_leave_no_references(drawing: Drawing, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = CachedSimulator(0, NBYTES, NBYTES)
    simulator._forget_at = 4
    monkeypatch.setattr(cached_simulator, "_FORGET_AT", 4)
    for image in range(40):
        simulated(simulator, drawing, image)
    assert len(simulator._used) <= 4
