"""Records every message of a Flower app, of whatever strategy, for an audit."""

import atexit
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.federation.omission import ENDED, reason
from fdgpriv.federation.recording import Recording
from fdgpriv.utils import flower_import as flower
from fdgpriv.utils.checksum import tensors_digest

ROUND = "server-round"  # in the ConfigRecord of Flower's strategies, from 1
COUNTS = ("num-examples", "num_examples")  # in the MetricRecord of their clients' replies; the second one of older apps
TRAIN = "train"  # the type of message by which they ask for training
MODEL = "arrays"  # their ArrayRecord, where a message has several
SECURE = "secaggplus_configs"  # the record of SecAgg and SecAgg+, one message for each stage


def recorded(grid: flower.Grid, folder: Path | str, names: Mapping[int, str] | None = None) -> "RecordedGrid":
    """The same grid, which records in `folder` all that crosses it: ``grid = fdgpriv.flower.recorded(grid, "runs/mine")``.

    The only ArrayRecord of a message, or the one called ``arrays``, is the model if its tensors are some or all of those
    that the server sent; other records are of a kind called as their key. A model that is sent for training in round r of
    Flower's, which counts from 1, is that after r - 1 rounds; one that is sent for evaluation, that after r. What mods of
    Flower do on the client is in what is recorded: noise, clipping, and of SecAgg+ masked vectors in place of models.

    Once the folder is open, the recording raises no exception into the app (see `fdgpriv.federation.recording.Recording`).
    It is closed when the process exits, also by SIGTERM or SIGINT while Flower handles these.

    Args:
        grid: Of the ServerApp.
        folder: A new or empty folder.
        names: Of the clients by Flower's node id; None for client-00, client-01, ... in the order in which the nodes
            registered, which in a simulation is that of ``partition-id``.

    Raises:
        ValueError: The folder is not empty.
        OSError: It cannot be written.
    """
    recorded_grid = RecordedGrid(grid, Recording(folder), names)
    atexit.register(recorded_grid.close)  # a server that is killed leaves it open, which the audit sees
    flower.at_exit(recorded_grid.close)
    return recorded_grid


