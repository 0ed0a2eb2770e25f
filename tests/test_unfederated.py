"""Central and local training: the models against plain loops, what crosses, how they continue, and what is refused."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import crossed, equal, federation, held, network, refused, run, run_on, seeded, small
from torch import Tensor, nn

from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense, defended
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.unfederated import POOL, UnsharedModels, participants_of
from fdgpriv.federation.wire import Wire
from fdgpriv.models.backbone import Classifier

SIZES = (4, 6)
WHOLE = {"batch_size": 99, "momentum": 0.0, "weight_decay": 0.0, "rounds": 3, "schedule": "cosine"}  # one step a round
RATES = (0.1, 0.075, 0.025)  # of the rounds: half of 1 + cos(0), cos(pi / 3), cos(2 pi / 3)


def plain(state: dict[str, Tensor], images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """A step of each rate down the gradient of the cross-entropy of all images."""
    model = Classifier(network(1)(seeded(0)), 3, seeded(0))
    model.load_state_dict(state)
    model.train()
    for lr in RATES:
        loss = nn.functional.cross_entropy(model(images), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(lr * gradient)
    return model.state_dict()


def clients(*sizes: int) -> dict[str, ClientData]:
    return {f"client-{i}": held(f"client-{i}", n) for i, n in enumerate(sizes)}


def test_central_trains_on_the_images_of_all() -> None:
    data = clients(*SIZES)
    ran = run_on(small("central", **WHOLE), federation(2), data)
    first, released, published = crossed(ran.transcript, "model_state")
    images, labels = (torch.cat([getattr(own, name) for own in data.values()]) for name in ("images", "labels"))
    for name, value in plain(dict(first.state), images, labels).items():
        torch.testing.assert_close(ran.state[name], value, rtol=1e-4, atol=1e-5)
    assert equal(released.state, ran.state)
    assert equal(published.state, ran.state)


def test_central_releases_one_model() -> None:
    records = run(small("central"), *SIZES).transcript.records
    assert [(r.verb, r.sender, r.kind, r.samples) for r in records] == [
        ("train", "server", "model_state", 0),  # the initial model
        ("release", POOL, "model_state", sum(SIZES)),
        ("publish", "server", "model_state", sum(SIZES)),
    ]


def test_pooled_data_are_those_of_all_clients() -> None:
    data = clients(*SIZES)
    (pool,) = participants_of(small("central"), data).values()
    assert (pool.client, len(pool)) == (POOL, sum(SIZES))
    for name in ("pixels", "labels", "held_out_pixels", "held_out_labels"):
        assert torch.equal(getattr(pool, name), torch.cat([getattr(own, name) for own in data.values()]))
    assert participants_of(small("fedavg"), data) is data
    assert participants_of(small("lsi"), data) is data


def test_each_client_alone_is_a_client_by_itself() -> None:
    """A client's model is the same whoever else there is, and it is that of plain steps from its own start."""
    method = small("local_only", **WHOLE)
    ran = run_on(method, federation(2), clients(*SIZES))
    assert ran.transcript.records == []
    assert isinstance(ran.model, UnsharedModels)
    for name, own in clients(*SIZES).items():
        alone = run_on(method, federation(2), {n: own if n == name else held(n, 3) for n in ("client-0", "client-1")})
        assert equal(method.model_of(ran.model, name).state_dict(), method.model_of(alone.model, name).state_dict())
    client = method.client(federation(2), clients(*SIZES)["client-0"], seeded(3))
    before = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    assert [client.train([]) for _ in range(3)] == [[], [], []]
    own = clients(*SIZES)["client-0"]
    for name, value in plain(before, own.images, own.labels).items():
        torch.testing.assert_close(client.model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["central", "local_only"])
def test_rounds_are_evaluated_though_no_model_is_sent(name: str) -> None:
    method, seen = small(name, rounds=3), dict[int, dict[str, Any]]()
    data = clients(*SIZES)
    wire = Wire({n: len(own) for n, own in data.items()}, Defense.parse("none"), Transcript("all"))
    engine = LocalEngine(2, on_round=lambda round, models: seen.update({round: dict(models)}))
    model = engine.run(method, federation(2), data, wire)
    holders = {POOL} if name == "central" else set(data)
    rounds = range(4 if name == "central" else 3)
    assert {round: set(models) for round, models in seen.items()} == dict.fromkeys(rounds, holders)
    states = [seen[round][min(holders)].state for round in sorted(seen)]
    assert not any(equal(one, other) for one, other in pairwise(states))
    if name == "central":
        assert equal(states[-1], dict(model.state_dict()))


@pytest.mark.parametrize("name", ["central", "local_only"])
def test_a_stopped_training_continues_to_the_same_model(name: str, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def trained(stop_at: int | None) -> nn.Module:
        data, method = clients(*SIZES), small(name, rounds=4)
        wire = Wire({n: len(own) for n, own in data.items()}, Defense.parse("none"), Transcript("all"))

        def on_answer(verb: str, answers: int, asked: int) -> None:
            nonlocal answered
            answered += 1
            if answered == stop_at:
                raise Stopped

        answered = 0
        engine = LocalEngine(1, on_answer=on_answer, checkpoints=Checkpoints(tmp_path, {"run": name}, cost=1e12))
        continued.append(engine.checkpoints is not None and engine.checkpoints.saved is not None)
        return engine.run(method, federation(2), data, wire)

    continued = list[bool]()
    whole = trained(None)
    Checkpoints(tmp_path, {"run": name}).remove()
    with pytest.raises(Stopped):
        trained(3 if name == "central" else 5)
    assert equal(dict(trained(None).state_dict()), dict(whole.state_dict()))
    assert continued == [False, False, True]


def test_defenses_where_nothing_is_shared_are_refused() -> None:
    for spec in ("gaussian:on=all", "dpsgd", "client_dp", "secure_aggregation", "shuffle", "bn_local", "clip"):
        with refused(f"{spec}: not applicable to local_only, which shares nothing that could be protected"):
            defended(small("local_only"), spec)
    defended(small("local_only"), "none")


@pytest.mark.parametrize("spec", ["dpsgd", "client_dp:epsilon=8", "gaussian:on=all,epsilon=8", "bn_frozen", "bn_local"])
def test_defenses_of_the_released_model_apply(spec: str) -> None:
    method = small("central", batch_size=4)
    states = [run_on(method, federation(2), clients(*SIZES), defense=defense).state for defense in ("none", spec)]
    assert not equal(*({n: t for n, t in s.items() if n in states[1]} for s in states))


@pytest.mark.parametrize("name", ["central", "local_only"])
def test_nobody_takes_turns(name: str) -> None:
    with refused(f"{name}.participants: want none, since nobody takes turns; got 2"):
        small(name, participants=2)


def test_an_attack_on_nothing_is_refused() -> None:
    with refused("--attack: local_only shares nothing that an attack could read; want --attack none"):
        AuditConfig(methods=("local_only",), attacks=("membership",)).checked()
    for methods, attacks in ((("local_only", "fedavg"), ("membership",)), (("local_only",), ("none",))):
        AuditConfig(methods=methods, attacks=attacks).checked()
    with refused("--attack: gan reads .* which central does not share, but model_state; want attacks that read these"):
        AuditConfig(methods=("central",), attacks=("gan",)).checked()
