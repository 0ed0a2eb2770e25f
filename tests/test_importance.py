"""LSI's importances as what is evaluated: how they are made, what is read from them, and what is not."""

from dataclasses import replace
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import factories
import numpy as np
import pytest
import torch
from conftest import TARGET, Evaluator, Fitted, mostly_slow, shortened, under
from factories import held, holding, in_one_row_and_back, mean, only_the_server_sees, run_on
from scipy.stats import norm
from test_lsi import federation, lsi, network, run
from torch import Tensor, nn

from fdgpriv.artifacts.parameters import ImportanceWeights
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.participant import stream
from fdgpriv.federation.partition import populate
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.importance import ImportanceSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.tasks.roc import area
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

attack_module: Any = import_module("fdgpriv.attacks.importance_membership")
KIND = ImportanceWeights.kind
D = 16


def fitted(dataset: Dataset, **settings: Any) -> Fitted:
    """LSI in a hurry, on digits of 8 px: two rounds, four clients to a domain."""
    domains = [replace(d, pixels=nn.functional.avg_pool2d(d.images, 4)) for d in dataset.domains]
    small = replace(dataset, domains=tuple(domains))
    population = populate(small, TARGET, "single", 12, 0)
    world = Federation(tuple(population.clients), len(small.classes), 8, network, 0)
    method, none = lsi(select="last", **settings), Defense.named("none")()
    ran = run_on(method, world, population.clients, keep="ends")
    return Fitted(population, method, world, none, ran.transcript)


@pytest.fixture(scope="module")
def weighed(digits: Dataset) -> Fitted:
    return fitted(shortened(digits, 120))


def target_of(fitted: Fitted) -> tuple[ArtifactSeries[Any], ImportanceSimulator]:
    target = fitted.shared.series(KIND)
    assert isinstance(target.simulator, ImportanceSimulator)
    return target, target.simulator


# The simulator


def test_importances_are_those_of_a_loop_over_images(digits: Dataset) -> None:
    trained = fitted(shortened(digits, 60), importance_per="sample")
    (name, *_) = trained.population.clients
    own, index = holding(trained, name, KIND), torch.tensor([4, 0, 2])
    made = target_of(trained)[1].simulate(ClientSample(own, index), generator(1))
    model = target_of(trained)[1].training.network()
    state = {key.removeprefix("model/"): t for key, t in made.tensors().items() if key.startswith("model/")}
    model.load_state_dict(state)
    for layer in (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)):
        layer.momentum = 1.0  # the statistics of the next pass alone
    model.train()(own.images[index])
    model.eval()
    slow = {key: torch.zeros_like(parameter) for key, parameter in model.named_parameters()}
    for image in own.images[index]:
        model.zero_grad()
        model(image[None]).square().sum().backward()
        for key, parameter in model.named_parameters():
            slow[key] += parameter.grad.abs() / len(index)
    assert set(made.tensors()) == set(slow) | {f"model/{key}" for key in state}
    for key, wanted in slow.items():
        torch.testing.assert_close(made.tensors()[key], wanted, atol=1e-5, rtol=1e-4)


def test_importances_that_crossed_are_made_again() -> None:
    """Without the translator, which the simulator leaves out, and where the client's generator is: the model bit for bit, the
    importances to rounding, since its network was laid out otherwise in memory."""
    method = lsi(invariance=0, select="last")
    _, transcript, _ = run(method)
    world, data = federation(), held("client-1", 6, out=3)
    rng = stream(world.seed, "client-1")
    client = method.client(world, data, rng)
    client.pretrain([transcript.models_sent(0)["client-1"]])
    client.fit([])
    simulator = training_simulator(method, world, data)
    own = ClientImages(data.images, data.labels, transcript.models_sent(1)["client-1"])
    made = simulator.simulate(ClientSample.all_of(own), rng)
    weights, model = (
        next(a for r, a in transcript.of_kind(kind) if r.round == 1 and r.sender == "client-1" and a)
        for kind in ("importance_weights", "model_state")
    )
    assert set(made.tensors()) == set(weights.tensors()) | {f"model/{name}" for name in model.tensors()}
    for name, tensor in weights.tensors().items():
        torch.testing.assert_close(made.tensors()[name], tensor, atol=1e-6, rtol=1e-4)
    for name, tensor in model.tensors().items():
        assert torch.equal(made.tensors()[f"model/{name}"], tensor)


def training_simulator(method: Any, world: Federation, data: Any) -> ImportanceSimulator:
    training = import_module("fdgpriv.simulation.training").TrainingSimulator
    none = Defense.named("none")()
    return ImportanceSimulator(training("model_state", method, world, none, data, 1), none, True)


def test_gradients_make_the_importances_of_the_wire(weighed: Fitted) -> None:
    """Under the model that crossed beside them, translator or not."""
    target, simulator = target_of(weighed)
    assert simulator.fresh_statistics
    for name in target.clients[:3]:
        own, artifact = holding(weighed, name, KIND), target.wire[name]
        assert own.received_model is not None
        gradients = simulator.last_layer_gradients(own.images, artifact, own.received_model, own.images)
        torch.testing.assert_close(simulator.pooled(gradients), simulator.last(artifact), atol=1e-5, rtol=1e-4)


