"""The wire: the only way between two sides, where defenses act, everything is recorded and nothing broken passes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from conftest import Fitted, fit
from factories import refused
from factories_core import draft, model_state, style
from factories_wire import up
from torch import nn

from fdgpriv.artifacts.artifact import PEER, SERVER, Artifact, Message
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import ClientReply, InterpolationStyle, StyleDraft, StyleStatistics
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.participant import stream
from fdgpriv.federation.partition import populate
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.upload import ClientFailed
from fdgpriv.federation.wire import Diverged, Wire
from fdgpriv.method import Method

SIZES = {"a": 10, "b": 25, "c": 7}


def wire(defense: Defense | None = None) -> Wire:
    return Wire(SIZES, defense or Defense.parse("none"))


@dataclass(frozen=True)
class Doubling(Defense):
    """Doubles every tensor."""

    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator, received: Any = None) -> Artifact:
        if isinstance(outgoing, StyleDraft):
            return outgoing.finish().map(lambda t: 2 * t)
        return outgoing.map(lambda t: 2 * t)

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "no finite epsilon")


def test_a_client_s_answer_is_recorded_defended(rng: torch.Generator) -> None:
    between = wire(Doubling())
    (style, model) = up(between, "a", "fit", [draft(client="a"), model_state("a")], rng)
    assert isinstance(style, StyleStatistics)
    assert torch.equal(style.mean, 2 * draft(client="a").finish().mean)
    assert torch.equal(model.tensors()["weight"], 2 * model_state().state["weight"])
    assert between.transcript.kept[0] is style
    assert between.transcript.kept[1] is model
    (sent,) = between.down("a", "fit", [model_state(SERVER)])  # what the server sends is not defended
    assert torch.equal(sent.tensors()["weight"], model_state().state["weight"])


@pytest.mark.parametrize("lazy", [torch.ones(3), {"mean": torch.ones(3)}, None, "text"], ids=type)
def test_only_artifacts_cross(lazy: Any, rng: torch.Generator) -> None:
    class Lazy(Doubling):
        def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator, received: Any = None) -> Artifact:
            return lazy  # type: ignore[no-any-return]

    between, wanted = wire(Lazy()), f"want an artifact on the wire, got {type(lazy).__name__}"
    with refused(f"^a failed in style: {wanted}", ClientFailed):
        up(between, "a", "style", [draft(client="a")], rng)
    with refused(wanted, TypeError):
        between.down("a", "fit", [lazy])
    assert between.transcript.records == []


def test_the_sender_of_a_relayed_artifact_is_not_named() -> None:
    between = wire()
    style = draft(client="b").finish()
    own, others, model = between.down("a", "fit", [draft(client="a").finish(), style, model_state(SERVER)])
    assert own.client == "a"
    assert others.client == PEER
    assert model.client == SERVER
    assert {**others.facts(), "client": "b"} == style.facts()
    assert all(torch.equal(others.tensors()[name], tensor) for name, tensor in style.tensors().items())
    record = between.transcript.records[1]
    assert (record.sender, record.receiver, record.origin, record.relayed) == (SERVER, "a", "b", True)


def test_excessive_values_stop_the_run(rng: torch.Generator) -> None:
    between = wire()
    for bad, fault in ((float("nan"), "not finite"), (float("inf"), "not finite"), (1e10, "beyond 1e\\+06")):
        with refused(f"^b sent a model_state in round 4 whose w is {fault}: training diverged", Diverged):
            up(between, "b", "fit", [model_state("b", 4, w=torch.tensor([1, bad]))], rng)
        with refused(f"^server sent a model_state in round 2 whose w is {fault}", Diverged):
            between.down("a", "fit", [model_state(SERVER, 2, w=torch.tensor([1, bad]))])
    broken = replace(draft(client="c", round=1), mean=torch.full((5, 3), float("nan")))
    with refused(r"^c sent a style_statistics in round 1 whose mean", Diverged):
        up(between, "c", "style", [broken], rng)
    assert between.transcript.records == []
    # no tight public bound on parameters and statistics holds for every honest training
    up(between, "b", "fit", [model_state("b", 4, w=torch.tensor([9e5]), running_var=torch.tensor([1e9]))], rng)


def test_a_record_has_its_bytes_and_samples(rng: torch.Generator) -> None:
    between = wire()
    between.down("a", "style", [model_state(SERVER)])
    up(between, "a", "style", [draft(client="a"), draft(client="a", granularity="image")], rng)
    between.down("b", "fit", [draft(client="a").finish()])
    whole, style, image, passed = between.transcript.records
    assert (whole.kind, whole.verb, whole.round, whole.level, whole.layer) == ("model_state", "style", 0, "group", None)
    assert whole.nbytes == 2 * 3 * 4 + 8
    assert whole.shapes == {"weight": (3, 2), "bn.num_batches_tracked": ()}
    assert whole.dtypes == {"weight": "float32", "bn.num_batches_tracked": "int64"}
    assert (whole.samples, whole.clients) == (0, 0)  # before anybody trained
    assert (style.level, style.layer, style.nbytes) == ("client", "layer1", 4 * 3 * 4)
    assert (style.samples, style.clients) == (10, 1)
    assert (image.samples, image.clients) == (1, 1)
    assert (passed.samples, passed.clients) == (10, 1)


def test_samples_of_a_global_model_are_those_trained_on(rng: torch.Generator) -> None:
    """Not who only shared a style, as in StableFDG's released code, which asks only some for models."""
    between = wire()
    up(between, "c", "style", [draft(client="c")], rng)
    for client, granularity in (("a", (10, 1)), ("b", (35, 2))):
        up(between, client, "fit", [model_state(client)], rng)
        between.down("c", "fit", [model_state(SERVER, 1)])
        record = between.transcript.records[-1]
        assert (record.samples, record.clients) == granularity


