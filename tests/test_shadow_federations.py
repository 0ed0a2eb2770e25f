"""Shadow federations: public images alone, the method's own training, and that who took part is found and nobody else."""

import dataclasses
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from _confetti import attack_of, confetti, federation_of, method_of, sittings_of, trained
from factories import inferred
from torch import Tensor, nn

from fdgpriv.adversary import Adversary
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials, ScoredObservation
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import populate
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.simulation.shared_model import SharedModelSimulator, last_sent
from fdgpriv.threat import Capability, NotGranted, ThreatModel
from fdgpriv.utils.seeds import generator

federations: Any = import_module("fdgpriv.attacks._shadow_models")
asking: Any = import_module("fdgpriv.attacks._membership")


@pytest.fixture(scope="module")
def overfitted() -> Evaluator:
    """Six clients who learned seven images each by heart, together."""
    return trained(120, 3, 6, halved=True, rounds=8, local_epochs=10)


def trials_of(evaluator: Evaluator, role: str = "server") -> AdversaryTrials:
    (adversary_trials,) = sittings_of(evaluator, "global_model", role, (None,))
    return adversary_trials


@cache
def scores_of(evaluator: Evaluator, statistic: str, of: str) -> list[float]:
    """AUCs, the model of all read as it is, or exchanged for that of a federation that no client took part in."""
    adversary_trials = trials_of(evaluator)
    trials = [
        dataclasses.replace(trial, by_role={"attack": trial.by_role["attack"]}) for trial in adversary_trials.trials
    ]
    if of == "stranger":
        (model,) = federations.shadow_federations(adversary_trials.adversary, 5)[4].received_model
        for i, trial in enumerate(trials):
            (one,) = trial.by_role["attack"]
            observation = dataclasses.replace(one.observation, sent=model)
            trials[i] = dataclasses.replace(trial, by_role={"attack": [ScoredObservation(observation, one.truth)]})
    attack = attack_of(shadows=4, statistic=statistic)
    return evaluate_trials(attack, [AdversaryTrials(adversary_trials.adversary, trials)], (), generator(4))[0][
        None
    ].headline["attack"]


@pytest.mark.parametrize(("statistic", "least"), [("lira", 0.7), ("rmia", 0.62)])
def test_shadow_federations_find_participants(overfitted: Evaluator, statistic: str, least: float) -> None:
    assert np.mean(scores_of(overfitted, statistic, "itself")) > least
    assert abs(np.mean(scores_of(overfitted, statistic, "stranger")) - 0.5) < 0.12


