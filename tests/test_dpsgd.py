"""DP-SGD in local training: gradients of single images, clip, noise, sampling, accounting, and its audit by canaries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from conftest import mostly_slow
from factories import equal, federation, held, refused, seeded, small
from fdgpriv.defenses import _private_steps
from fdgpriv.defenses._per_image import group_norm_twin, per_image_gradients, trained_parameters
from fdgpriv.defenses._private_steps import PrivateSGD, clip_factors, poisson
from opacus.accountants import PRVAccountant, RDPAccountant
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense, Guarantee, defended
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.local_training import Batch
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.models.backbone import Backbone, Classifier, backbone
from fdgpriv.privacy.poisson import ORDERS, poisson_noise_multiplier
from fdgpriv.privacy.training_audit import CanaryAudit, audited, measured_by_training, measured_by_updates
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.global_rng import drawing_from
from fdgpriv.utils.torchvision_import import torchvision

DPSGD: Any = Defense.named("dpsgd")
SURE = 1e-4
DELTA = 1e-5


@cache
def wide(channels: int = 32) -> Callable[[torch.Generator], Backbone]:
    """Builds three convolutions with BatchNorm: about 19,000 parameters, so that there is room for canaries."""

    def build(rng: torch.Generator) -> Backbone:
        with drawing_from(rng):
            stages = {
                f"layer{i}": nn.Sequential(
                    nn.Conv2d(channels if i else 3, channels, 3, 1 if i else 2, 1), nn.BatchNorm2d(channels), nn.ReLU()
                )
                for i in range(3)
            }
        return Backbone(stages, dict.fromkeys(stages, channels), (0.5,) * 3, (0.5,) * 3)

    return build


def private(name: str = "fedavg", spec: str = "dpsgd", **settings: Any) -> Any:
    """A small method under DP-SGD."""
    method, _ = defended(small(name, **settings), spec)
    return method


def steps_of(method: Any) -> PrivateSGD:
    found = method.local_training
    assert isinstance(found, PrivateSGD)
    return found


# Gradients


def resnet(rng: torch.Generator) -> nn.Module:
    """With in-place layers and an in-place sum."""
    return Classifier(backbone("resnet18", mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng, small_input=True), 3, rng)


def residual(rng: torch.Generator) -> nn.Module:
    """The same in one block of a ResNet."""
    with drawing_from(rng):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            torchvision.models.resnet.BasicBlock(8, 8),
            nn.Flatten(),
            nn.Linear(288, 3),
        )


def inception(rng: torch.Generator) -> nn.Module:
    return small("fedavg", network="inception").model(federation(side=8), rng)  # type: ignore[no-any-return]


def plain(rng: torch.Generator) -> nn.Module:
    return Classifier(wide(8)(rng), 3, rng)


@pytest.mark.parametrize("build", mostly_slow([plain, residual, resnet, inception], [plain, residual]))
@pytest.mark.parametrize("memory", mostly_slow([torch.contiguous_format, torch.channels_last], [torch.channels_last]))
def test_per_image_gradients_are_those_of_a_loop(
    build: Callable[[torch.Generator], nn.Module], memory: torch.memory_format, rng: torch.Generator
) -> None:
    network = group_norm_twin(build(rng)).double()
    network.to(memory_format=memory)  # type: ignore[call-overload]
    network.train()
    for module in network.modules():
        if type(module).__name__ == "Dropout":
            module.eval()  # draws
    images, labels = torch.rand(4, 3, 8, 8, generator=rng).double(), torch.tensor([0, 1, 2, 1])
    images = images.contiguous(memory_format=memory)

    def loss(rows: slice) -> Tensor:
        return nn.functional.cross_entropy(network(images[rows]), labels[rows])

    found = per_image_gradients(network, lambda: loss(slice(None)), 4)
    for i, row in enumerate(found):
        alone = torch.autograd.grad(loss(slice(i, i + 1)), trained_parameters(network))
        torch.testing.assert_close(row, torch.cat([gradient.flatten() for gradient in alone]), rtol=1e-6, atol=1e-9)


def test_the_twin_keeps_all_but_statistics(rng: torch.Generator) -> None:
    network = plain(rng)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
    before = {name: tensor.clone() for name, tensor in network.named_parameters()}
    twin = group_norm_twin(network)
    assert equal(dict(twin.named_parameters()), before)
    assert not list(twin.buffers())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in twin.modules())


def test_a_layer_without_a_rule_is_refused(rng: torch.Generator) -> None:
    with refused(r"want layers with gradients of single images, got BatchNorm1d \(1\)"):
        group_norm_twin(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))


# One step


def step(
    method: Any, data: ClientData, index: Tensor, rng: torch.Generator, scale: float = 1.0
) -> tuple[Tensor, Tensor, nn.Module]:
    """The noiseless clipped sum (D,) and the gradients (D,) of one private step on these rows."""
    network = method.model(federation(build=wide(8)), seeded(1)).train()
    batch = Batch(index, data.pixels[index], data.labels[index])

    def loss(batch: Batch) -> Tensor:
        return scale * nn.functional.cross_entropy(network(batch.images), batch.labels)

    work, training = method.workload(data), steps_of(method)
    total = training.clipped_sum(network, loss, batch, work.copies)
    training.backward(network, loss, batch, work, rng)
    return total, torch.cat([parameter.grad.flatten() for parameter in trained_parameters(network)]), network  # type: ignore[union-attr]


@pytest.mark.parametrize("clip", [0.01, 1.0])
def test_the_norm_of_one_image_never_exceeds_the_clip(clip: float, rng: torch.Generator) -> None:
    method, data = private(spec=f"dpsgd:clip={clip}"), held(n=8)
    for scale in (1e-3, 1.0, 1e6):
        lengths = [float(step(method, data, torch.tensor([i]), rng, scale)[0].norm()) for i in range(8)]
        assert max(lengths) <= clip * (1 + 1e-5)
    assert min(lengths) == pytest.approx(clip, rel=1e-5)
    assert clip_factors(torch.tensor([0.0, 0.5, 2.0]), 1.0).tolist() == [1.0, 1.0, 0.5]


def test_images_are_clipped_in_parts_of_any_size(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    method, data = private(spec="dpsgd:clip=0.5"), held(n=8)
    whole, _, _ = step(method, data, torch.arange(8), rng)
    alone = [step(method, data, torch.tensor([i]), rng)[0] for i in range(8)]
    torch.testing.assert_close(whole, torch.stack(alone).sum(0), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(_private_steps, "_MAX_GRADIENT_BYTES", 1)
    torch.testing.assert_close(step(method, data, torch.arange(8), rng)[0], whole, rtol=1e-4, atol=1e-6)


def test_copies_of_an_image_are_clipped_as_one(rng: torch.Generator) -> None:
    single, method = held(n=4), private(spec="dpsgd:clip=0.5")
    copies = replace(
        single, pixels=single.pixels.repeat_interleave(3, 0), labels=single.labels.repeat_interleave(3), copies=3
    )
    one, other = (step(method, data, torch.arange(len(data)), rng)[0] for data in (single, copies))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    drawn = list(steps_of(method).batches(method.workload(copies), rng))
    assert all(
        torch.equal(index.view(-1, 3) // 3, index.view(-1, 3)[:, :1] // 3 + torch.zeros(3, dtype=int))
        for index in drawn
    )  # type: ignore[call-overload]
    plan = steps_of(method).plan(method.workload(copies))
    assert (plan.rate, plan.expected_images) == (4 / 12, pytest.approx(4 / 3))


def test_the_noise_is_over_the_expected_batch(rng: torch.Generator) -> None:
    method, data = private(spec="dpsgd:clip=0.3,epsilon=2"), held(n=12)
    plan = steps_of(method).plan(method.workload(data))
    assert plan.expected_images == 4
    nobody = torch.empty(0, dtype=torch.int64)
    draws = torch.cat([step(method, data, nobody, rng)[1] for _ in range(20)])
    assert float(draws.std()) * plan.expected_images == pytest.approx(
        plan.multiplier * 0.3, rel=4 / (2 * len(draws)) ** 0.5
    )
    assert abs(float(draws.mean())) < 4 * float(draws.std()) / len(draws) ** 0.5
    total, noised, _ = step(method, data, torch.arange(12), seeded(5))
    _, noise, _ = step(method, data, nobody, seeded(5))
    torch.testing.assert_close((noised - noise) * plan.expected_images, total, rtol=1e-3, atol=1e-5)


# Sampling and accounting


def test_images_are_drawn_independently() -> None:
    draws, n, rate, rng = 4000, 20, 0.3, seeded(3)
    found = torch.zeros(draws, n)
    for row in found:
        row[poisson(n, rate, rng)] = 1
    deviation = (rate * (1 - rate) / draws) ** 0.5
    assert float((found.mean(0) - rate).abs().max()) < 4.5 * deviation
    assert float(found.sum(1).var()) == pytest.approx(
        n * rate * (1 - rate), rel=0.1
    )  # shuffled batches vary by nothing
    products = found.T @ found / draws - rate**2
    assert float((products - products.diagonal().diag()).abs().max()) < 5 * deviation


@pytest.mark.parametrize(
    ("name", "accountant"), mostly_slow([("fedavg", "rdp"), ("fedavg", "prv"), ("hfedf", "rdp")], [("fedavg", "rdp")])
)
def test_steps_and_epsilon_are_the_library_s(name: str, accountant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accountant that counts every step of a training arrives at the claim, and not far below it."""
    method, data = private(name, f"dpsgd:epsilon=3,accountant={accountant}", rounds=3, local_epochs=2), held(n=14)
    counted: Any = {"rdp": RDPAccountant, "prv": PRVAccountant}[accountant]()
    whole = PrivateSGD.backward

    def backward(self: PrivateSGD, *given: Any) -> None:
        plan = self.plan(given[3])
        counted.step(noise_multiplier=plan.multiplier, sample_rate=plan.rate)
        whole(self, *given)

    monkeypatch.setattr(PrivateSGD, "backward", backward)
    network = method.model(federation(), seeded(0))
    for round in range(3):
        method.train_plainly(network, data, round, seeded(round))
    assert sum(steps for _, _, steps in counted.history) == 3 * 2 * 3 == 3 * method.steps(14)
    assert {rate for _, rate, _ in counted.history} == {4 / 14}
    given = {"alphas": ORDERS} if accountant == "rdp" else {}
    assert 2.98 < counted.get_epsilon(DELTA, **given) <= 3


