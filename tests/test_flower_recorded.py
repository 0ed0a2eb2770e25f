"""What is recorded of other people's Flower apps: every message of a strategy, and what mods leave of it."""

from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from torch import nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.federation.transcript import Transcript

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fdgpriv[flower]'")
from flower_loopback import Loopback
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.exit import exit_handler

import fdgpriv.flower
from fdgpriv.federation.omission import ENDED
from fdgpriv.flower.recorded import RecordedGrid

CLIENTS = 3


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))


def quickstart(*mods: Any) -> ClientApp:
    """A ClientApp as in Flower's PyTorch quickstart, with BatchNorm, and a constant instead of a training."""
    app = ClientApp()

    @app.train(mods=list(mods))
    def train(msg: Message, context: Context) -> Message:
        model = network()
        model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
        place = int(context.node_config["partition-id"])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += place + float(msg.content["config"]["lr"])
        record = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": 0.5, "num-examples": 10 + place}),
        }
        return Message(content=RecordDict(record), reply_to=msg)

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        metrics = MetricRecord({"eval_loss": 0.25, "eval_acc": 0.75, "num-examples": 4})
        return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def trained(folder: Path, app: ClientApp, rounds: int = 2, evaluated: float = 1.0) -> tuple[Transcript, Any]:
    """The recording of a strategy's rounds, and the strategy's result."""
    grid = Loopback(app, CLIENTS)
    grid = fdgpriv.flower.recorded(grid, folder)  # type: ignore[assignment]
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=evaluated)
    initial = ArrayRecord(network().state_dict())
    result = strategy.start(
        grid=grid, initial_arrays=initial, train_config=ConfigRecord({"lr": 1.0}), num_rounds=rounds
    )
    return Transcript.load(folder), (initial, result)


def test_a_strategy_is_recorded(tmp_path: Path) -> None:
    transcript, (initial, result) = trained(tmp_path / "run", quickstart())
    names = [f"client-{place:02d}" for place in range(CLIENTS)]
    uploads = {(r.round, r.sender): a for r, a in transcript.of_kind("model_state") if r.receiver == SERVER}
    assert sorted(uploads) == [(round, name) for round in range(2) for name in names]
    start = initial.to_torch_state_dict()
    for place, name in enumerate(names):
        sent = uploads[0, name]
        assert sent is not None
        assert torch.equal(sent.tensors()["0.bias"], start["0.bias"] + (place + 1.0))
        assert sent.tensors()["1.num_batches_tracked"].dtype == torch.int64
    downs = [(r.receiver, r.round) for r, a in transcript.of_kind("model_state") if r.sender == SERVER]
    assert sorted(downs) == sorted((name, round) for round in range(3) for name in names)
    final = transcript.model_sent(2)
    assert final is not None
    assert all(torch.equal(final.state[name], t) for name, t in result.arrays.to_torch_state_dict().items())
    counts = [int(a.tensors()["count"]) for _, a in transcript.of_kind("sample_count") if a]
    assert sorted(counts) == [10, 10, 11, 11, 12, 12]
    assert {float(a.tensors()["train_loss"]) for _, a in transcript.of_kind("metrics") if a} == {0.5}
    evaluated = [a.tensors() for r, a in transcript.of_kind("evaluate_metrics") if a]
    assert [float(figures["eval_acc"]) for figures in evaluated] == [0.75] * CLIENTS * 2
    config = [a.tensors() for r, a in transcript.of_kind("config") if a]
    assert {float(told["lr"]) for told in config} == {1.0}


def test_local_noise_is_in_what_is_recorded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=1.0, delta=1e-5)
    transcript, _ = trained(tmp_path / "run", quickstart(mod), rounds=1)
    sent = transcript.model_sent(0)
    assert sent is not None
    for record, upload in transcript.of_kind("model_state"):
        if record.receiver == SERVER and upload is not None:
            change = upload.tensors()["3.weight"] - sent.state["3.weight"]
            assert 3 < float(change.std()) < 7  # std 4.8 of the noise; the clipped update adds less than 1


def test_masked_vectors_are_no_models(tmp_path: Path) -> None:
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        stage = msg.content["secaggplus_configs"]["stage"]
        reply = ConfigRecord({"stage": stage, "masked_params": [b"\x01\x02", b"\x03"]})
        return Message(content=RecordDict({"secaggplus_configs": reply}), reply_to=msg)

    grid = fdgpriv.flower.recorded(Loopback(app, 2), tmp_path / "run", {100: "north", 101: "south"})
    for stage in ("setup", "collect_masked_vectors"):
        content = RecordDict({"secaggplus_configs": ConfigRecord({"stage": stage})})
        grid.send_and_receive([Message(content, node, "train", group_id="1") for node in (100, 101)])
    transcript = Transcript.load(tmp_path / "run")
    assert not transcript.was_transferred("model_state")
    masked = [(r.sender, a) for r, a in transcript.of_kind("secaggplus_collect_masked_vectors") if r.receiver == SERVER]
    assert [sender for sender, _ in masked] == ["north", "south"]
    assert masked[0][1].tensors()["masked_params.0"].tolist() == [1, 2]


def test_a_lost_node_sends_nothing(tmp_path: Path) -> None:
    grid = fdgpriv.flower.recorded(Loopback(quickstart(), 2, lost=[1]), tmp_path / "run")
    content = {"arrays": ArrayRecord(network().state_dict()), "config": ConfigRecord({"lr": 1.0, "server-round": 1})}
    replies = list(grid.send_and_receive([Message(RecordDict(content), node, "train") for node in (100, 101)]))
    assert [reply.has_error() for reply in replies] == [False, True]
    transcript = Transcript.load(tmp_path / "run")
    assert {r.sender for r in transcript.records if r.receiver == SERVER} == {"client-00"}
    assert [(o.sender, o.round, o.failed) for o in transcript.omissions] == [("client-01", 0, True)]
    assert "Node unavailable" in transcript.omissions[0].reason


