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
from torch import Tensor, nn

from fdgpriv.engine.local import LocalEngine
from fdgpriv.exam import Asked, Sitting, View
from fdgpriv.exam.marks import examine
from fdgpriv.exam.proctor import Proctor
from fdgpriv.federation import Federation, generator
from fdgpriv.partition import populate
from fdgpriv.roles import Defense, Method
from fdgpriv.subjects import SharedModelCraft
from fdgpriv.subjects.shared_model import last_sent
from fdgpriv.threat import Capability, NotGranted, ThreatModel
from fdgpriv.wire import Wire

federations: Any = import_module("fdgpriv.attacks._shadow_federations")
asking: Any = import_module("fdgpriv.attacks._asking")


@pytest.fixture(scope="module")
def overfitted() -> Proctor:
    """Six clients who learned seven images each by heart, together."""
    return trained(120, 3, 6, halved=True, rounds=8, local_epochs=10)


def sitting_of(proctor: Proctor, role: str = "server") -> Sitting:
    (sitting,) = sittings_of(proctor, "global_model", role, (None,))
    return sitting


@cache
def whole_marks(proctor: Proctor, statistic: str, of: str) -> list[float]:
    """AUCs, the model of all read as it is, or exchanged for that of a federation that no client took part in."""
    sitting = sitting_of(proctor)
    items = [dataclasses.replace(item, asked={"attack": item.asked["attack"]}) for item in sitting.items]
    if of == "stranger":
        (model,) = federations.shadow_federations(sitting.view, 5)[4].sent
        for i, item in enumerate(items):
            (one,) = item.asked["attack"]
            question = dataclasses.replace(one.question, artifact=model)
            items[i] = dataclasses.replace(item, asked={"attack": [Asked(question, one.truth)]})
    attack = attack_of(shadows=4, statistic=statistic)
    return examine(attack, [Sitting(sitting.view, items)], (), generator(4))[0][None].headline["attack"]


@pytest.mark.parametrize(("statistic", "least"), [("lira", 0.7), ("rmia", 0.62)])
def test_shadow_federations_tell_who_took_part(overfitted: Proctor, statistic: str, least: float) -> None:
    assert np.mean(whole_marks(overfitted, statistic, "itself")) > least


@pytest.mark.parametrize("statistic", ["lira", "rmia"])
def test_shadow_federations_find_nobody_in_a_model_of_strangers(overfitted: Proctor, statistic: str) -> None:
    assert abs(np.mean(whole_marks(overfitted, statistic, "stranger")) - 0.5) < 0.12