def test_small_clients_use_all_images_in_each_step() -> None:
    plan = steps_of(private()).plan(private().workload(held(n=3)))
    assert (plan.rate, plan.expected_images, plan.steps) == (1.0, 3.0, 2)
    assert plan.multiplier == poisson_noise_multiplier(8.0, DELTA, 2, 1.0, "rdp")


# Federations


def state_of(method: Any, defense: Any, workers: int, seed: int = 0) -> dict[str, Tensor]:
    world = federation(3, seed, wide(8))
    own = {name: held(name, n) for name, n in zip(world.clients, (6, 9, 4), strict=True)}
    wire = Wire({name: len(part) for name, part in own.items()}, defense, Transcript("all"))
    return dict(LocalEngine(workers).run(method, world, own, wire).state_dict())


@pytest.mark.parametrize("name", mostly_slow(["fedavg", "ccst", "pfedhn"], ["ccst"]))
def test_a_seed_gives_one_model_for_any_workers(name: str) -> None:
    settings = {"side": 8, "codec": "digits"} if name == "ccst" else {}
    method, defense = defended(small(name, **settings), "dpsgd")
    before = torch.random.get_rng_state()
    one, two = (state_of(method, defense, workers) for workers in (1, 2))
    assert equal(one, two)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not equal(one, state_of(method, defense, 1, seed=1))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in one.values())


