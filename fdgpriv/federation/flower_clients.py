"""A training's clients over Flower: what a node answers, and how the server reaches it.

Messages and clients' states cross as JSON and safetensors bytes in a ConfigRecord; nothing in them is unpickled. Between two
requests a client's state lies in its node's context, since the next request may reach another process.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from fdgpriv.artifacts.artifact import Message
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.engine import Clients, mean_log
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.participant import CONSTRUCTION, Participant
from fdgpriv.federation.request import Request
from fdgpriv.federation.state import Resumable, StateDecoder, StateEncoder
from fdgpriv.federation.upload import ClientFailed, client_errors
from fdgpriv.utils import flower_import as flower
from fdgpriv.utils.arithmetic import fixed_arithmetic, whole_precision

POLL = 0.02  # seconds between two looks for replies
CONTENT, FAILED = "content", "failed"  # the records of a reply
STATE = "fdgpriv.client"  # the record of a node's context


@dataclass(frozen=True, eq=False)
class ClientWorld:
    """What a client's process knows.

    Attributes:
        method: As trained under the defense.
        federation: The public facts.
        data: Of the clients that run in this process.
        defense: Applied to what they share.
    """

    method: FederatedMethod
    federation: Federation
    data: Mapping[str, ClientData]
    defense: Defense

    def participant(self, name: str) -> Participant:
        """The client of this name before its first request."""
        return Participant.of(self.method, self.federation, self.data[name], self.defense)


# From a node's context and all clients' names (empty before the server knows them): the node's world and client
Locate = Callable[[flower.Context, tuple[str, ...]], tuple[ClientWorld, str]]


class FederationEnded(RuntimeError):
    """Flower stopped while the server waited for answers."""


def packed(value: object) -> flower.ConfigRecord:
    """Artifacts, a client's state or plain values as a record, bit for bit; TypeError for other values."""
    encoder = StateEncoder()
    text = json.dumps(encoder.encode(value))
    return flower.ConfigRecord({"json": text, "tensors": save(encoder.tensors) if encoder.tensors else b""})


def unpacked(record: Any, device: torch.device, into: object = None) -> Any:
    """What `packed` wrote; networks, generators and `Resumable` objects are loaded into `into`.

    Raises:
        Exception: The record is not as `packed` writes it.
    """
    tensors = load(record["tensors"]) if record["tensors"] else {}
    return StateDecoder(tensors, device).decode(json.loads(record["json"]), into)


def client_app(locate: Locate, evaluated: bool) -> flower.ClientApp:
    """The Flower client that answers a method's requests.

    Args:
        locate: Finds the world and the client of a node.
        evaluated: Whether this is an evaluator's simulation, which may store clients' states and read their diagnostics.
    """
    app = flower.ClientApp()

    def describe(message: flower.Message, context: flower.Context) -> flower.Message:
        return _reply(message, lambda: _description(*locate(context, ())))

    def answer(message: flower.Message, context: flower.Context) -> flower.Message:
        return _reply(message, lambda: _answer(message.content[CONTENT], context, locate))

    def state(message: flower.Message, context: flower.Context) -> flower.Message:
        return _reply(message, lambda: context.state.get(STATE, flower.ConfigRecord()))

    def resume(message: flower.Message, context: flower.Context) -> flower.Message:
        context.state[STATE] = message.content[CONTENT]
        return _reply(message, flower.ConfigRecord)

    def log(message: flower.Message, context: flower.Context) -> flower.Message:
        return _reply(message, lambda: packed(getattr(_restored(context, *locate(context, ())).client, "log", {})))

    app.query()(describe)
    app.train()(answer)
    if evaluated:
        for name, function in {"state": state, "resume": resume, "log": log}.items():
            app.query(name)(function)
    return app


