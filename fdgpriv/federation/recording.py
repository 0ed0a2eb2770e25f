"""Records what crosses the wire of any federated training, for an audit: an append-only transcript (see transcript.py)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import MAX_COUNT, SERVER, Artifact, client_name
from fdgpriv.artifacts.named_tensors import named_tensors
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, ModelUpdate, TensorState
from fdgpriv.artifacts.statistics import SampleCount, ValidationMetrics
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.federation.transcript import (
    CLOSED,
    MANIFEST,
    RECORDED,
    Record,
    manifest_line,
    tensors_file,
    unshared,
)
from fdgpriv.utils.checksum import save_tensors, tensors_digest

VERB = "train"  # the request that every recorded transfer belongs to
ENCODER = "encoder"  # the layer of recorded styles: the output of the user's encoder
UNKNOWN_RULE = "unknown"  # the style rule of recorded styles
METRICS = "metrics"  # the kind of figures other than an accuracy
_SERVER_KINDS = (ModelState, ModelUpdate, ClassifierHead)  # kinds that the server computes; others it may pass on

Named = Mapping[str, Any]
"""Tensors, arrays or numbers by name."""


class Recording:
    """Records the messages of a training in a folder, one after the other.

    When a call returns, its content is on disk: a training that is killed leaves all complete calls. No tensors stay in
    memory, and the same tensors sent to several clients in one round are stored once. Values are recorded unchecked, also
    NaN; the audit refuses them.

    Args:
        folder: A new or empty folder.

    Raises:
        ValueError: The folder is not empty.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise ValueError(f"record: want a new or empty folder, got {self.folder}")
        self._manifest = (self.folder / MANIFEST).open("x", encoding="utf-8")
        self._lock = Lock()
        self._count = 0
        self._stored: dict[tuple[str, str, str, int], int] = {}  # by kind, digest, origin and round, the first record
        self._origins: dict[tuple[str, str], tuple[str, int]] = {}  # by kind and digest, the first client and its round
        self._sent: set[tuple[str, str, int, str]] = set()
        self._write({"keep": "all", RECORDED: True})

    def down(
        self,
        client: str,
        round: int,
        *,
        model: Named | None = None,
        update: Named | None = None,
        style: Sequence[Any] | None = None,
        head: Named | None = None,
        n: int | None = None,
        metrics: Mapping[str, float] | None = None,
        kind: str | None = None,
        **tensors: Any,
    ) -> None:
        """Records what the server sends to `client` in this round; the arguments are those of `up`.

        Content with the same values as an earlier client's is recorded as passed on from that client, unless it is a model,
        an update or a head. Several styles, or several kinds that fdgpriv does not know, take several calls.
        """
        client = client_name(client, "record")
        content = _artifacts(SERVER, round, model, update, style, head, n, metrics, kind, tensors)
        self._record(client, round, content, sent_by_client=False)

    def up(
        self,
        client: str,
        round: int,
        *,
        model: Named | None = None,
        update: Named | None = None,
        style: Sequence[Any] | None = None,
        head: Named | None = None,
        n: int | None = None,
        metrics: Mapping[str, float] | None = None,
        kind: str | None = None,
        **tensors: Any,
    ) -> None:
        """Records what `client` sends to the server in this round.

        Args:
            client: Its name, the same in all rounds.
            round: From 0.
            model: The state dict of a model, or the part of it that is sent.
            update: The change of a model by name: trained minus received tensors.
            style: Mean and standard deviation (C,) of a layer's channels over the client's images; after these, if they
                are sent too, the variances (C,) over images of the images' means and standard deviations.
            head: The state dict of a classifier alone.
            n: Number of the client's training images.
            metrics: Figures by name; ``accuracy`` in [0, 1] is that of the received model on the client's held-out images.
            kind: The name of any other kind of content, for example ``prototype``.
            tensors: By name, the tensors of that kind.

        Raises:
            ValueError: An argument has another form, or the client has already sent this kind in this round.
        """
        client = client_name(client, "record")
        content = _artifacts(client, round, model, update, style, head, n, metrics, kind, tensors)
        self._record(client, round, content, sent_by_client=True)

    def close(self) -> None:
        """Ends the recording. If it was not closed, an audit leaves out the last round unless all clients answered."""
        with self._lock:
            if not self._manifest.closed:
                self._write({CLOSED: self._count})
                self._manifest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        self._manifest.close()

    def _record(self, client: str, round: int, content: Sequence[Artifact], sent_by_client: bool) -> None:
        sender, receiver = (client, SERVER) if sent_by_client else (SERVER, client)
        with self._lock:
            if self._manifest.closed:
                raise ValueError(f"record: want a recording that is open, got that of {self.folder}, which is closed")
            keys = {
                (sender, receiver, round, artifact.kind)
                for artifact in content
                if sent_by_client or isinstance(artifact, _SERVER_KINDS)
            }
            if repeated := sorted(self._sent & keys):
                direction = f"from {client}" if sent_by_client else f"to {client}"
                raise ValueError(f"record: want one {repeated[0][3]} {direction} in round {round}, got a second one")
            self._sent |= keys
            for artifact in content:
                self._append(artifact, sender, receiver, round)

    def _append(self, artifact: Artifact, sender: str, receiver: str, round: int) -> None:
        """Writes the tensors, unless they are stored already, and then the line that refers to them."""
        sha256 = tensors_digest(artifact.tensors())
        if sender != SERVER:
            self._origins.setdefault((artifact.kind, sha256), (sender, round))
        elif not isinstance(artifact, _SERVER_KINDS) and (artifact.kind, sha256) in self._origins:
            origin, origin_round = self._origins[artifact.kind, sha256]
            facts = {**artifact.facts(), "client": origin, "round": origin_round}
            artifact = type(artifact).build(artifact.tensors(), facts)
        key = (artifact.kind, sha256, artifact.client, artifact.round)
        index = self._stored.setdefault(key, self._count)
        if index == self._count:
            tensors = unshared(artifact.tensors())
            save_tensors(self.folder / tensors_file(index), {f"{index}/{name}": t for name, t in tensors.items()})
        record = Record.of(artifact, sender, receiver, VERB, samples=0, clients=0, round=round)
        self._write({**manifest_line(record, artifact.facts(), index), "sha256": sha256})
        self._count += 1

    def _write(self, line: Mapping[str, Any]) -> None:
        self._manifest.write(json.dumps(line) + "\n")
        self._manifest.flush()