def test_server_and_clients_train_without_batchnorm() -> None:
    method, defense = defended(small("fedavg"), "dpsgd")
    world = federation(3, 0, wide(8))
    own = {name: held(name, 6) for name in world.clients}
    wire = Wire(dict.fromkeys(own, 6), defense, Transcript("all"))
    model = LocalEngine(1).run(method, world, own, wire)
    assert any(isinstance(module, nn.GroupNorm) for module in model.modules())
    for record, artifact in wire.transcript.of_kind(ModelState.kind):
        assert isinstance(artifact, ModelState), record
        assert not artifact.bn_statistics()
        assert artifact.state.keys() == model.state_dict().keys()


def test_simulators_train_as_private_clients_do() -> None:
    """One by one, from the same draws to the same model."""
    method, defense = defended(small("fedavg"), "dpsgd")
    world, data = federation(1, 0, wide(8)), held(n=6)
    received = ModelState.of(method.model(world, seeded(0)), SERVER, 0)
    client = method.client(world, data, seeded(1))
    client.rng = seeded(2)
    shared = next(artifact for artifact in client.fit([received]) if isinstance(artifact, ModelState))
    simulator = TrainingSimulator("model_state", method, world, defense, replace(data, client="other"), 0)
    images = ClientImages(data.images, data.labels, received)
    assert equal(simulator.trained(ClientSample(images, torch.arange(6)), seeded(2)).state, shared.state)
    assert not simulator.plain.elementwise_optimizer
    assert small("fedavg").elementwise_optimizer


