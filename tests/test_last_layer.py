"""Label shares from last layers: centred, of all rounds, shrunk by their reliability, and nothing where nothing is told."""

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from conftest import Fitted
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, ModelUpdate
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.simulation.head import SentHeadSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.threat import threat
from fdgpriv.view import Deferred, Earlier, RecordedRound

last_layer: Any = import_module("fdgpriv.attacks._last_layer")

CLASSES, CLIENTS, IMAGES, ROUNDS, SIMULATED = 6, 24, 40, 12, 60


@dataclass(frozen=True, eq=False)
class LinearSimulator(TrainingSimulator):
    """Clients whose last bias grows by `slope` times their label shares, with noise, and alike for all of a round."""

    slope: float = 0.3
    noise: float = 0.03
    images_per_step: int = 0  # 0: each client takes one step, whatever their number of images

    last_layer: ClassVar[tuple[str, ...]] = ("head.bias",)  # type: ignore[assignment]

    @property
    def plain(self) -> Any:
        return SimpleNamespace(steps=lambda n: n // self.images_per_step if self.images_per_step else 1)

    def grown(self, shares: Tensor, rng: torch.Generator) -> Tensor:
        drift = torch.randn(CLASSES, generator=torch.Generator().manual_seed(self.round))
        return drift + self.slope * shares + self.noise * torch.randn(CLASSES, generator=rng)

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> Artifact:
        shares = sample.labels.bincount(minlength=CLASSES) / len(sample.labels)
        growth = self.plain.steps(len(sample.labels)) * self.grown(shares, rng)
        state = ModelState(client="server", round=self.round, state={"head.bias": growth})
        return state if self.kind == ModelState.kind else ModelUpdate.between(sample.received_model, state)


@dataclass(frozen=True, eq=False)
class World:
    """An adversary, its observations, one of each client, and the shares (M, K) of these."""

    adversary: Adversary
    observations: list[Observation]
    shares: Tensor

    def error(self, adversary: Adversary | None = None) -> float:
        """Mean L1 distance of the predicted shares."""
        predicted = [
            last_layer.centred_shares(adversary or self.adversary, one, SIMULATED) for one in self.observations
        ]
        return float((torch.stack(predicted) - self.shares).abs().sum(1).mean())


def world(kind: str = "model_state", rarer: float = 1.0, **settings: float) -> World:
    """A federation of linear clients; the first class is `rarer` than others among them, not among public images."""
    nobody: Any = None
    rng = torch.Generator().manual_seed(0)
    simulators = [LinearSimulator(kind, nobody, nobody, nobody, nobody, r, **settings) for r in range(ROUNDS)]
    weights = torch.ones(CLASSES)
    weights[0] = rarer
    labels = torch.multinomial(weights, CLIENTS * IMAGES, replacement=True, generator=rng).view(CLIENTS, IMAGES)
    received = [ModelState(client="server", round=r, state={"head.bias": torch.zeros(CLASSES)}) for r in range(ROUNDS)]
    names = [f"sender-{i}" for i in range(CLIENTS)]
    rounds = []
    for simulator, model in zip(simulators, received, strict=True):
        made = [
            simulator.simulate(ClientSample(ClientImages(labels, row, model), torch.arange(IMAGES)), rng)
            for row in labels
        ]
        artifacts = dict(zip(names, made, strict=True))
        rounds.append(RecordedRound(simulator.round, simulator, artifacts, dict.fromkeys(names, model)))
    public = torch.randint(CLASSES, (600,), generator=rng)
    adversary = Adversary(
        threat("server"), CLASSES, ("a",), (IMAGES,), 1, (Domain("a", torch.rand(600, 3, 1, 1), public),),
        simulators[-1], torch.empty(0), _rounds=tuple(rounds), typical=IMAGES, expensive=True,
    )  # fmt: skip
    none = torch.empty(0, dtype=torch.long)
    observations = []
    for name in names:
        before = {
            r.number: Earlier(Deferred(lambda r=r, name=name: r.artifacts[name]), r.received_models[name])  # type: ignore[misc]
            for r in rounds[:-1]
        }
        last = rounds[-1].artifacts[name]
        observations.append(Observation(last, IMAGES, none[None], none, received[-1], before, name, name))
    shares = torch.stack([row.bincount(minlength=CLASSES) / IMAGES for row in labels])
    return World(adversary, observations, shares)


def equal(shares: Tensor) -> float:
    return float((shares - 1 / CLASSES).abs().sum(1).mean())


@pytest.mark.parametrize("kind", ["model_state", pytest.param("model_update", marks=pytest.mark.slow)])
def test_all_rounds_reveal_more_than_one(kind: str) -> None:
    linear = world(kind)
    one = linear.error(replace(linear.adversary, last_rounds=1))
    assert linear.error() < 0.6 * one < 0.6 * equal(linear.shares)


def test_shrinking_errs_as_little_as_the_best_factor() -> None:
    """Of one round: no other factor of the deviations would err much less, though half of their variance is noise."""
    linear = world(noise=0.02)
    adversary = replace(linear.adversary, last_rounds=1)
    predicted = torch.stack([last_layer.centred_shares(adversary, one, SIMULATED) for one in linear.observations])
    deviation, truth = predicted - 1 / CLASSES, linear.shares - 1 / CLASSES
    best = min(float((factor / 20 * deviation - truth).abs().sum(1).mean()) for factor in range(60))
    assert float((deviation - truth).abs().sum(1).mean()) < best + 0.02


def test_common_growth_is_taken_away() -> None:
    linear = world(noise=1e-4)
    assert linear.error() < 0.03


def test_the_mean_of_the_clients_is_predicted() -> None:
    rare = world(rarer=0.05, noise=0.01)
    assert rare.error() < 0.2 * equal(rare.shares)


def test_fewer_steps_than_other_clients() -> None:
    linear = world(noise=0.002, images_per_step=10)
    adversary, observation, rng = linear.adversary, linear.observations[0], torch.Generator().manual_seed(1)
    simulator, model = adversary.simulator(LinearSimulator), observation.received_model
    assert model is not None
    labels = torch.randint(CLASSES, (12,), generator=rng)

    def shared(r: int) -> Artifact:
        of_round = replace(simulator, round=r)
        return of_round.simulate(ClientSample(ClientImages(labels, labels, model), torch.arange(12)), rng)

    earlier = {r: Earlier(Deferred(partial(shared, r)), model) for r in observation.earlier}
    fewer = replace(observation, sent=earlier[0].shared.sent, n_images=12, earlier=earlier)
    predicted = last_layer.centred_shares(adversary, fewer, SIMULATED)
    assert float((predicted - labels.bincount(minlength=CLASSES) / 12).abs().sum()) < 0.1


def test_without_movement_there_is_no_prediction() -> None:
    linear = world(slope=0.0)
    assert last_layer.centred_shares(linear.adversary, linear.observations[0], SIMULATED) is None


@pytest.mark.slow
def test_a_round_trained_otherwise_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if in the first round they had pretrained: they differ ten times as much as simulated ones, by other things."""
    linear, rng = world(noise=0.01), torch.Generator().manual_seed(3)
    rest, of, noise = linear.error(), last_layer._BiasGrowth.of, {}

    def pretrained(seen: Any) -> Any:
        found = of(seen)
        if seen.number:
            return found
        for name, row in found.others.items():
            noise.setdefault(name, torch.randn(row.shape, generator=rng))
        return replace(found, others={n: noise[n] for n in found.others}, spread=10 * found.spread)

    monkeypatch.setattr(last_layer._BiasGrowth, "of", pretrained)
    left_out = linear.error()
    assert left_out < rest + 0.02
    monkeypatch.setattr(last_layer, "_MAX_RELATIVE_SPREAD", 100.0)
    assert linear.error() > 2 * left_out


def test_personal_models_are_compared_by_change() -> None:
    linear = world("model_update")
    observation = linear.observations[0]
    own = replace(observation, received_model=replace(observation.received_model))
    assert last_layer.reads_last_layer(linear.adversary, own)
    assert not last_layer.reads_last_layer(linear.adversary, replace(observation, received_model=None))
    want = last_layer.centred_shares(linear.adversary, observation, SIMULATED)
    torch.testing.assert_close(last_layer.centred_shares(linear.adversary, own, SIMULATED), want)


def test_rounds_that_agree_with_few_weigh_little(rng: torch.Generator) -> None:
    """Three rounds are labels and noise, nine noise that hardly changes from one to the next: as first ones alone."""
    labels, constant = torch.randn(4000, generator=rng), torch.randn(4000, generator=rng)
    early = [labels + 0.3 * torch.randn(4000, generator=rng) for _ in range(3)]
    late = [constant + 0.1 * torch.randn(4000, generator=rng) for _ in range(9)]
    rows = torch.stack([row / row.std() for row in early + late])
    weights = last_layer._weights(rows @ rows.T / 4000, 3)

    def error(of_rounds: Tensor) -> float:
        slope = (of_rounds @ labels) / (of_rounds @ of_rounds)
        return float((slope * of_rounds - labels).square().mean())

    assert error(weights @ rows) < 1.2 * error(rows[:3].mean(0)) < 0.2 * error(rows.mean(0))


def with_personal_layers(linear: World, start: float) -> World:
    """Clients that keep their layer from the second round on: `start` times their growth of the first, made up for."""
    adversary, rounds, first = linear.adversary, [], linear.adversary._rounds[0]
    for recorded in adversary._rounds:
        if not recorded.number:
            rounds.append(recorded)
            continue
        kept = {name: start * artifact.tensors()["head.bias"] for name, artifact in first.artifacts.items()}
        received = {
            name: ModelState(client="server", round=recorded.number, state={"head.bias": bias})
            for name, bias in kept.items()
        }
        artifacts = {
            name: replace(artifact, state={"head.bias": artifact.tensors()["head.bias"] - 0.2 * kept[name]})
            for name, artifact in recorded.artifacts.items()
        }
        rounds.append(replace(recorded, artifacts=artifacts, received_models=received))
    observations = []
    for observation in linear.observations:
        name, last = observation.asked, rounds[-1]
        earlier = {
            r.number: Earlier(Deferred(lambda r=r, name=name: r.artifacts[name]), r.received_models[name])  # type: ignore[misc]
            for r in rounds[:-1]
        }
        received = last.received_models[name]
        kept = replace(observation, sent=last.artifacts[name], received_model=received, earlier=earlier)
        observations.append(kept)
    return World(
        replace(adversary, _rounds=tuple(rounds), _simulator=rounds[-1].simulator), observations, linear.shares
    )


def test_layers_that_clients_keep_tell_labels_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later growth makes up for the earlier one: all rounds together tell nothing, and the first as much as without."""
    linear = world(noise=0.02)
    personal = with_personal_layers(linear, 1.5)
    one = replace(linear.adversary, _rounds=linear.adversary._rounds[:1])
    only_first = [
        replace(o, sent=linear.adversary._rounds[0].artifacts[o.asked], earlier={}) for o in linear.observations
    ]
    alone = World(one, only_first, linear.shares).error()
    assert personal.error() == pytest.approx(alone, abs=1e-6)
    assert alone < 0.8 * equal(linear.shares)
    monkeypatch.setattr(last_layer._BiasGrowth, "starts_alike", True)
    assert personal.error() > 0.9 * equal(linear.shares)


def test_of_personal_layers_alone_all_rounds_are_read() -> None:
    """Where clients start alike in no round, as from a hypernetwork, growth is compared as ever."""
    linear = world(noise=0.02)
    starts = [torch.full((CLASSES,), 1e-6 * i) for i in range(CLIENTS)]
    apart = [ModelState(client="server", round=0, state={"head.bias": start}) for start in starts]
    rounds = tuple(
        replace(r, received_models=dict(zip(r.received_models, apart, strict=True))) for r in linear.adversary._rounds
    )
    personal = replace(linear, adversary=replace(linear.adversary, _rounds=rounds))
    assert personal.error() == pytest.approx(linear.error(), abs=2e-3)


def test_noise_grows_with_skew() -> None:
    """A line at or above 0 that errs no more than any other through the mean; and reliability by its definition."""
    x = torch.tensor([0.1, 0.2, 0.4, 0.9, 1.5])
    for y in (torch.tensor([1.0, 1.1, 1.5, 1.4, 2.6]), torch.tensor([0.0, 0.1, 0.1, 2.0, 3.0]), 2 - x):
        intercept, slope = last_layer._line(x, y)

        def wrong(at: float, y: Tensor = y) -> float:
            return float((y.mean() + at * (x - x.mean()) - y).square().sum())

        grid = [wrong(at) for at in torch.linspace(0, float(y.mean() / x.mean()), 2001).tolist()]
        assert intercept == pytest.approx(float(y.mean() - slope * x.mean()), abs=1e-6)
        assert min(intercept, slope) >= 0
        assert wrong(slope) <= min(grid) + 1e-6
    regression = last_layer._GrowthOnShares(0.5, True, torch.zeros(6), 9.0, 9.0, 0.01, 0.3, 60)
    of_shares, growth = 0.04**2, (0.5**2 + 0.3) * 0.04**2 + 0.01**2
    assert regression.reliability(growth**0.5) == pytest.approx(0.5**2 * of_shares / growth)
    assert regression.reliability(0.005) == 0


def test_a_client_that_moved_furthest_is_cut() -> None:
    linear = world(noise=0.01)
    observation = linear.observations[0]
    far = {"head.bias": 10 * observation.artifact.tensors()["head.bias"]}
    sent = ModelState(client="server", round=ROUNDS - 1, state=far)
    last = last_layer._BiasGrowth.of(linear.adversary.view(replace(observation, sent=sent))[-1])
    longest = max(float(row.norm()) for row in last.others.values())
    assert float(last.observed.norm()) == pytest.approx(longest, rel=1e-5)


def test_rounds_agree_by_the_clients_of_both(rng: torch.Generator) -> None:
    nobody: Any = None
    clients = ["abc", "bcd", "e"]
    rounds = [
        last_layer._BiasGrowth(nobody, {name: torch.randn(4, generator=rng) for name in names}, torch.zeros(4), 1.0)
        for names in clients
    ]
    common = [float((rounds[0].others[name] * rounds[1].others[name]).mean()) for name in "bc"]
    wanted = torch.eye(3)
    wanted[0, 1] = wanted[1, 0] = sum(common) / 2
    torch.testing.assert_close(last_layer._agreement(rounds), wanted)


@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_has_one_entry_for_each_class(bias: bool, rng: torch.Generator) -> None:
    nobody: Any = None
    federation: Any = SimpleNamespace(classes=CLASSES)
    simulator = SentHeadSimulator(nobody, federation, nobody, nobody, "fit")
    before = {"linear.weight": torch.rand(CLASSES, 9, generator=rng), "linear.bias": torch.rand(CLASSES, generator=rng)}
    before = before if bias else {"linear.weight": before["linear.weight"]}
    grown = {name: torch.rand(tensor.shape, generator=rng) for name, tensor in before.items()}
    batches = {"norm.running_var": torch.rand(9, generator=rng), "norm.num_batches_tracked": torch.tensor(3)}
    head = ClassifierHead(client="a", round=0, state={n: t + grown[n] for n, t in before.items()} | batches)
    received = ModelState(client="server", round=0, state={f"head.{n}": t for n, t in (before | batches).items()})
    want = grown["linear.bias"] if bias else grown["linear.weight"].sum(1)
    torch.testing.assert_close(last_layer._growth(simulator, head, received), want)


def test_models_tell_labels_and_another_clients_do_not(fitted: Fitted) -> None:
    evaluator, attack = fitted.shared, Attack.named("label_histogram").configured({"last_layer_simulations": 9})
    (asked,) = AttackTrials(evaluator, attack, threat("server")).adversaries(evaluator.series("model_state"), (None,))
    wholes = [t for t in asked.trials if t.client in fitted.population.clients and "other_client" in t.by_role]
    truths = [trial.truth for trial in wholes]

    def error(control: str) -> float:
        observations = [trial.by_role[control][0].observation for trial in wholes]
        predicted = attack.infer(asked.adversary, observations, torch.Generator())
        return float(attack.task.score(list(predicted), truths).mean())

    uniform = float(attack.task.score([torch.full((10,), 0.1)] * len(truths), truths).mean())
    assert error("attack") < 0.95 * uniform
    assert error("other_client") > 0.95 * uniform
    assert asked.adversary.view_read.rounds == {0, 1}