def test_shadow_federations_are_made_on_demand(overfitted: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    adversary_trials = trials_of(dataclasses.replace(overfitted))
    trainings: list[object] = []

    def trained_from_start(self: SharedModelSimulator, parties: Sequence[object], rng: torch.Generator) -> list[Any]:
        trainings.append(parties)
        return list(overfitted.series("global_model").wire.values())[:1]

    monkeypatch.setattr(SharedModelSimulator, "trained_from_start", trained_from_start)
    lira, rmia = {"statistic": "lira", "shadows": 3}, {"statistic": "rmia", "shadows": 4}
    for settings, total in (({}, 0), (lira, 3), (rmia, 4)):
        evaluate_trials(attack_of(**settings), [adversary_trials], (), generator(4))
        assert len(trainings) == total  # one that both asked for is trained once


@pytest.mark.parametrize("role", ["server", "client", "third_party"])
def test_shadow_federations_hold_public_images(overfitted: Evaluator, role: str) -> None:
    population = overfitted.population
    private = {float(image.sum()) for data in population.clients.values() for image in data.images}
    private |= {float(image.sum()) for data in population.clients.values() for image in data.held_out_images}
    every = sum(len(data) for data in population.clients.values())
    for adversary_trials in sittings_of(overfitted, "global_model", role, (None,)):
        adversary, saw = adversary_trials.adversary, []
        public = [{float(image.sum()) for image in domain.images} for domain in adversary.auxiliary]
        for parties in parties_of(adversary, 4):
            assert len(parties) >= 2
            held = [{float(image.sum()) for image in images} for images, _ in parties]
            for one in held:
                assert not one & private
                assert sum(one <= domain for domain in public) == 1  # a client's are of one domain
                assert 2 <= len(one) <= 1.5 * adversary.typical
            assert {len(labels) for _, labels in parties} == {len(images) for images, _ in parties}
            saw.append(set().union(*held))
            assert (
                sum(map(len, held))
                == len(saw[-1])
                <= federations._MAX_RELATIVE_SIZE * every + federations._MIN_IMAGES * len(public)
            )
        assert not saw[0] & saw[1]
        assert not saw[2] & saw[3]
        assert saw[0] != saw[2]


def parties_of(adversary: Adversary, count: int) -> list[Sequence[tuple[Tensor, Tensor]]]:
    """What the clients of shadow federations hold, none of which is trained."""
    seen: list[Sequence[tuple[Tensor, Tensor]]] = []

    class Spied(SharedModelSimulator):
        def trained_from_start(self, parties: Sequence[tuple[Tensor, Tensor]], rng: torch.Generator) -> list[Any]:
            seen.append(parties)
            return []

    simulator = adversary.simulator(SharedModelSimulator)
    spied = Spied(**{field.name: getattr(simulator, field.name) for field in dataclasses.fields(simulator)})
    fresh = dataclasses.replace(adversary, _simulator=spied, cache=type(adversary.cache)())
    for one, parties in zip(federations.shadow_federations(fresh, count), seen, strict=True):
        images = torch.cat([domain.images for domain in adversary.auxiliary])[one.saw]
        held = torch.cat([images for images, _ in parties])
        assert sorted(images.sum((1, 2, 3)).tolist()) == sorted(held.sum((1, 2, 3)).tolist())
    return seen


def simulator_of(method: Method, clients: int = 4) -> tuple[SharedModelSimulator, list[tuple[Tensor, Tensor]]]:
    """A simulator, and what three clients hold who have nothing to do with it."""
    population = populate(confetti(60, 3), "domain-0", "single", clients, 0)
    like = dataclasses.replace(population.clients["client-00"], pixels=torch.empty(0), labels=torch.empty(0))
    federation = federation_of(list(population.clients), norm=True)
    simulator = SharedModelSimulator("model_state", method, federation, Defense.named("none")(), like, 0)
    domain = population.target
    return simulator, [(domain.images[i : i + 9], domain.labels[i : i + 9]) for i in (0, 10, 20)]


def test_a_shadow_federation_is_the_method_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its rounds, over as many clients as hold images, one thread at a time; the last model that its server sends."""
    simulator, parties = simulator_of(method_of(rounds=3, local_epochs=1))
    ran: list[tuple[Any, ...]] = []
    run = LocalEngine.run

    def spied(self: LocalEngine, method: Method, federation: Federation, data: Any, wire: Wire) -> nn.Module:
        ran.append((self.workers, method, federation, data, wire))
        return run(self, method, federation, data, wire)

    monkeypatch.setattr(LocalEngine, "run", spied)
    (model,) = simulator.trained_from_start(parties, generator(5))
    ((workers, method, federation, data, wire),) = ran
    assert (workers, method) == (1, simulator.method)
    assert federation.clients == tuple(data) == ("client-00", "client-01", "client-02")
    assert federation.seed != simulator.federation.seed
    for own, (images, _) in zip(data.values(), parties, strict=True):
        assert (len(own), len(own.held_out_images)) == (8, 1)
        assert sorted(torch.cat([own.images, own.held_out_images]).sum((1, 2, 3)).tolist()) == sorted(
            images.sum((1, 2, 3)).tolist()
        )
    assert model.round == 2
    assert last_sent(wire.transcript) == (2, dict.fromkeys(data, model))


def test_a_shadow_federation_is_repeatable() -> None:
    simulator, parties = simulator_of(method_of(rounds=2, local_epochs=1))
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    one, again, other = (simulator.trained_from_start(parties, generator(seed))[0].state for seed in (5, 5, 6))
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.items())
    assert not torch.equal(one["head.weight"], other["head.weight"])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    simulator, parties = simulator_of(method_of(rounds=3, local_epochs=1, lr=1e30))
    (model,) = simulator.trained_from_start(parties, generator(5))
    assert model.round < 2
    assert model.not_finite() is None


def test_personal_methods_send_each_shadow_a_model() -> None:
    method = Method.named("pfedhn").configured({"rounds": 2, "participants": None, "local_steps": 2, "hidden": 4})
    simulator, parties = simulator_of(method)
    wide = [(nn.functional.interpolate(images, size=(16, 16)), labels) for images, labels in parties]
    simulator = dataclasses.replace(simulator, federation=dataclasses.replace(simulator.federation, image_size=16))
    models = simulator.trained_from_start(wide, generator(5))
    assert [model.round for model in models] == [1] * 3
    name = next(name for name in models[0].state if name.endswith("weight"))
    assert not torch.equal(models[0].state[name], models[1].state[name])


def test_shadow_federations_use_their_statistics(overfitted: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the model of all come from the clients' images."""
    adversary, trial = trials_of(overfitted).adversary, trials_of(overfitted).trials[0]
    asked: dict[int, tuple[Tensor, Tensor]] = {}
    logits = asking.ModelOutputs.logits

    def spied(self: Any, states: Sequence[Any], images: Tensor, sent: Any) -> Tensor:
        asked[id(states[0])] = images, (told := logits(self, states, images, sent))
        return told

    monkeypatch.setattr(
        asking, "_MIN_TRUSTED_ACCURACY", 0.0
    )  # so that what is trained of this model is asked with its statistics
    monkeypatch.setattr(asking.ModelOutputs, "logits", spied)
    inferred(attack_of(statistic="lira", shadows=2), adversary, [trial.by_role["attack"][0].observation], generator(4))
    shadow = federations.shadow_federations(adversary, 1)[0].received_model[0]
    images, told = asked[id(shadow)]
    network = adversary.simulator(SharedModelSimulator).network()
    shadow.load_into(network)
    with torch.no_grad():
        torch.testing.assert_close(told[0], network.eval()(images))


def test_no_shadow_federation_without_images(overfitted: Evaluator) -> None:
    adversary = trials_of(overfitted).adversary
    with pytest.raises(ValueError, match="'server' holds no auxiliary images"):
        federations.shadow_federations(dataclasses.replace(adversary, _auxiliary=(), cache=type(adversary.cache)()), 2)
    known = adversary.threat.capabilities - {Capability.KNOWS_DEFENSE}
    who = ThreatModel("nobody", "Does not know the defense.", adversary.threat.auxiliary, known)
    with pytest.raises(NotGranted, match="knows_defense"):
        federations.shadow_federations(dataclasses.replace(adversary, threat=who), 2)
