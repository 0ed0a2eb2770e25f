"""Membership by contributions: the formulas against slower ones, members found, and weaker variants that find fewer."""

import dataclasses
from importlib import import_module
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _confetti import attack_of, confetti, federation_of, method_of, sittings_of, trained
from factories import inferred
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.partition import populate
from fdgpriv.simulation.mixture import Mixture, identity
from fdgpriv.simulation.output_cache import OutputCache
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.membership import auc
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator

confidence: Any = import_module("fdgpriv.attacks._confidence")
contributions: Any = import_module("fdgpriv.attacks._contributions")
membership: Any = import_module("fdgpriv.attacks._membership")


def test_the_rest_of_other_clients_is_a_ridge_residual(rng: torch.Generator) -> None:
    others = torch.randn(5, 40, generator=rng).double() + torch.randn(40, generator=rng)
    scores = others[:2].sum(0) * 3 + torch.randn(40, generator=rng)
    standard = ((others - others.mean(1, keepdim=True)) / others.std(1, correction=0, keepdim=True)).T.numpy()
    own = ((scores - scores.mean()) / scores.std(correction=0)).numpy()
    expected = own - Ridge(alpha=contributions._RIDGE * 40, fit_intercept=False).fit(standard, own).predict(standard)
    found = contributions.unexplained(scores, others) / scores.std(correction=0)
    assert found.numpy() == pytest.approx(expected, abs=1e-8)
    alone = contributions.unexplained(scores, torch.empty(0, 40))
    assert torch.allclose(alone, scores - scores.mean())