def test_the_method_keeps_name_and_settings() -> None:
    method = private(lr=0.3)
    assert (method.name(), method.lr) == ("fedavg", 0.3)
    assert replace(method, lr=0.2).local_training == method.local_training
    assert method.for_clients(2).local_training == method.local_training
    assert private(spec="dpsgd:lr=0.02").lr == 0.02
    assert Method.named("fedavg").local_training.elementwise


def test_methods_that_couple_images_are_refused() -> None:
    for method, reason in (
        ("stablefdg", "combine the images of a mini-batch"),
        ("pardon", "triplet loss compares"),
        ("lsi", "normalises by mini-batch"),
        ("hfedf:embedding=autoencoder", "autoencoder"),
        ("ccst:split=after", "copies of one image are apart"),
    ):
        with refused(f"dpsgd: not applicable to {method.partition(':')[0]}: .*{reason}"):
            defended(Method.parse(method), "dpsgd")


def test_the_guarantee_covers_models() -> None:
    _, defense = defended(small("ccst", rounds=5), "dpsgd:epsilon=4")
    proved = defense.guarantee()
    assert (proved.epsilon, proved.delta) == (4, DELTA)
    assert set(proved.protects) == {ModelState.kind, ModelUpdate.kind}
    assert StyleStatistics.kind not in proved.protects
    for said in ("5 rounds", "one image more or less", "GroupNorm in place of every BatchNorm", "Poisson"):
        assert said in proved.statement


# The audit by canaries


@dataclass(frozen=True)
class Weak(PrivateSGD):
    """Adds only a share of the noise that was calibrated."""

    share: float = 0.5

    def multiplier(self, rate: float, steps: int) -> float:
        return self.share * super().multiplier(rate, steps)


class Wrong(DPSGD):  # type: ignore[misc,valid-type]
    """Halves the noise."""

    def steps(self) -> PrivateSGD:
        right = super().steps()
        return Weak(right.epsilon, right.delta, right.clip, right.accountant)


class Unclipped(DPSGD):  # type: ignore[misc,valid-type]
    """Clips to three times the norm that the noise is for."""

    def steps(self) -> PrivateSGD:
        right = super().steps()
        return Weak(right.epsilon, right.delta, 3 * right.clip, right.accountant, share=1 / 3)


def canary_audit(part: Any, seed: int, epsilon: float, n: int = 4, rounds: int = 4) -> CanaryAudit:
    defense = part(epsilon=epsilon)
    method = defense.local_training(small("fedavg", rounds=rounds, lr=0.01))
    bound = defense.bound_to(method.disclosure())
    found = measured_by_training(bound, method, federation(1, 0, wide()), held(n=n), seeded(seed))
    assert found is not None
    return found


def test_wrong_noise_is_found_and_correct_is_not() -> None:
    right, halved, unclipped = (canary_audit(part, 0, 4.0) for part in (DPSGD, Wrong, Unclipped))
    assert (right.canaries, right.guesses) == (2**14, 1638)
    for bound in (right.bound, right.gaussian):
        assert bound.epsilon is not None
        assert 1 < bound.epsilon < 4
    assert min(right.p, right.gaussian_p) > 0.5
    assert halved.gaussian_p < 1e-6
    assert unclipped.gaussian_p < 1e-6