class RecordedGrid(flower.Grid):  # type: ignore[misc]
    """A grid that passes all on to another one, and records it."""

    def __init__(self, grid: flower.Grid, recording: Recording, names: Mapping[int, str] | None = None) -> None:
        self._grid, self._recording, self._names = grid, recording, dict(names or {})
        self._asked: dict[str, tuple[str, int, str]] = {}  # by message: client, round and kind of request
        self._models: dict[str, SentModel] = {}  # by client, the latest model that it was sent
        self._first_round = 1  # of those that a strategy states; 0 where one begins to train in round 0
        self._rounds: dict[str, int] = {}  # by client, requests so far that did not say their round

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    @property
    def run(self) -> Any:
        return self._grid.run

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    def create_message(self, *given: Any, **named: Any) -> flower.Message:
        return self._grid.create_message(*given, **named)

    def get_node_ids(self) -> Iterable[int]:
        node_ids: Iterable[int] = self._grid.get_node_ids()
        return node_ids

    def get_nodes(self) -> Iterable[Any]:
        nodes: Iterable[Any] = self._grid.get_nodes()
        return nodes

    def push_messages(self, messages: Iterable[flower.Message]) -> Iterable[str]:
        messages = list(messages)
        ids: list[str] = list(self._grid.push_messages(messages))
        for message in messages:
            self._down(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[flower.Message]:
        return self._up(self._grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[flower.Message], *, timeout: float | None = None
    ) -> Iterable[flower.Message]:
        messages = list(messages)
        replies = self._grid.send_and_receive(messages, timeout=timeout)
        for message in messages:  # their ids are known once they are sent
            self._down(message)
        return self._up(replies)

    def close(self) -> None:
        """Notes which clients have not answered, and closes the recording; never raises."""
        for client, round, _ in self._asked.values():
            self._recording.failed(client, round, ENDED)
        self._asked.clear()
        self._recording.close()

    def _down(self, message: flower.Message) -> None:
        with self._observed(SERVER, message.metadata.dst_node_id):
            client = self._name(message.metadata.dst_node_id)
            request, round = message.metadata.message_type, self._round(client, message)
            self._asked[message.metadata.message_id] = client, round, request
            with self._observed(SERVER, client, round):
                self._record_down(message, client, round, request)

    def _record_down(self, message: flower.Message, client: str, round: int, request: str) -> None:
        arrays = self._arrays(message, SERVER, client, round)
        key = MODEL if MODEL in arrays else next(iter(arrays), None)
        if key is not None:
            model = SentModel.of(round, arrays[key])
            sent = self._models.get(client)
            if sent is None or sent.round != round:
                self._models[client] = model
                self._recording.message(SERVER, client, round, {"model": arrays.pop(key)})
            elif sent == model:  # one that is sent again, for evaluation and then for training, is recorded once
                del arrays[key]
            else:
                arrays[f"{key}_again"] = arrays.pop(key)
        for kind, state in self._others(message, arrays, request):
            self._recording.message(SERVER, client, round, {"kind": kind}, state)

    def _up(self, replies: Iterable[flower.Message]) -> list[flower.Message]:
        replies = list(replies)
        for reply in replies:
            with self._observed(reply.metadata.src_node_id, SERVER):
                asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
                if asked is None:
                    continue
                client, round, request = asked
                if reply.has_error():
                    self._recording.failed(client, round, f"its node failed: {reply.error.reason}")
                    continue
                with self._observed(client, SERVER, round):
                    self._record_up(reply, client, round, request)
        return replies

    def _record_up(self, reply: flower.Message, client: str, round: int, request: str) -> None:
        arrays = self._arrays(reply, client, SERVER, round)
        facts: dict[str, Any] = {}
        if request == TRAIN:
            sent = self._models.get(client)
            if sent is not None and (key := sent.key_of_trained(arrays)) is not None:
                facts["model"] = arrays.pop(key)
            for record in reply.content.metric_records.values():
                if (name := next((name for name in COUNTS if name in record), None)) is not None:
                    facts["n"] = record[name]
        if facts:
            self._recording.message(client, SERVER, round, facts)
        for kind, state in self._others(reply, arrays, request):
            self._recording.message(client, SERVER, round, {"kind": kind}, state)

    def _arrays(self, message: flower.Message, sender: str, receiver: str, round: int) -> dict[str, dict[str, Tensor]]:
        """The ArrayRecords of a message by key; those that cannot be read are left out."""
        arrays: dict[str, dict[str, Tensor]] = {}
        for key, record in message.content.array_records.items():
            with self._observed(sender, receiver, round, f"ArrayRecord {key}"):
                arrays[key] = tensors(record)
        return arrays

    @contextmanager
    def _observed(
        self, sender: object, receiver: object, round: int | None = None, content: str = "message"
    ) -> Iterator[None]:
        """Within, an exception is noted in place of raised."""
        try:
            yield
        except Exception as error:
            self._recording.omit(sender, receiver, round, content, reason(error))

    def _others(
        self, message: flower.Message, arrays: Mapping[str, Mapping[str, Tensor]], request: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records of a message besides the model and the number of a training's images, each with its kind."""
        before = "" if request == TRAIN else f"{request.replace('.', '_')}_"
        figures = {**message.content.metric_records, **message.content.config_records}
        for key, record in {**arrays, **figures}.items():
            kind = f"secaggplus_{record.get('stage', 'reply')}" if key == SECURE else f"{before}{key}"
            values = {name: value for name, value in record.items() if name not in COUNTS or request != TRAIN}
            state = {name: part for key, value in values.items() for name, part in _parts(key, value)}
            if state:
                yield kind, state

    def _round(self, client: str, message: flower.Message) -> int:
        """The round of a request: as Flower's strategies say it, or the number of requests that this client had before."""
        stated = [r[ROUND] for r in message.content.config_records.values() if isinstance(r.get(ROUND), int)]
        if not stated and message.metadata.group_id.isdecimal():  # of older strategies and of secure aggregation
            stated = [int(message.metadata.group_id)]
        if stated:
            is_training = message.metadata.message_type == TRAIN
            if is_training and stated[0] == 0:
                self._first_round = 0
            return int(stated[0]) - self._first_round + int(not is_training)
        self._rounds[client] = self._rounds.get(client, -1) + 1
        return self._rounds[client]

    def _name(self, node_id: int) -> str:
        if node_id not in self._names:
            nodes = sorted(self._grid.get_nodes(), key=lambda node: str(getattr(node, "registered_at", "")))
            for node in nodes:
                self._names.setdefault(node.node_id, f"client-{len(self._names):02d}")
        return self._names.setdefault(node_id, f"node-{node_id}")


def tensors(record: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arrays of an ArrayRecord by name."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in record.items()}


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value of a ConfigRecord with text and bytes as tensors of their bytes, several of these one by one."""
    if isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        yield name, torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)
    elif isinstance(value, list) and any(isinstance(entry, str | bytes) for entry in value):
        for number, entry in enumerate(value):
            yield from _parts(f"{name}.{number}", entry)
    else:
        yield name, value


@dataclass(frozen=True)
class SentModel:
    """A model that a client received, without its values.

    Attributes:
        round: Of the model.
        shapes: By name of a tensor.
        sha256: Of the tensors.
    """

    round: int
    shapes: Mapping[str, torch.Size]
    sha256: str

    @classmethod
    def of(cls, round: int, state: Mapping[str, Tensor]) -> Self:
        return cls(round, _shapes(state), tensors_digest(state))

    def key_of_trained(self, arrays: Mapping[str, Mapping[str, Tensor]]) -> str | None:
        """The key of the record that has all tensors of the model; else, of `MODEL` or the only record if it has a part."""
        for key, state in arrays.items():
            if _shapes(state) == self.shapes:
                return key
        candidates = [MODEL] if MODEL in arrays else list(arrays) if len(arrays) == 1 else []
        parts = [key for key in candidates if len(arrays[key]) > 0 and self._has(arrays[key])]
        return next(iter(parts), None)

    def _has(self, state: Mapping[str, Tensor]) -> bool:
        return _shapes(state).items() <= self.shapes.items()


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}