def _reply(message: flower.Message, content: Callable[[], flower.ConfigRecord]) -> flower.Message:
    """The reply with this content, or with the reason why it could not be computed."""
    with fixed_arithmetic(), whole_precision():
        try:
            record = flower.RecordDict({CONTENT: content()})
        except ClientFailed as error:
            record = flower.RecordDict({FAILED: flower.ConfigRecord({"in": error.verb, "reason": error.reason})})
        except (ValueError, OSError) as error:  # of the node's own data
            record = flower.RecordDict({FAILED: flower.ConfigRecord({"in": CONSTRUCTION, "reason": str(error)})})
    return flower.Message(record, reply_to=message)


def _description(world: ClientWorld, name: str) -> flower.ConfigRecord:
    return flower.ConfigRecord({"name": name, "samples": len(world.data[name])})


def _answer(request: flower.ConfigRecord, context: flower.Context, locate: Locate) -> flower.ConfigRecord:
    """The client's defended answer; its state is left in the node's context."""
    world, name = locate(context, tuple(request["clients"]))
    client, verb, round = _restored(context, world, name), request["verb"], request["round"]
    answer = client.answer(verb, round, unpacked(request, world.federation.device))
    with client_errors(name, verb, round):
        context.state[STATE] = packed(client)
        return packed(answer)


def _restored(context: flower.Context, world: ClientWorld, name: str) -> Participant:
    client = world.participant(name)
    if STATE in context.state:
        unpacked(context.state[STATE], world.federation.device, client)
    return client


@dataclass(frozen=True)
class Node:
    """A node: its number in Flower, and the number of training samples that its client states."""

    number: int
    samples: int


def nodes_of(grid: flower.Grid, count: int, stopped: Event) -> dict[str, Node]:
    """By client, the first `count` nodes that connect; waits for them.

    Raises:
        ClientFailed: A node cannot take part, with its reason.
        ValueError: Two nodes have one client.
    """
    while len(connected := sorted(grid.get_node_ids())) < count:
        if stopped.wait(POLL):
            raise FederationEnded(f"Flower ended before {count} nodes were connected")
    numbers = {f"node {number}": number for number in connected[:count]}
    empty = dict.fromkeys(numbers, flower.ConfigRecord())
    nodes: dict[str, Node] = {}
    for name, reply in _exchange(grid, numbers, "query", empty, stopped):
        description = _content(name, reply, CONSTRUCTION, None)
        client = str(description["name"])
        if client in nodes:
            raise ValueError(f"want a name of its own for each client, got {client} from two nodes")
        nodes[client] = Node(numbers[name], int(description["samples"]))
    return nodes


