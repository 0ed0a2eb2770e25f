"""Federations over Flower: equal to local ones, bit for bit, and as clear where a client fails."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from factories import equal, federation, held, network, run_on, small
from torch import nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense, defended
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.federation.upload import ClientFailed
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.utils import extras

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fdgpriv[flower]'")
from flower_loopback import loopback

from fdgpriv.federation import flower_clients
from fdgpriv.federation.flower_engine import GridEngine, SimulationEngine
from fdgpriv.utils import flower_import as flower

SIZES = (5, 3, 7)
VARIANTS: list[tuple[str, dict[str, Any], str]] = [
    *((name, {}, "none") for name in Method.names() if Method.named(name).federated),
    ("fedavg", {"selection": "validation", "buffers": "keep_local", "participants": 2}, "gaussian:epsilon=4,on=all"),
    ("fedavg", {"batch_size": 20}, "dpsgd"),
    ("fedavg", {}, "secure_aggregation"),
    ("stablefdg", {}, "gaussian:epsilon=4+shuffle"),
    ("stablefdg", {}, "min_clients:samples=5"),
    ("ccst", {"selection": "validation"}, "none"),
    ("hfedf", {"ema": "evaluate", "embedding": "autoencoder", "autoencoder_epochs": 1}, "none"),
    ("lsi", {"keep_momentum": True, "recalibrate_bn": True}, "none"),
]


def over_flower(
    method: Method, world: Federation, data: dict[str, ClientData], defense: str = "none", **more: Any
) -> Any:
    """The model, the transcript and the log of a training over Flower's messages."""
    own, protecting = defended(method, defense)
    wire = Wire({name: len(part) for name, part in data.items()}, protecting, Transcript("all"))
    engine = GridEngine(1, grid=loopback(own, world, data, protecting, **more), evaluated=True)
    return engine.run(own, world, data, wire), wire.transcript, engine.log


@pytest.mark.parametrize(("name", "settings", "defense"), VARIANTS, ids=str)
def test_flower_equals_local(name: str, settings: dict[str, Any], defense: str) -> None:
    method, world = small(name, rounds=2, **settings), federation(len(SIZES), 0, network(1, 2, 1))
    data = {client: held(client, n) for client, n in zip(world.clients, SIZES, strict=True)}
    local = run_on(method, world, data, defense=defense)
    model, transcript, log = over_flower(method, world, data, defense)
    assert equal(local.state, model.state_dict())
    assert [replace(record) for record in local.transcript.records] == transcript.records
    for index, artifact in local.transcript.kept.items():
        assert equal(artifact.tensors(), transcript.kept[index].tensors()), transcript.records[index]
        assert artifact.facts() == transcript.kept[index].facts()
    assert log == local.log


@pytest.mark.parametrize("name", [name for name in Method.names() if not Method.named(name).federated])
def test_what_is_no_federation_is_refused(name: str) -> None:
    world = federation(len(SIZES), 0, network(1, 2, 1))
    data = {client: held(client, n) for client, n in zip(world.clients, SIZES, strict=True)}
    refusal = f"^--engine: {name} is no federation of clients, and runs with --engine local only$"
    with pytest.raises(ValueError, match=refusal):
        over_flower(small(name), world, data)
    with pytest.raises(ValueError, match=refusal):
        AuditConfig(methods=("fedavg", name), engine="flower").checked()


@dataclass(frozen=True)
class Counting(Method):
    """Three rounds of counts: each client adds up what it was sent, and fails where it is told to."""

    rounds: int = 3
    failing: str = ""

    presets: ClassVar[Any] = {preset: {} for preset in ("quick", "default", "paper")}

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return nn.Linear(1, 1)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        for round in federation.rounds(self.rounds):
            sent = SampleCount(client=SERVER, round=round, count=torch.tensor(round + 1))
            yield Request("add", {name: [sent] for name in federation.clients})
        return nn.Linear(1, 1)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
        if self.failing == f"{data.client} at once":
            raise ValueError("no camera")
        return Adding(data.client, self.failing)