def test_nobody_pays_for_shadow_federations_who_did_not_ask(
    overfitted: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting = sitting_of(dataclasses.replace(overfitted))
    trainings: list[object] = []

    def trained_anew(self: SharedModelCraft, parties: Sequence[object], rng: torch.Generator) -> list[Any]:
        trainings.append(parties)
        return list(overfitted.subject("global_model").wire.values())[:1]

    monkeypatch.setattr(SharedModelCraft, "trained_anew", trained_anew)
    for settings, total in (
        ({}, 0),
        ({"statistic": "lira", "shadows": 3}, 3),
        ({"statistic": "rmia", "shadows": 4}, 4),
    ):
        examine(attack_of(**settings), [sitting], (), generator(4))
        assert len(trainings) == total  # one that both asked for is trained once


@pytest.mark.parametrize("role", ["server", "client", "third_party"])
def test_shadow_federations_hold_public_images_alone_as_clients_would(overfitted: Proctor, role: str) -> None:
    population = overfitted.population
    private = {float(image.sum()) for data in population.clients.values() for image in data.images}
    private |= {float(image.sum()) for data in population.clients.values() for image in data.held_out_images}
    every = sum(len(data) for data in population.clients.values())
    for sitting in sittings_of(overfitted, "global_model", role, (None,)):
        view, saw = sitting.view, []
        public = [{float(image.sum()) for image in domain.images} for domain in view.auxiliary]
        for parties in parties_of(view, 4):
            assert len(parties) >= 2
            held = [{float(image.sum()) for image in images} for images, _ in parties]
            for one in held:
                assert not one & private
                assert sum(one <= domain for domain in public) == 1  # a client's are of one domain
                assert 2 <= len(one) <= 1.5 * view.typical
            assert {len(labels) for _, labels in parties} == {len(images) for images, _ in parties}
            saw.append(set().union(*held))
            assert sum(map(len, held)) == len(saw[-1]) <= federations._COST * every + federations._LEAST * len(public)
        assert not saw[0] & saw[1]
        assert not saw[2] & saw[3]
        assert saw[0] != saw[2]


def parties_of(view: View, count: int) -> list[Sequence[tuple[Tensor, Tensor]]]:
    """What the clients of shadow federations hold, none of which is trained."""
    seen: list[Sequence[tuple[Tensor, Tensor]]] = []

    class Spied(SharedModelCraft):
        def trained_anew(self, parties: Sequence[tuple[Tensor, Tensor]], rng: torch.Generator) -> list[Any]:
            seen.append(parties)
            return []

    craft = view.craft(SharedModelCraft)
    spied = Spied(**{field.name: getattr(craft, field.name) for field in dataclasses.fields(craft)})
    fresh = dataclasses.replace(view, _craft=spied, learned=type(view.learned)())
    for one, parties in zip(federations.shadow_federations(fresh, count), seen, strict=True):
        images = torch.cat([domain.images for domain in view.auxiliary])[one.saw]
        held = torch.cat([images for images, _ in parties])
        assert sorted(images.sum((1, 2, 3)).tolist()) == sorted(held.sum((1, 2, 3)).tolist())
    return seen


def craft_of(method: Method, clients: int = 4) -> tuple[SharedModelCraft, list[tuple[Tensor, Tensor]]]:
    """A craft, and what three clients hold who have nothing to do with it."""
    population = populate(confetti(60, 3), "domain-0", "single", clients, 0)
    like = dataclasses.replace(population.clients["client-00"], images=torch.empty(0), labels=torch.empty(0))
    federation = federation_of(list(population.clients), norm=True)
    craft = SharedModelCraft("model_state", method, federation, Defense.named("none")(), like, 0)
    domain = population.target
    return craft, [(domain.images[i : i + 9], domain.labels[i : i + 9]) for i in (0, 10, 20)]


def test_a_federation_trained_anew_is_the_method_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its rounds, over as many clients as hold images, one thread at a time; the last model that its server sends."""
    craft, parties = craft_of(method_of(rounds=3, local_epochs=1))
    ran: list[tuple[Any, ...]] = []
    run = LocalEngine.run

    def spied(self: LocalEngine, method: Method, federation: Federation, data: Any, wire: Wire) -> nn.Module:
        ran.append((self.workers, method, federation, data, wire))
        return run(self, method, federation, data, wire)

    monkeypatch.setattr(LocalEngine, "run", spied)
    (model,) = craft.trained_anew(parties, generator(5))
    ((workers, method, federation, data, wire),) = ran
    assert (workers, method) == (1, craft.method)
    assert federation.clients == tuple(data) == ("client-00", "client-01", "client-02")
    assert federation.seed != craft.federation.seed
    for own, (images, _) in zip(data.values(), parties, strict=True):
        assert (len(own), len(own.held_out_images)) == (8, 1)
        assert sorted(torch.cat([own.images, own.held_out_images]).sum((1, 2, 3)).tolist()) == sorted(
            images.sum((1, 2, 3)).tolist()
        )
    assert model.round == 2
    assert last_sent(wire.transcript) == (2, dict.fromkeys(data, model))


def test_a_federation_trained_anew_is_the_same_again() -> None:
    craft, parties = craft_of(method_of(rounds=2, local_epochs=1))
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    one, again, other = (craft.trained_anew(parties, generator(seed))[0].state for seed in (5, 5, 6))
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.items())
    assert not torch.equal(one["head.weight"], other["head.weight"])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_federation_trained_anew_that_diverges_ends_before() -> None:
    craft, parties = craft_of(method_of(rounds=3, local_epochs=1, lr=1e30))
    (model,) = craft.trained_anew(parties, generator(5))
    assert model.round < 2
    assert model.not_finite() is None


def test_of_a_personal_method_each_client_of_a_shadow_federation_is_sent_a_model() -> None:
    method = Method.named("pfedhn").configured({"rounds": 2, "participants": None, "local_steps": 2, "hidden": 4})
    craft, parties = craft_of(method)
    wide = [(nn.functional.interpolate(images, size=(16, 16)), labels) for images, labels in parties]
    craft = dataclasses.replace(craft, federation=dataclasses.replace(craft.federation, image_size=16))
    models = craft.trained_anew(wide, generator(5))
    assert [model.round for model in models] == [1] * 3
    name = next(name for name in models[0].state if name.endswith("weight"))
    assert not torch.equal(models[0].state[name], models[1].state[name])


def test_shadow_federations_are_asked_with_their_own_statistics(
    overfitted: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the model of all come from the clients' images."""
    view, item = sitting_of(overfitted).view, sitting_of(overfitted).items[0]
    asked: dict[int, tuple[Tensor, Tensor]] = {}
    logits = asking.Asking.logits

    def spied(self: Any, states: Sequence[Any], images: Tensor, sent: Any) -> Tensor:
        asked[id(states[0])] = images, (told := logits(self, states, images, sent))
        return told

    monkeypatch.setattr(asking, "_TRUSTED", 0.0)  # so that what is trained of this model is asked with its statistics
    monkeypatch.setattr(asking.Asking, "logits", spied)
    attack_of(statistic="lira", shadows=2).read(view, [item.asked["attack"][0].question], generator(4))
    shadow = federations.shadow_federations(view, 1)[0].sent[0]
    images, told = asked[id(shadow)]
    network = view.craft(SharedModelCraft).network()
    shadow.load_into(network)
    with torch.no_grad():
        torch.testing.assert_close(told[0], network.eval()(images))


def test_who_holds_no_images_or_does_not_know_the_defense_trains_no_federation(overfitted: Proctor) -> None:
    view = sitting_of(overfitted).view
    with pytest.raises(ValueError, match="'server' holds no auxiliary images"):
        federations.shadow_federations(dataclasses.replace(view, _auxiliary=(), learned=type(view.learned)()), 2)
    known = view.threat.capabilities - {Capability.KNOWS_DEFENSE}
    who = ThreatModel("nobody", "Does not know the defense.", view.threat.auxiliary, known, "server")
    with pytest.raises(NotGranted, match="knows_defense"):
        federations.shadow_federations(dataclasses.replace(view, threat=who), 2)