KEYS = ["metrics", "train-metrics", "Metrics", "fitres.metrics", "model_state", "client", "round", "指标", "", "a b"]


@pytest.mark.parametrize("key", KEYS)
def test_records_of_any_key_are_recorded(tmp_path: Path, key: str) -> None:
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        content = {
            "arrays": msg.content["arrays"],
            key: MetricRecord({"loss": 0.5, "client": 2, "model": 3.0, "self": 4.0, "num-examples": 10}),
        }
        return Message(content=RecordDict(content), reply_to=msg)

    transcript, _ = trained(tmp_path / "run", app, evaluated=0)
    assert not transcript.omissions
    uploads = [record for record in transcript.records if record.receiver == SERVER]
    assert len([record for record in uploads if record.kind == "sample_count"]) == 2 * CLIENTS
    figures = [
        a for record, a in zip(transcript.records, transcript.kept.values(), strict=True) if "loss" in record.shapes
    ]
    assert [sorted(a.tensors()) for a in figures] == [["client", "loss", "model", "self"]] * 2 * CLIENTS


def test_a_message_that_cannot_be_recorded_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(*given: Any) -> None:
        raise MemoryError

    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        count = 0 if context.node_config["partition-id"] == 1 else 10
        content = {"arrays": msg.content["arrays"], "metrics": MetricRecord({"num-examples": count, "list": [1, 2]})}
        return Message(content=RecordDict(content), reply_to=msg)

    transcript, (_, result) = trained(tmp_path / "run", app, evaluated=0)
    assert {(o.sender, o.content) for o in transcript.omissions} == {("client-01", "sample_count")}
    assert len(caplog.messages) == len([line for line in caplog.messages if not line.startswith("record:")]) + 1
    assert len(result.arrays) > 0
    for name in ("_name", "_round", "_arrays"):
        with monkeypatch.context() as patch:
            patch.setattr(RecordedGrid, name, unreadable)
            transcript, (_, result) = trained(tmp_path / name, app, evaluated=0)
            assert len(result.arrays) > 0
            assert {"MemoryError" in omission.reason for omission in transcript.omissions} == {True}


def test_rounds_may_be_counted_from_0(tmp_path: Path) -> None:
    grid = fdgpriv.flower.recorded(Loopback(quickstart(), 1), tmp_path / "run")
    for round in range(2):
        for request in ("train", "evaluate"):
            config = ConfigRecord({"lr": 1.0, "server-round": round})
            content = {"arrays": ArrayRecord(network().state_dict()), "config": config}
            grid.send_and_receive([Message(RecordDict(content), 100, request)])
    records = [r for r in Transcript.load(tmp_path / "run").records if r.kind == "model_state"]
    client = "client-00"
    assert [(r.receiver, r.round) for r in records] == [(client, 0), (SERVER, 0), (client, 1), (SERVER, 1), (client, 2)]


def test_a_part_of_the_model_is_a_model(tmp_path: Path) -> None:
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        state = msg.content["arrays"].to_torch_state_dict()
        part = {name: tensor for name, tensor in state.items() if not name.startswith("1.")}
        metrics = MetricRecord({"num-examples": 10})
        return Message(content=RecordDict({"arrays": ArrayRecord(part), "metrics": metrics}), reply_to=msg)

    transcript, _ = trained(tmp_path / "run", app, rounds=1, evaluated=0)
    uploads = [a for r, a in transcript.of_kind("model_state") if r.receiver == SERVER and a is not None]
    assert [sorted(a.tensors()) for a in uploads] == [["0.bias", "0.weight", "3.bias", "3.weight"]] * CLIENTS


def test_a_run_that_is_stopped_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower ends a process by its exit handlers and, some seconds later, without Python's."""
    handlers: list[Any] = []
    monkeypatch.setattr(exit_handler, "registered_exit_handlers", handlers)
    grid = fdgpriv.flower.recorded(Loopback(quickstart(), 2, lost=[1]), tmp_path / "run")
    content = {"arrays": ArrayRecord(network().state_dict()), "config": ConfigRecord({"lr": 1.0, "server-round": 1})}
    ids = list(grid.push_messages([Message(RecordDict(content), node, "train") for node in (100, 101)]))
    list(grid.pull_messages(ids[1:]))
    exit_handler.trigger_exit_handlers(run_before_force_exit=True)
    transcript = Transcript.load(tmp_path / "run")
    assert transcript.closed
    assert [(o.sender, o.round, o.failed) for o in transcript.omissions] == [
        ("client-01", 0, True),
        ("client-00", 0, True),
    ]
    assert transcript.omissions[1].reason == ENDED


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(ValueError, match="want a new or empty folder"):
        fdgpriv.flower.recorded(Loopback(quickstart(), 1), tmp_path)


@pytest.mark.slow
def test_names_follow_the_partitions_of_a_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(msg: Message, context: Context) -> Message:
        metrics = MetricRecord({"place": int(context.node_config["partition-id"]), "num-examples": 1})
        return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        grid = fdgpriv.flower.recorded(grid, tmp_path / "run")
        while len(nodes := list(grid.get_node_ids())) < 5:
            sleep(0.1)
        grid.send_and_receive([Message(RecordDict(), node, "train") for node in nodes])

    run_simulation(
        server, client, 5, backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 1}}
    )
    places = {r.sender: a.tensors()["place"] for r, a in Transcript.load(tmp_path / "run").of_kind("metrics") if a}
    assert {name: int(place) for name, place in places.items()} == {f"client-{i:02d}": i for i in range(5)}