def test_without_noise_the_claim_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weak, "multiplier", lambda self, rate, steps: 1e-3)
    found = canary_audit(Wrong, 0, 4.0)
    assert found.bound.saturated
    assert found.p < 0.05


def test_coins_that_say_nothing_give_no_epsilon() -> None:
    scores, coins = torch.randn(4096, generator=seeded(1)), torch.rand(4096, generator=seeded(2)) < 0.5
    found = audited(scores, coins, 0.1, DELTA)
    assert found.bound.epsilon == pytest.approx(0, abs=0.1)
    assert found.p > 0.05
    perfect = audited(coins.float() + 0.1 * scores, coins, 4.0, DELTA)
    assert perfect.bound.saturated
    assert perfect.bound.epsilon == perfect.ceiling


@dataclass(frozen=True)
class Updates(Defense):
    """Clips a client's update to norm 1 and adds Gaussian noise: replacing a client moves it by at most 2."""

    std: float = 2.0

    def protect(self, outgoing: Any, rng: torch.Generator, received: ModelState | None = None) -> Artifact:
        assert received is not None
        state = {}
        for name, tensor in outgoing.state.items():
            change = tensor - received.state[name]
            clipped = change * clip_factors(change.norm()[None], 1.0)
            state[name] = received.state[name] + clipped + self.std * torch.randn(tensor.shape, generator=rng)
        return replace(outgoing, state=state)  # type: ignore[no-any-return]

    def guarantee(self) -> Guarantee:
        return Guarantee(4.377, DELTA, "of a client, for std 2 and one round", (ModelState.kind,))


def test_canary_clients_measure_a_claim_about_clients() -> None:
    right, halved = (measured_by_updates(Updates(std), 1, seeded(0)) for std in (2.0, 1.0))
    assert right is not None
    assert halved is not None
    assert right.bound.epsilon is not None
    assert 1 < right.bound.epsilon < 4.377
    assert right.p > 0.05 < right.gaussian_p
    assert halved.gaussian_p < 1e-6
    repeated = measured_by_updates(Updates(2.0), 4, seeded(0))  # the claim is for one round
    assert repeated is not None
    assert repeated.gaussian_p < 1e-6


def test_nothing_is_measured_where_nothing_is_claimed() -> None:
    world: Federation = federation(1)
    assert measured_by_training(Defense.named("none")(), small("fedavg"), world, held(), seeded(0)) is None
    client = Defense.named("gaussian").configured({"unit": "client"})
    assert measured_by_training(client, small("fedavg"), world, held(), seeded(0)) is None
    assert measured_by_updates(Defense.named("gaussian")(), 1, seeded(0)) is None


def test_nothing_is_measured_of_unproved_updates() -> None:
    """DP-SGD's noise is in the training, which canary clients do not do; the others' is on styles, or none."""
    for defense in ("dpsgd+gaussian", "laplace+dpsgd", "dpsgd+clip:on=all"):
        _, bound = defended(small("ccst"), defense)
        assert bound.guarantee().epsilon is not None
        assert measured_by_updates(bound, 1, seeded(0)) is None


def test_a_delta_of_one_image_in_n_is_refused() -> None:
    DPSGD(delta=1 / 9 - 1e-6).check_sizes({"a": 9, "b": 4})
    with refused(r"dpsgd.delta: want less than 1/n"):
        DPSGD(delta=1 / 9).check_sizes({"a": 9, "b": 4})


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 4), (4.0, 4), (4.0, 12)])
def test_halved_noise_is_found_in_most_runs(epsilon: float, n: int) -> None:
    right = [canary_audit(DPSGD, seed, epsilon, n) for seed in range(100)]
    for bounds in ([found.bound for found in right], [found.gaussian for found in right]):
        assert all(bound.epsilon is not None and bound.epsilon <= epsilon for bound in bounds)
    assert min(min(found.p, found.gaussian_p) for found in right) > 0.05
    halved = [canary_audit(Wrong, seed, epsilon, n) for seed in range(20)]
    assert sum(found.gaussian_p < 0.05 for found in halved) >= 14