def test_alignments_hold_no_graph(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only some parameters are compared, as of large networks and of clients that keep layers."""
    monkeypatch.setattr(contributions, "_MAX_COMPARED_ENTRIES", 1)
    data = populate(confetti(40, 2), "domain-0", "single", 1, 0).clients["client-00"]
    simulator = TrainingSimulator(
        "model_state", method_of(), federation_of(["a"], True), Defense.named("none")(), data, 0
    )
    received = ModelState.of(simulator.network(), "server", 0)
    trained_model = received.map(lambda t: t + 0.01 if t.is_floating_point() else t)
    images = contributions.RoundImages(simulator, received, torch.arange(6), data.images[:6], data.labels[:6], False)
    images.align([trained_model])
    assert not images.alignment(trained_model).requires_grad


@pytest.mark.parametrize("batched", [False, True])
def test_alignment_is_an_inner_product_of_gradients(batched: bool, rng: torch.Generator) -> None:
    """The gradient of a network in evaluation mode; if `batched`, with BatchNorm buffers that are those of the images."""
    data = populate(confetti(40, 2), "domain-0", "single", 1, 0).clients["client-00"]
    simulator = TrainingSimulator(
        "model_state", method_of(), federation_of(["a"], True), Defense.named("none")(), data, 0
    )
    received = ModelState.of(simulator.network(), "server", 0)
    models = [
        received.map(lambda t: t + 0.01 * torch.randn(t.shape, generator=rng) if t.is_floating_point() else t)
        for _ in range(2)
    ]
    mixed = Mixture(models[0], models[1], 0.3)
    pool = torch.tensor([3, 5, 6, 9, 11, 12])
    images = contributions.RoundImages(simulator, received, pool, data.images[:6], data.labels[:6], batched)
    assert images.positions(torch.tensor([5, 12])).tolist() == [1, 5]
    images.align([models[0], mixed])
    network = simulator.network()
    received.load_into(network)
    if batched:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0
        network.train()(data.images[:6])
    network.eval()
    for sent in (models[0], mixed.artifact()):
        expected = []
        for image, label in zip(data.images[:6], data.labels[:6], strict=True):
            network.zero_grad()
            nn.functional.cross_entropy(network(image[None]), label[None]).backward()
            pairs = [
                (p.grad.flatten(), (received.state[n] - sent.state[n]).flatten()) for n, p in network.named_parameters()
            ]
            gradient, change = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            expected.append(float(gradient @ change / gradient.norm()))
        found = images.alignment(sent if sent is models[0] else mixed)
        assert found.tolist() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_what_clients_keep_is_compared_from_where_each_started(rng: torch.Generator) -> None:
    """The gradient is at the common model, the change and the statistics from the client's own start."""
    data = populate(confetti(40, 2), "domain-0", "single", 1, 0).clients["client-00"]
    simulator = TrainingSimulator(
        "model_state", method_of(), federation_of(["a"], True), Defense.named("none")(), data, 0
    )
    common = ModelState.of(simulator.network(), "server", 0)
    start = common.map(lambda t: t + torch.rand(t.shape, generator=rng) if t.is_floating_point() else t)
    change = {
        n: torch.rand(t.shape, generator=rng) if t.is_floating_point() else t + 1 for n, t in common.state.items()
    }

    def compared(model: ModelState) -> tuple[Tensor, dict[str, Tensor]]:
        """What an artifact tells that was trained from this model."""
        shared = dataclasses.replace(model, state={n: t + change[n] for n, t in model.state.items()})
        images = contributions.RoundImages(simulator, common, torch.arange(6), data.images[:6], data.labels[:6], True)
        images.register(shared, model)
        images.align([shared])
        return images.alignment(shared), images.revealed(shared)

    alignment, statistics = compared(start)
    wanted, _ = compared(common)
    torch.testing.assert_close(alignment, wanted, rtol=1e-3, atol=1e-4)
    network, shared = simulator.network(), {n: t + change[n] for n, t in start.state.items()}
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            momentum, key = module.momentum or 0.0, f"{name}.running_mean"
            plain = (shared[key] - (1 - momentum) * start.state[key]) / momentum
            torch.testing.assert_close(statistics[name][: len(plain)].float(), plain, rtol=1e-3, atol=1e-3)


def test_models_of_which_most_is_sent_to_all() -> None:
    def model(common: float, kept: float, size: int = 4) -> ModelState:
        state = {"a": torch.full((size,), float(common)), "b": torch.full((4,), float(kept))}
        return ModelState(client="server", round=0, state=state)

    assert contributions.mostly_alike([model(1, 2), model(1, 3), model(1, 4)])
    assert not contributions.mostly_alike([model(1, 2), model(1, 3), model(2, 2)])
    assert not contributions.mostly_alike([model(1, 2, 3), model(1, 3, 3)])
    assert not contributions.mostly_alike([model(1, 2)])
    mean = contributions._mean_model([model(1, 2), model(1, 4)])
    assert (mean.state["a"] == 1).all()
    assert (mean.state["b"] == 3).all()


def test_at_most_three_means_serve_all_views_of_a_round() -> None:
    names = [f"c{i}" for i in range(8)]
    kept = {name: torch.tensor([2.0**i]) for i, name in enumerate(names)}
    sent = torch.zeros(4)
    models = {name: ModelState(client="server", round=0, state={"sent": sent, "kept": kept[name]}) for name in names}
    compared = contributions.Contributions(SimpleNamespace(cache=Cache()), torch.zeros(0), None, 8)
    means = set()
    for attacked, sender in product(names, names):
        others = {name: model for name, model in models.items() if name not in (attacked, sender)}
        seen = SimpleNamespace(number=0, received_model=models[sender], received_models=others)
        common = compared._common_model(seen, names)
        averaged = next(
            group
            for size in (2, 3)
            for group in combinations(others, size)
            if torch.equal(torch.stack([kept[name] for name in group]).mean(0), common.state["kept"])
        )
        assert len(averaged) == (2 if names[-1] in averaged else 3)
        means.add(averaged)
    assert len(means) == 3
    one_of_each_third = {name: models[name] for name in ("c0", "c3", "c6")}
    seen = SimpleNamespace(number=0, received_model=models["c7"], received_models=one_of_each_third)
    assert float(compared._common_model(seen, names).state["kept"]) == pytest.approx((1 + 8 + 64) / 3)


@pytest.fixture(scope="module")
def thrice() -> Evaluator:
    """Eight clients, three rounds, in which nobody learns an image by heart."""
    return trained(160, 3, 8, rounds=3, local_epochs=2)


def area_of(evaluator: Evaluator, name: str = "attack", size: int | None = None, **given: Any) -> float:
    """The mean AUC of the default attack on artifacts of this name and size, by default those of whole clients."""
    (asked,) = sittings_of(evaluator, "model_state", "server", (size,))
    adversary = dataclasses.replace(asked.adversary, cache=Cache(), **given)
    ones = [trial.by_role[name][0] for trial in asked.trials if trial.size == size]
    found, _ = inferred(attack_of(), adversary, [one.observation for one in ones], generator(1))
    return float(auc(found, [one.truth for one in ones]).mean())


def test_confidence_of_all_rounds_tells_members(thrice: Evaluator) -> None:
    (asked,) = sittings_of(thrice, "model_state", "server", (None,))

    def mean_auc(role: str, **settings: Any) -> float:
        scored = [trial.by_role[role][0] for trial in asked.trials]
        attack = attack_of(statistic="confidence", **settings)
        scores, _ = inferred(attack, asked.adversary, [each.observation for each in scored], generator(1))
        return float(auc(scores, [each.truth for each in scored]).mean())

    assert mean_auc("attack") > 0.62
    assert mean_auc("attack") > mean_auc("attack", rounds=1)
    assert abs(mean_auc("other_client") - 0.5) < 0.1


def test_confidence_is_what_other_clients_models_leave_unexplained(thrice: Evaluator) -> None:
    """Against scikit-learn's ridge regression and logits of each model by itself."""
    (asked,) = sittings_of(thrice, "model_state", "server", (None,))
    adversary, observation = asked.adversary, asked.trials[0].by_role["attack"][0].observation
    index = observation.membership_candidates
    labels = torch.arange(len(adversary.candidates)) % 4
    untrusted = labels[:20] * 0 - 1  # no model is right: each keeps its statistics
    network = thrice.series("model_state").simulator.network().eval()
    outputs = membership.ModelOutputs(
        network, adversary.candidates, adversary.candidates[:20], untrusted, OutputCache()
    )
    outputs.evaluate_received_models([observation])
    (score,) = confidence.Confidences(adversary, labels, outputs, 3).scores([observation])

    def row(state: ModelState) -> np.ndarray[Any, Any]:
        state.load_into(network)
        p = network(adversary.candidates[index]).double().softmax(-1)[torch.arange(len(index)), labels[index]]
        values = (p / (1 - p)).log().detach().numpy()
        return (values - values.mean()) / values.std()  # type: ignore[no-any-return]

    want = np.zeros(len(index))
    for seen in adversary.view(observation):
        observed, others = row(seen.artifact), np.stack([row(artifact) for artifact in seen.others.values()])
        fitted = Ridge(0.1 * len(index), fit_intercept=False).fit(others.T, observed)
        residual = observed - fitted.predict(others.T)
        want += (residual - residual.mean()) / residual.std()
    np.testing.assert_allclose(score.numpy(), want, atol=1e-3)


@pytest.mark.parametrize(("alike", "statistic"), [(True, "contribution"), (False, "confidence")])
def test_the_statistic_follows_from_what_clients_receive(
    thrice: Evaluator, monkeypatch: pytest.MonkeyPatch, alike: bool, statistic: str
) -> None:
    """Models of which most is equal are compared by gradients; those of another network for each client by confidence."""
    (asked,) = sittings_of(thrice, "model_state", "server", (None,))
    observations = [trial.by_role["attack"][0].observation for trial in asked.trials[:2]]
    received = observations[0].received_model
    assert received is not None
    last = [name for name, t in received.state.items() if t.is_floating_point()][-1]
    other = dataclasses.replace(
        received,
        state={
            name: t + 1 if t.is_floating_point() and (name == last or not alike) else t
            for name, t in received.state.items()
        },
    )
    observations[1] = dataclasses.replace(observations[1], received_model=other)
    used: list[str] = []
    for name, part in {"contribution": contributions.Contributions, "confidence": confidence.Confidences}.items():
        monkeypatch.setattr(part, "scores", lambda self, given, name=name: used.append(name) or [*map(zeros, given)])
    inferred(attack_of(), asked.adversary, observations, generator(1))
    assert used == [statistic]


def zeros(observation: Observation) -> Tensor:
    return torch.zeros(len(observation.membership_candidates))


@pytest.mark.slow
def test_members_are_found_by_all_rounds(thrice: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """And fewer of them where a round, the other clients or the BatchNorm statistics are not used; none by a control."""
    full = area_of(thrice)
    assert full > 0.7
    assert abs(area_of(thrice, "other_client") - 0.5) < 0.1
    assert area_of(thrice, last_rounds=1) < full - 0.02
    with monkeypatch.context() as patch:
        patch.setattr(contributions, "unexplained", lambda scores, others: scores.double() - scores.double().mean())
        assert area_of(thrice) < full - 0.02
    with monkeypatch.context() as patch:
        patch.setattr(contributions, "revealed", lambda *_: {})
        assert area_of(thrice) < full - 0.02


def test_each_model_is_evaluated_once(thrice: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many candidate lists it is read with; the scores are those of each read by itself."""
    (asked,) = sittings_of(thrice, "model_state", "server", (1, None))
    ones = [scored.observation for trial in asked.trials for scored in trial.by_role["attack"]]
    ones += [scored.observation for trial in asked.trials for scored in trial.by_role["other_client"]]
    ones += [
        dataclasses.replace(one, sent=Mixture(one.sent, ones[0].sent, weight))
        for one in ones[:4]
        for weight in (0.0, 0.4)
    ]
    evaluated: list[Any] = []
    once = contributions.Contributions._logits

    def noted(self: Any, images: Any, sent: Any, some: torch.Tensor) -> torch.Tensor:
        evaluated.append((images, identity(sent)))
        return once(self, images, sent, some)

    def scores() -> torch.Tensor:
        adversary = dataclasses.replace(asked.adversary, cache=Cache[Any]())
        return torch.cat(list(inferred(attack_of(), adversary, ones, generator(1))[0].values))

    monkeypatch.setattr(contributions.Contributions, "_logits", noted)
    found = scores()
    assert len(evaluated) == len(set(evaluated))
    count = len(evaluated)
    monkeypatch.setattr(
        contributions.Contributions,
        "_observed_logits",
        lambda self, images, sent, index: self._logits(images, sent, images.images[index]),
    )
    torch.testing.assert_close(found, scores(), atol=1e-3, rtol=1e-3)
    assert len(evaluated) > 2 * count


def test_candidates_are_one_batch(thrice: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """All candidates of a domain in each round; a client with one image normalises it by the received statistics."""
    batches: list[int] = []
    monkeypatch.setattr(contributions, "normalise_as_one_batch", lambda _, images: batches.append(len(images)))
    area_of(thrice)
    (asked,) = sittings_of(thrice, "model_state", "server", (None,))
    every = torch.cat([trial.by_role["attack"][0].observation.membership_candidates for trial in asked.trials]).unique()
    assert len(batches) % 3 == 0
    assert len(every) / 2 <= sum(batches) / 3 <= len(every)
    batches.clear()
    area_of(thrice, size=1)
    assert not batches


def test_outputs_differ_by_the_trusted_statistics(
    rng: torch.Generator,
) -> None:
    """Two adversaries that share a cache, of whom only one trusts the received model, each read what it would alone."""
    data = populate(confetti(40, 2), "domain-0", "single", 1, 0).clients["client-00"]
    simulator = TrainingSimulator(
        "model_state", method_of(), federation_of(["a"], True), Defense.named("none")(), data, 0
    )
    network = simulator.network().eval()
    received = ModelState.of(network, "server", 0)
    model = received.map(lambda t: t + torch.rand(t.shape, generator=rng) if t.is_floating_point() else t)
    index = torch.arange(5)
    said = network(data.images).argmax(1)
    observation = dataclasses.replace(
        sittings_of(trained(60, 3, 4, rounds=1), "model_state", "server", (None,))[0]
        .trials[0]
        .by_role["attack"][0]
        .observation,
        sent=model,
        membership_candidates=index,
        received_model=received,
    )

    def outputs(trusts: bool, cache: OutputCache) -> torch.Tensor:
        labels = said if trusts else (said + 1) % 4
        own = membership.ModelOutputs(network, data.images, data.images, labels, cache)
        own.evaluate_received_models([observation])
        found: torch.Tensor = own.candidate_logits_of_artifact(model, model, [observation], received, False).of(index)[
            0
        ]
        return found

    shared = OutputCache.among([(model, index)])
    both = [outputs(trusts, shared) for trusts in (True, False)]
    assert not torch.allclose(both[0], both[1])
    for trusts, found in zip((True, False), both, strict=True):
        assert torch.equal(found, outputs(trusts, OutputCache.among([(model, index)])))