def test_samples_of_an_interpolation_style(rng: torch.Generator) -> None:
    between, tensor = wire(), torch.ones(4)
    for client in ("c", "a"):
        up(between, client, "style", [style(client)], rng)
    up(between, "b", "fit", [model_state("b")], rng)
    made = InterpolationStyle(client=SERVER, round=0, mean=tensor, std=tensor, at="layer1", rule="paper")
    between.down("b", "adopt", [made])
    record = between.transcript.records[-1]
    assert (record.samples, record.clients, record.level) == (17, 2, "group")


def test_every_crossing_of_a_run_is_recorded(fitted: Fitted) -> None:
    """In each round each client is sent the model and one other's style, and sends its style and its model."""
    names = set(fitted.population.clients)
    for round in (0, 1):
        seen = [
            (record.verb, record.kind, record.sender if record.receiver == SERVER else SERVER, record.relayed)
            for record in fitted.transcript.records
            if record.round == round
        ]
        assert len(seen) == 4 * len(names)
        assert seen.count(("style", "model_state", SERVER, False)) == len(names)
        assert seen.count(("fit", "style_statistics", SERVER, True)) == len(names)
        for name in names:
            assert seen.count(("style", "style_statistics", name, False)) == 1
            assert seen.count(("fit", "model_state", name, False)) == 1
    sizes = {name: len(data) for name, data in fitted.population.clients.items()}
    for record in fitted.transcript.records:
        if record.receiver == SERVER:
            assert record.samples == sizes[record.sender]


class Echo(Method):
    """A method that asks nothing of training: who is asked, with what, and what comes back."""

    rounds = 2

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return nn.Linear(1, 1)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        self.answers = []
        for round in range(self.rounds):
            message: Message = [model_state(SERVER, round)]
            self.answers.append((yield Request("echo", dict.fromkeys(federation.clients[round:], message))))
        return nn.Linear(1, 1)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "EchoClient":
        return EchoClient(data, rng)