def test_running_statistics_need_candidates_once(digits: Dataset, rng: torch.Generator) -> None:
    """As with the candidates once for each domain."""
    target, simulator = target_of(fitted(shortened(digits, 60), importance_statistics="running", invariance=0))
    assert not simulator.fresh_statistics
    client = target.clients[0]
    of_model = partial(
        simulator.last_layer_gradients, artifact=target.wire[client], received_model=target.received_model[client]
    )
    public, candidates = [torch.rand(n, 3, 8, 8, generator=rng) for n in (5, 7)], torch.rand(9, 3, 8, 8, generator=rng)
    for once, each in zip(
        attack_module._gradients(of_model, public, candidates, None),
        attack_module._gradients(of_model, public, candidates, 3),
        strict=True,
    ):
        assert [len(part) for part in once] == [len(part) for part in each]
        torch.testing.assert_close(torch.cat(once), torch.cat(each), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("output", ["logits", "paper"])
def test_gradients_of_one_image_are_its_gradient(output: str, rng: torch.Generator) -> None:
    method = lsi(importance_output=output, importance_sign="signed")
    model, images = method.model(federation(), rng), torch.rand(1, 3, 8, 8, generator=rng)
    gradients = method.last_layer_gradients(model, images, images)[0]
    found = method.importances(model, images)
    last = torch.cat([found["head.linear.weight"].flatten(), found["head.linear.bias"]])
    torch.testing.assert_close(gradients, last, atol=1e-5, rtol=1e-4)


def test_an_artifact_is_one_row_and_back(weighed: Fitted) -> None:
    in_one_row_and_back(target_of(weighed)[0])


def test_where_clients_divide_the_sent_model_is_read(digits: Dataset) -> None:
    divided = fitted(shortened(digits, 60), normaliser="clients", invariance=0)
    target, simulator = target_of(divided)
    own, artifact = holding(divided, target.clients[0], KIND), target.wire[target.clients[0]]
    model = simulator.training.network()
    own.received_model.load_into(model)
    assert set(artifact.tensors()) == {name for name, _ in model.named_parameters()}
    gradients = simulator.training.method.last_layer_gradients(model, own.images, own.images)  # type: ignore[attr-defined]
    assert torch.equal(simulator.last_layer_gradients(own.images, artifact, own.received_model, own.images), gradients)
    back = simulator.from_vector(simulator.to_vector(artifact, own.received_model), own.received_model)
    assert set(back.tensors()) == set(artifact.tensors())


def test_only_the_server_sees_importances(weighed: Fitted) -> None:
    target, _ = target_of(weighed)
    only_the_server_sees(target, "has clients' model updates")
    assert target.earlier.keys() == target.wire.keys()


# What is read from them


def evaluated(
    fitted: Fitted | Evaluator, name: str, sizes: tuple[int | None, ...], **settings: Any
) -> dict[int | None, TrialScores]:
    attack = Attack.named(name).configured(settings)
    return factories.evaluated(fitted, attack, KIND, sizes, per_client={1: 1, 5: 1})


@pytest.mark.slow
def test_a_single_image_is_told_from_all_others(weighed: Fitted) -> None:
    scores = evaluated(weighed.default_evaluator(), "importance_membership", (1, 5, None), public=40, draws=16)
    assert mean(scores[1]) > 0.98
    assert mean(scores[1]) > mean(scores[5]) > mean(scores[None]) - 0.05
    for name in ("noise", "random_style", "other_client"):
        assert abs(mean(scores[1], name) - 0.5) < 0.15


@pytest.mark.parametrize("defense", mostly_slow(["clip", "clip:clip=0.1"], ["clip:clip=0.1"]))
def test_cut_importances_are_compared_at_their_length(weighed: Fitted, defense: str) -> None:
    """One factor on all of them protects nobody."""
    scores = evaluated(under(weighed, defense), "importance_membership", (1,), public=40, draws=16)
    assert mean(scores[1]) > 0.98


def test_one_image_s_label_is_read_from_importances(weighed: Fitted) -> None:
    scores = evaluated(weighed, "label_histogram", (1,), expensive_simulations=25)
    assert (
        mean(scores[1]) < 1.3 < min(mean(scores[1], name) for name in ("public_shares", "random_style", "other_client"))
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    mostly_slow(
        [("domain_inference", {"expensive_simulations": 6}), ("linkage", {})],
        [("domain_inference", {"expensive_simulations": 6})],
    ),
)
def test_other_readers_of_properties_read_them(weighed: Fitted, name: str, settings: dict[str, int]) -> None:
    scores = evaluated(weighed, name, (None,), **settings)
    assert all(np.isfinite(values).all() for found in scores.values() for values in found.headline.values())


# The likelihood ratio


def worlds(n: int, trials: int = 30) -> tuple[float, float]:
    """AUC of the ratio over averages with and without x, and what the best test of equal covariances reaches."""
    rng = generator(0)
    simulator = SimpleNamespace(pooled=lambda gradients: gradients.mean(-2), batch=1)
    center = torch.randn(D, generator=rng)

    def some(*count: int) -> Tensor:
        return center + torch.randn(*count, D, generator=rng)

    test = attack_module.SimulatedImportances(simulator, [some(2000)], n, 400, rng)
    areas, power = [], []
    for _ in range(20):
        x = some(1)
        inside = (some(trials, n - 1).sum(1) + x) / n
        scores = torch.stack([test.log_ratio(own, [x])[0] for own in torch.cat([inside, some(trials, n).mean(1)])])
        areas.append(float(area(scores[None, :trials], scores[None, trials:])))
        power.append(float(norm.cdf(float((x - center).norm()) / n**0.5 / 2**0.5)))
    return float(np.mean(areas)), float(np.mean(power))


@pytest.mark.parametrize("n", [5, 20, 50])
def test_the_ratio_has_the_power_of_the_best_test(n: int) -> None:
    found, best = worlds(n)
    assert found == pytest.approx(best, abs=0.06)