class Adding(Resumable):
    checkpointed: ClassVar[tuple[str, ...]] = ("total", "log")

    def __init__(self, name: str, failing: str) -> None:
        self.name, self.failing, self.total = name, failing, 0
        self.log: dict[str, tuple[float, int]] = {}

    def add(self, message: Message) -> Message:
        (count,) = message
        assert isinstance(count, SampleCount)
        if self.failing == f"{self.name} in {count.round}":
            raise ZeroDivisionError("out of range")
        self.total += int(count.count)
        self.log["total"] = (float(self.total), 1)
        return [SampleCount(client=self.name, round=count.round, count=torch.tensor(self.total))]


WORLD = federation(3)
DATA = {name: held(name, n) for name, n in zip(WORLD.clients, SIZES, strict=True)}


@pytest.mark.parametrize("failing", ["client-1 in 0", "client-2 in 2", "client-0 at once"])
def test_a_failing_client_is_the_same_line(failing: str) -> None:
    lines = []
    for train in (run_on, over_flower):
        with pytest.raises(ClientFailed) as caught:
            train(Counting(failing=failing), WORLD, DATA)
        lines.append(str(caught.value))
    local, flower = lines
    assert local == flower
    assert flower.startswith(f"{failing.split()[0]} failed in ")


def test_a_lost_node_is_named() -> None:
    engine = GridEngine(1, grid=(grid := loopback(Counting(), WORLD, DATA, Defense())), evaluated=True)
    engine.on_answer = lambda verb, answered, asked: grid.lost.add(101)
    with pytest.raises(ClientFailed, match=r"^client-1 failed in add of round 1: Flower says: Node unavailable$"):
        engine.run(Counting(), WORLD, DATA, Wire(dict(zip(WORLD.clients, SIZES, strict=True)), Defense()))


def test_a_killed_server_continues_and_so_do_its_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "due", property(lambda self: True))
    answered: list[str] = []

    def counted(verb: str, count: int, asked: int) -> None:
        answered.append(verb)
        if len(answered) == 5:  # in the second round
            raise KeyboardInterrupt

    totals = []
    for on_answer in (counted, None, None):
        folder = tmp_path / ("whole" if totals else "killed")
        wire = Wire(dict(zip(WORLD.clients, SIZES, strict=True)), Defense(), Transcript("all"))
        engine = GridEngine(1, grid=loopback(Counting(), WORLD, DATA, wire.defense), evaluated=True)
        engine.checkpoints, engine.on_answer = Checkpoints(folder, {}), on_answer
        try:
            engine.run(Counting(), WORLD, DATA, wire)
        except KeyboardInterrupt:
            continue
        totals.append([(record, artifact.tensors()["count"]) for record, artifact in recorded(wire.transcript)])
        assert engine.log == {"total": 6.0}
    continued, whole = totals
    assert continued == whole
    assert len(whole) == 18


def recorded(transcript: Transcript) -> list[tuple[Record, Artifact]]:
    return [(record, artifact) for record, artifact in transcript.of_kind("sample_count") if artifact is not None]


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"not tensors"], ids=len)
def test_a_node_that_sends_anything_else_fails(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def garbage(*given: Any) -> Any:
        return flower.ConfigRecord({"json": '[{"artifact": "model_state"}]', "tensors": content})

    monkeypatch.setattr(flower_clients, "_answer", garbage)
    with pytest.raises(ClientFailed, match=r"^client-2 failed in add of round 0: \w+: "):
        over_flower(Counting(), WORLD, DATA)


def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    find = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "ray" else find(name))
    with pytest.raises(
        ValueError, match=r"^--engine flower: want the package ray, got none; to install it: pip install"
    ):
        Options(engine="flower").check()


def test_a_simulation_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")

    def broken(*given: Any, **named: Any) -> None:
        try:
            raise OSError("the node timed out")
        except OSError as error:
            raise RuntimeError("Simulation Runtime crashed.") from error

    monkeypatch.setattr("flwr.simulation.run_simulation", broken)
    engine = SimulationEngine(1, build=lambda: pytest.fail("not reached"))
    with pytest.raises(RuntimeError, match=r"^Flower's simulation ended: the node timed out$"):
        engine.run(Counting(), WORLD, DATA, Wire(dict(zip(WORLD.clients, SIZES, strict=True)), Defense()))