def record(folder: Path | str) -> Recording:
    """A recording in this folder, to be used as ``with fdgpriv.record("runs/mine") as wire: ...``; see `Recording`."""
    return Recording(folder)


def _artifacts(
    sender: str,
    round: int,
    model: Named | None,
    update: Named | None,
    style: Sequence[Any] | None,
    head: Named | None,
    n: int | None,
    metrics: Mapping[str, float] | None,
    kind: str | None,
    tensors: Named,
) -> list[Artifact]:
    """The artifacts of one message."""
    if type(round) is not int or round < 0:
        raise ValueError(f"record: want a round from 0, got {round!r}")
    if (kind is None) != (not tensors):
        got = f"kind={kind!r} without any" if kind else f"{', '.join(tensors)} without a kind"
        raise ValueError(f"record: want kind= with tensors by name, got {got}")
    artifacts: list[Artifact] = []
    figures = dict(metrics or {})
    if "accuracy" in figures:
        accuracy = torch.tensor(float(figures.pop("accuracy")), dtype=torch.float64)
        artifacts.append(ValidationMetrics(client=sender, round=round, accuracy=accuracy))
    states: list[tuple[type[TensorState], Named | None]] = [
        (ModelState, model),
        (ClassifierHead, head),
        (ModelUpdate, None if update is None else {name: -_tensor(t, name) for name, t in update.items()}),
        (named_tensors(METRICS), figures or None),
    ]
    if kind is not None:
        states.append((named_tensors(kind), tensors))
    for artifact_class, state in states:
        if state is not None:
            named = {name: _tensor(value, name) for name, value in state.items()}
            artifacts.append(artifact_class(client=sender, round=round, state=named))
    if style is not None:
        artifacts.append(_style(sender, round, style))
    if n is not None:
        if not 1 <= n <= MAX_COUNT:
            raise ValueError(f"record: want n at least 1, got {n}")
        artifacts.append(SampleCount(client=sender, round=round, count=torch.tensor(int(n))))
    if not artifacts:
        raise ValueError(
            "record: want something that was sent: model, update, style, head, n, metrics or a kind; got none"
        )
    return artifacts


def _style(sender: str, round: int, style: Sequence[Any]) -> StyleStatistics:
    """The style of these two or four moments; without the last two, their variances are empty."""
    if len(style) not in (2, 4):
        raise ValueError(f"record: want style=(mean, std) or (mean, std, mean_var, std_var), got {len(style)} parts")
    moments = [_tensor(part, "style").flatten() for part in style]
    empty = moments[0].new_empty(0)
    mean, std, mean_var, std_var = moments if len(moments) == 4 else (*moments, empty, empty)
    return StyleStatistics(
        client=sender,
        round=round,
        mean=mean,
        std=std,
        mean_var=mean_var,
        std_var=std_var,
        granularity="client",
        at=ENCODER,
        rule=UNKNOWN_RULE,
    )


def _tensor(value: Any, name: str) -> Tensor:
    """The value as a dense tensor on the CPU."""
    try:
        tensor = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"record: want {name} to be a tensor, an array or a number, got {type(value).__name__}"
        ) from error
    return (tensor if tensor.layout is torch.strided else tensor.to_dense()).cpu()
