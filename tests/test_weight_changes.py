"""Domains from the directions of weight changes: of many rounds, whatever their length, and chance where nothing is told."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.threat import threat
from fdgpriv.view import Deferred, Earlier, RecordedRound

weight_changes: Any = import_module("fdgpriv.attacks._weight_changes")

DOMAINS, CLIENTS, IMAGES, ROUNDS = 3, 30, 8, 5
SHAPES = {"conv.weight": (12, 3, 3, 3), "head.weight": (4, 12), "head.bias": (4,)}
INFER = Attack.parse("domain_inference:expensive_simulations=30")


@dataclass(frozen=True, eq=False)
class DirectedSimulator(TrainingSimulator):
    """Clients whose convolution moves along a direction of its round and domain, in noise, by a length of the client's.

    The number of the domain is in the pixels. The head moves along a direction of no meaning, a hundred times as far.
    """

    signal: float = 0.0

    last_layer: ClassVar[tuple[str, ...]] = ("head.weight", "head.bias")  # type: ignore[assignment]

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> Artifact:
        domain = round(255 * float(sample.images[0].flatten()[0]))
        noise = {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}
        of_domain = torch.Generator().manual_seed(100 * self.round + domain)
        noise["conv.weight"] += self.signal * torch.randn(SHAPES["conv.weight"], generator=of_domain)
        length = 10 ** float(4 * torch.rand((), generator=rng) - 2)
        change = {name: (100 if name.startswith("head") else length) * tensor for name, tensor in noise.items()}
        start = sample.received_model.state
        state = {name: start[name] - tensor for name, tensor in change.items()}
        trained = ModelState(client="server", round=self.round, state=state)
        return trained if self.kind == ModelState.kind else ModelUpdate.between(sample.received_model, trained)


def accuracy(signal: float, kind: str = "model_state", rounds: int | None = None, personal: bool = False) -> float:
    """Accuracy of the attack on a federation of such clients; over the last `rounds`, or all."""
    nobody: Any = None
    rng = torch.Generator().manual_seed(3)
    truth = torch.arange(CLIENTS) % DOMAINS
    public = tuple(
        Domain(name, torch.full((40, 3, 1, 1), d, dtype=torch.uint8), torch.arange(40) % 4)
        for d, name in enumerate("abc")
    )
    images = [torch.full((IMAGES, 3, 1, 1), float(d) / 255) for d in truth]
    names = [f"sender-{i}" for i in range(CLIENTS)]
    labels, every = torch.zeros(IMAGES, dtype=torch.long), torch.arange(IMAGES)
    rounds_recorded = []
    for number in range(ROUNDS):
        simulator = DirectedSimulator(kind, nobody, nobody, nobody, nobody, number, signal=signal)
        common = start(number, rng)
        received = {name: start(number, rng) if personal else common for name in names}
        artifacts = {
            name: simulator.simulate(ClientSample(ClientImages(client_images, labels, received[name]), every), rng)
            for name, client_images in zip(names, images, strict=True)
        }
        rounds_recorded.append(RecordedRound(number, simulator, artifacts, received))
    last = rounds_recorded[-1]
    adversary = Adversary(
        threat("server"), 4, tuple("abc"), (IMAGES,), 1, public, last.simulator,
        torch.empty(0), _rounds=tuple(rounds_recorded), typical=IMAGES, expensive=True, last_rounds=rounds,
    )  # fmt: skip
    none = torch.empty(0, dtype=torch.long)
    observations = []
    for name in names:
        earlier = {
            recorded.number: Earlier(deferred(recorded.artifacts[name]), recorded.received_models[name])
            for recorded in rounds_recorded[:-1]
        }
        model = last.received_models[name]
        observations.append(Observation(last.artifacts[name], IMAGES, none[None], none, model, earlier, name, name))
    predicted = INFER.infer(adversary, observations, torch.Generator().manual_seed(0))
    assert isinstance(predicted, Tensor)
    return float((predicted.argmax(1) == truth).float().mean())


def start(number: int, rng: torch.Generator) -> ModelState:
    """A model that clients receive."""
    state = {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}
    return ModelState(client="server", round=number, state=state)


def deferred(artifact: Artifact) -> Deferred:
    return Deferred(lambda: artifact)


@pytest.mark.parametrize(("kind", "personal"), [("model_state", False), ("model_update", False), ("model_state", True)])
def test_several_rounds_tell_the_domain(kind: str, personal: bool) -> None:
    by_rounds = accuracy(0.16, kind, personal=personal)
    assert by_rounds > 0.9
    assert accuracy(0.16, kind, rounds=1, personal=personal) < by_rounds


def test_directions_without_domain_give_chance() -> None:
    chance, error = 1 / DOMAINS, math.sqrt(2 / 9 / CLIENTS)
    assert abs(accuracy(0.0) - chance) < 3 * error


def test_directions_by_a_plain_loop() -> None:
    nobody: Any = None
    simulator = DirectedSimulator("model_state", nobody, nobody, nobody, nobody, 0)
    rng = torch.Generator().manual_seed(1)
    before, after = start(0, rng), start(0, rng)
    change = (before.state["conv.weight"] - after.state["conv.weight"]).flatten().tolist()
    length = math.sqrt(sum(entry * entry for entry in change))
    expected = torch.tensor([entry / length for entry in change])
    torch.testing.assert_close(weight_changes.directions(simulator, after, before), expected)
    only_head = {state: replace(state, state={"head.weight": state.state["head.weight"]}) for state in (before, after)}
    assert len(weight_changes.directions(simulator, only_head[after], only_head[before])) == 48


def test_sketches_keep_inner_products() -> None:
    """The mean over 40 pairs errs by four standard errors at most: a sketch into m sums errs by about 1 / sqrt(m) each."""
    rng = torch.Generator().manual_seed(2)
    shared = torch.randn(20_000, generator=rng)
    errors = []
    for _ in range(40):
        a, b = (shared + torch.randn(20_000, generator=rng) for _ in range(2))
        cosine, sketched = (
            float(torch.nn.functional.cosine_similarity(x, y, dim=0))
            for x, y in ((a, b), (weight_changes._sketch(a), weight_changes._sketch(b)))
        )
        errors.append(sketched - cosine)
    spread = torch.tensor(errors)
    assert 0 < float(spread.std()) < 2 / math.sqrt(2048)
    assert abs(float(spread.mean())) < 0.05
    short = torch.randn(2048, generator=rng)
    assert torch.equal(weight_changes._sketch(short), short)
