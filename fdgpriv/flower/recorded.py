"""Records every message of a Flower app, of whatever strategy, for an audit."""

import atexit
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fdgpriv.federation.recording import Recording
from fdgpriv.utils import flower_import as flower

ROUND = "server-round"  # in the ConfigRecord of Flower's strategies, from 1
COUNT = "num-examples"  # in the MetricRecord of their clients' replies
TRAIN = "train"  # the type of message by which they ask for training
MODEL = "arrays"  # their ArrayRecord, where a message has several
SECURE = "secaggplus_configs"  # the record of SecAgg and SecAgg+, one message for each stage
_ARGUMENTS = ("client", "round", "model", "update", "style", "head", "n", "metrics", "kind")  # of a recording


def recorded(grid: flower.Grid, folder: Path | str, names: Mapping[int, str] | None = None) -> "RecordedGrid":
    """The same grid, which records in `folder` all that crosses it: ``grid = fdgpriv.flower.recorded(grid, "runs/mine")``.

    The only ArrayRecord of a message, or the one called ``arrays``, is the model if it has the names and shapes of the one
    that the server sent; other records are of a kind called as their key. A model that is sent for training in round r of
    Flower's, which counts from 1, is that after r - 1 rounds; one that is sent for evaluation, that after r. What mods of
    Flower do on the client is in what is recorded: noise, clipping, and of SecAgg+ masked vectors in place of models.

    Args:
        grid: Of the ServerApp.
        folder: A new or empty folder.
        names: Of the clients by Flower's node id; None for client-00, client-01, ... in the order in which the nodes
            registered, which in a simulation is that of ``partition-id``.

    Raises:
        ValueError: The folder is not empty.
    """
    recording = Recording(folder)
    atexit.register(recording.close)  # a server that is killed leaves it open, which the audit sees
    return RecordedGrid(grid, recording, names)


class RecordedGrid(flower.Grid):  # type: ignore[misc]
    """A grid that passes all on to another one, and records it."""

    def __init__(self, grid: flower.Grid, recording: Recording, names: Mapping[int, str] | None = None) -> None:
        self._grid, self._recording, self._names = grid, recording, dict(names or {})
        self._asked: dict[str, tuple[str, int, str]] = {}  # by message: client, round and kind of request
        self._models: dict[tuple[str, int], Mapping[str, Tensor]] = {}  # by client and round, the model it was sent
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

    def _down(self, message: flower.Message) -> None:
        client = self._name(message.metadata.dst_node_id)
        request, round = message.metadata.message_type, self._round(client, message)
        self._asked[message.metadata.message_id] = client, round, request
        arrays = {key: tensors(record) for key, record in message.content.array_records.items()}
        key = MODEL if MODEL in arrays else next(iter(arrays), None)
        if key is not None:
            model = arrays.pop(key)
            sent = self._models.get((client, round))
            if sent is None:
                self._models[client, round] = model
                self._recording.down(client, round, model=model)
            elif not _equal(
                sent, model
            ):  # one that is sent again, for evaluation and then for training, is recorded once
                arrays[f"{key}_again"] = model
        for kind, state in self._others(message, arrays, request):
            self._recording.down(client, round, kind=kind, **state)

    def _up(self, replies: Iterable[flower.Message]) -> list[flower.Message]:
        replies = list(replies)
        for reply in replies:
            asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if asked is None or reply.has_error():
                continue
            client, round, request = asked
            arrays = {key: tensors(record) for key, record in reply.content.array_records.items()}
            facts: dict[str, Any] = {}
            if request == TRAIN:
                form = _form(self._models.get((client, round), {}))
                if (key := next((key for key, state in arrays.items() if _form(state) == form), None)) is not None:
                    facts["model"] = arrays.pop(key)
                for record in reply.content.metric_records.values():
                    facts |= {"n": int(record[COUNT])} if COUNT in record else {}
            if facts:
                self._recording.up(client, round, **facts)
            for kind, state in self._others(reply, arrays, request):
                self._recording.up(client, round, kind=kind, **state)
        return replies

    def _others(
        self, message: flower.Message, arrays: Mapping[str, Mapping[str, Tensor]], request: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records of a message besides the model and the number of a training's images, each with its kind."""
        before = "" if request == TRAIN else f"{request.replace('.', '_')}_"
        figures = {**message.content.metric_records, **message.content.config_records}
        for key, record in {**arrays, **figures}.items():
            kind = f"secaggplus_{record.get('stage', 'reply')}" if key == SECURE else f"{before}{key}"
            values = {name: value for name, value in record.items() if name != COUNT or request != TRAIN}
            state = {_free(name): part for key, value in values.items() for name, part in _parts(key, value)}
            if state:
                yield kind, state

    def _round(self, client: str, message: flower.Message) -> int:
        """The round of a request: as Flower's strategies say it, or the number of requests that this client had before."""
        stated = [r[ROUND] for r in message.content.config_records.values() if isinstance(r.get(ROUND), int)]
        if stated:
            return int(stated[0]) - int(message.metadata.message_type == TRAIN)
        if message.metadata.group_id.isdecimal():  # of older strategies and of secure aggregation
            return int(message.metadata.group_id) - int(message.metadata.message_type == TRAIN)
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


def _parts(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """A value of a ConfigRecord as tensors: text and bytes as their bytes, several of these one by one."""
    if isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        yield name, torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)
    elif isinstance(value, list) and any(isinstance(entry, str | bytes) for entry in value):
        for number, entry in enumerate(value):
            yield from _parts(f"{name}.{number}", entry)
    else:
        yield name, torch.as_tensor(value)


def _free(name: str) -> str:
    return f"{name}_" if name in _ARGUMENTS else name


def _form(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}


def _equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return _form(one) == _form(other) and all(torch.equal(one[name], other[name]) for name in one)