class EchoClient:
    def __init__(self, data: ClientData, rng: torch.Generator) -> None:
        self.data, self.rng = data, rng

    def echo(self, message: Sequence[Artifact]) -> ClientReply:
        (model,) = message
        drawn = torch.randint(10**6, (), generator=self.rng)
        return [SampleCount(client=self.data.client, round=model.round, count=drawn)]


def test_the_engine_asks_clients_with_their_own_streams(tiny: Dataset) -> None:
    data = populate(tiny, "blend", "single", 3, 0).clients
    federation = AuditConfig(device="cpu").checked().federation(tiny, list(data), 0)
    method = Echo()
    told: list[tuple[int, str]] = []
    engine = LocalEngine(2, on_round=lambda round, models: told.append((round, *{m.client for m in models.values()})))
    between = Wire({name: len(held) for name, held in data.items()}, Defense.parse("none"))
    assert isinstance(engine.run(method, federation, data, between), nn.Linear)
    assert [list(answers) for answers in method.answers] == [list(federation.clients), list(federation.clients[1:])]
    assert told == [(0, SERVER), (1, SERVER)]
    for round, answers in enumerate(method.answers):
        for name, (count,) in answers.items():
            assert (count.client, count.round) == (name, round)
    assert len(between.transcript.records) == 2 * 3 + 2 * 2
    assert engine.wire_s > 0
    drawn = {name: int(count.count) for name, (count,) in method.answers[0].items()}
    assert drawn == {name: int(torch.randint(10**6, (), generator=stream(0, name))) for name in data}
    assert len(set(drawn.values())) == 3


def test_the_largest_client_begins(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        name: replace(held, pixels=held.pixels[:n], labels=held.labels[:n])
        for (name, held), n in zip(populate(tiny, "blend", "single", 3, 0).clients.items(), (4, 9, 6), strict=True)
    }
    begun, echo = [], EchoClient.echo
    monkeypatch.setattr(
        EchoClient, "echo", lambda self, message: (begun.append(self.data.client), echo(self, message))[1]
    )
    method, federation = Echo(), AuditConfig(device="cpu").checked().federation(tiny, list(data), 0)
    LocalEngine(1).run(method, federation, data, Wire({name: len(held) for name, held in data.items()}, Defense()))
    first, second, third = federation.clients
    assert begun == [second, third, first, second, third]  # of the second round all but the first client
    assert [list(answers) for answers in method.answers] == [[first, second, third], [second, third]]


def test_results_do_not_depend_on_the_workers(tiny: Dataset) -> None:
    alone, together, other = (
        fit(tiny, clients=3, keep="all", workers=workers, seed=seed).transcript
        for workers, seed in ((1, 0), (3, 0), (3, 1))
    )
    assert alone.records == together.records
    for index, artifact in alone.kept.items():
        again = together.kept[index]
        assert all(torch.equal(again.tensors()[name], tensor) for name, tensor in artifact.tensors().items())
    begun = other.kept[0].tensors()
    assert any(not torch.equal(begun[name], tensor) for name, tensor in alone.kept[0].tensors().items())


def test_clients_train_on_the_defended_style(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another client's `fit` is given is what the defense let out, bit for bit."""
    method = Method.named("stablefdg")
    received: list[StyleStatistics] = []
    client = method.client

    def spying(self: Method, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
        made = client(self, federation, data, rng)
        inner = made.fit  # type: ignore[attr-defined]

        def outer(message: Message) -> Message:
            received.extend(artifact for artifact in message if isinstance(artifact, StyleStatistics))
            answer: Message = inner(message)
            return answer

        made.fit = outer  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(method, "client", spying)
    transcript = fit(tiny, clients=3, defense="gaussian:epsilon=2").transcript
    defended = [a for r, a in transcript.of_kind("style_statistics") if r.receiver == SERVER and a is not None]
    assert len(received) == len(defended) == 3
    for came in received:
        assert came.client == PEER
        assert any(
            all(torch.equal(came.tensors()[name], tensor) for name, tensor in own.tensors().items()) for own in defended
        )