class FlowerClients(Clients, Resumable):
    """Clients on the nodes of a Flower federation.

    Args:
        grid: Flower's connection to the nodes.
        nodes: By client.
        names: All clients, in the federation's order.
        device: Device of the tensors in answers that were not on the CPU.
        evaluated: As of `client_app`.
        stopped: Set when Flower has ended, so that no reply will come.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ("states",)

    def __init__(
        self,
        grid: flower.Grid,
        nodes: Mapping[str, Node],
        names: Iterable[str],
        device: torch.device,
        evaluated: bool,
        stopped: Event,
    ) -> None:
        self.grid, self.nodes, self.names, self.device, self.stopped = grid, nodes, list(names), device, stopped
        self.state, self.resumable, self.evaluated = self, evaluated, evaluated

    def send(self, request: Request, delivered: Mapping[str, Message]) -> Iterator[tuple[str, Message]]:
        largest = sorted(delivered, key=lambda name: self.nodes[name].samples, reverse=True)
        records: dict[tuple[int, ...], flower.ConfigRecord] = {}  # a model that is sent to all clients is encoded once
        requests = {}
        for name in largest:
            artifacts = tuple(map(id, delivered[name]))
            if artifacts not in records:
                records[artifacts] = packed(delivered[name])
            facts = {"verb": request.verb, "round": request.round(name), "clients": self.names}
            requests[name] = flower.ConfigRecord({**records[artifacts], **facts})
        replies = self._ask("train", requests)
        return ((name, self._artifacts(name, request.verb, request.round(name), reply)) for name, reply in replies)

    def log(self) -> dict[str, float]:
        if not self.evaluated:
            return {}
        logs = [
            unpacked(_content(name, reply, "log", None), self.device)
            for name, reply in self._ask("query.log", dict.fromkeys(self.nodes, flower.ConfigRecord()))
        ]
        return mean_log(logs)

    @property
    def states(self) -> dict[str, tuple[str, Tensor]]:
        """By client that was asked before, the JSON and the bytes of its state."""
        records = {
            name: _content(name, reply, "state", None)
            for name, reply in self._ask("query.state", dict.fromkeys(self.nodes, flower.ConfigRecord()))
        }
        return {
            name: (record["json"], torch.frombuffer(bytearray(record["tensors"]), dtype=torch.uint8))
            for name, record in records.items()
            if "json" in record
        }

    @states.setter
    def states(self, states: Mapping[str, tuple[str, Tensor]]) -> None:
        contents = {
            name: flower.ConfigRecord({"json": text, "tensors": tensors.numpy().tobytes()})
            for name, (text, tensors) in states.items()
        }
        for name, reply in self._ask("query.resume", contents):
            _content(name, reply, "resume", None)

    def blank(self, name: str) -> object:
        return None

    def _ask(self, kind: str, contents: Mapping[str, flower.ConfigRecord]) -> Iterator[tuple[str, flower.Message]]:
        numbers = {name: self.nodes[name].number for name in contents}
        return _exchange(self.grid, numbers, kind, contents, self.stopped)

    def _artifacts(self, name: str, verb: str, round: int, reply: flower.Message) -> Message:
        record = _content(name, reply, verb, round)
        with client_errors(name, verb, round):
            artifacts: Message = unpacked(record, self.device)
            return artifacts


def _exchange(
    grid: flower.Grid,
    numbers: Mapping[str, int],
    kind: str,
    contents: Mapping[str, flower.ConfigRecord],
    stopped: Event,
) -> Iterator[tuple[str, flower.Message]]:
    """Sends each client its content at once; the iterator gives clients and their replies, in this order.

    Flower's own `send_and_receive` looks for replies every three seconds.
    """
    messages = {
        name: flower.Message(flower.RecordDict({CONTENT: content}), numbers[name], kind)
        for name, content in contents.items()
    }
    grid.push_messages(list(messages.values()))
    waiting = {message.metadata.message_id: name for name, message in messages.items()}

    def replies() -> Iterator[tuple[str, flower.Message]]:
        arrived: dict[str, flower.Message] = {}
        for name in contents:
            while name not in arrived:
                if stopped.is_set():
                    raise FederationEnded(f"Flower ended before the answer of {name}")
                pulled = list(grid.pull_messages(list(waiting)))
                arrived |= {waiting.pop(reply.metadata.reply_to_message_id): reply for reply in pulled}
                if not pulled:
                    stopped.wait(POLL)
            yield name, arrived.pop(name)

    return replies()


def _content(name: str, reply: flower.Message, verb: str, round: int | None) -> flower.ConfigRecord:
    """The content of a client's reply.

    Raises:
        ClientFailed: There is none; with the reason that the client or Flower gives.
    """
    if reply.has_error():
        reason = str(reply.error.reason).strip().splitlines() or [f"error {reply.error.code}"]
        raise ClientFailed(name, verb, round, f"Flower says: {' '.join(reason)}")
    with client_errors(name, verb, round):
        if FAILED in reply.content:
            failed = reply.content[FAILED]
            if failed["in"] == CONSTRUCTION:
                raise ClientFailed(name, CONSTRUCTION, None, str(failed["reason"]))
            raise ClientFailed(name, verb, round, str(failed["reason"]))
        content: flower.ConfigRecord = reply.content[CONTENT]
        return content
