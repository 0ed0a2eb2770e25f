"""A Flower grid whose nodes are in this process; each message crosses as bytes, and each answer is given by a new client."""

from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.app.error import Error
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.flower_clients import ClientWorld, client_app
from fdgpriv.method import Method


class Loopback(Grid):
    """Flower nodes that answer as soon as they are asked.

    Args:
        app: Of all nodes.
        nodes: Number of nodes; a node knows its place among them.
        lost: Places of nodes of which Flower says that they are gone.
    """

    def __init__(self, app: ClientApp, nodes: int, lost: Iterable[int] = ()) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1  # which Flower's launchers set
        self.app, self.lost = app, {100 + place for place in lost}
        self.contexts = {
            100 + place: Context(7, 100 + place, {"partition-id": place}, RecordDict(), {}) for place in range(nodes)
        }
        self.replies: dict[str, Message] = {}

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    def create_message(self, *given: Any, **named: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = f"message {len(self.replies)}"
            context = self.contexts[message.metadata.dst_node_id]
            if context.node_id in self.lost:
                reply = Message(Error(3, "Node unavailable"), reply_to=message)
            else:
                message.content = over_bytes(message.content)
                reply = self.app(message, context)
                reply.content = over_bytes(reply.content)
                context.state = over_bytes(context.state)
            names.append(name)
            self.replies[name] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies[name] for name in message_ids]


def over_bytes(content: RecordDict) -> RecordDict:
    """The content after Flower has turned it to bytes and back."""
    proto = recorddict_to_proto(content)
    return recorddict_from_proto(type(proto).FromString(proto.SerializeToString()))


def loopback(
    method: Method, world: Federation, data: Mapping[str, ClientData], defense: Any, lost: Iterable[int] = ()
) -> Loopback:
    """A federation of these clients, each on a node."""
    known = ClientWorld(method, world, data, defense)

    def locate(context: Context, clients: tuple[str, ...]) -> tuple[ClientWorld, str]:
        return known, world.clients[int(context.node_config["partition-id"])]

    return Loopback(client_app(locate, evaluated=True), len(world.clients), lost)
