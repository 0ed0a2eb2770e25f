"""Records what crosses the wire of any federated training, for an audit: an append-only transcript (see transcript.py)."""

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import RLock
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar, cast

from fdgpriv.artifacts.artifact import SERVER, Artifact, client_name
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, ModelUpdate
from fdgpriv.federation.message_content import OF, Kinds, message_artifacts, whole_number
from fdgpriv.federation.omission import Omission, printable, reason
from fdgpriv.federation.transcript import (
    CLOSED,
    MANIFEST,
    OMITTED,
    RECORDED,
    RESERVE,
    Record,
    manifest_line,
    tensors_file,
    unshared,
)
from fdgpriv.utils.checksum import save_tensors, tensors_digest
from fdgpriv.utils.failures import one_line

VERB = "train"  # the request that every recorded transfer belongs to
ANSWER = "answer"  # the content that a failed client did not send
_ARGUMENTS = ("model", "update", "style", "head", "n", "metrics", "kind")  # of `up` and `down`
_SERVER_KINDS = (ModelState, ModelUpdate, ClassifierHead)  # kinds that the server computes; others it may pass on
_RESERVED, _BLOCK = 2**16, 2**12  # bytes of the file whose space is for omissions once the disk is full
_LOG = logging.getLogger("fdgpriv.record")

Named = Mapping[str, Any]
"""Tensors, arrays or numbers by name."""

Observer = TypeVar("Observer", bound=Callable[..., None])


def _observing(method: Observer) -> Observer:
    """The method, which notes an exception in place of raising it."""

    @wraps(method)
    def observing(recording: "Recording", /, *given: Any, **named: Any) -> None:
        try:
            method(recording, *given, **named)
        except Exception as error:
            client = given[0] if given else named.get("client", "unknown")
            round = whole_number(given[1] if len(given) > 1 else named.get("round"))
            sender, receiver = (SERVER, client) if method.__name__ == "down" else (client, SERVER)
            recording.omit(sender, receiver, round, "message", reason(error))

    return cast(Observer, observing)


class Recording:
    """Records the messages of a training in a folder, one after the other.

    When a call returns, its content is on disk: a training that is killed leaves all complete calls. No tensors stay in
    memory, and the same tensors sent to several clients in one round are stored once. Values are recorded unchecked, also
    NaN; the audit refuses them.

    Once the folder is open, no call raises an exception: what cannot be recorded is left out, logged as a warning by the
    logger ``fdgpriv.record``, once for each kind of content and reason, and noted in the recording, so that an audit says
    what is missing.

    Args:
        folder: A new or empty folder, or one with a recording of no message.

    Raises:
        ValueError: The folder is not empty.
        OSError: It cannot be written.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()  # a training may change the working directory
        is_new = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != MANIFEST or not _has_no_messages(path) for path in self.folder.iterdir()):
            raise ValueError(f"record: want a new or empty folder, got {self.folder}")
        (self.folder / MANIFEST).unlink(missing_ok=True)
        self._lock = RLock()
        self._process = os.getpid()
        self._closed = False
        self._count = 0
        self._kinds = Kinds()
        self._stored: dict[tuple[str, str, str, int], int] = {}  # by kind, digest, origin and round, the first record
        self._origins: dict[tuple[str, str], tuple[str, int]] = {}  # by kind and digest, the first client and its round
        self._sent: dict[tuple[str, str, int, str], str] = {}  # by sender, receiver, round and kind, the digest
        self._logged: set[tuple[str, str]] = set()  # kinds of content and reasons
        self._unwritten: list[Omission] = []  # while the disk is full
        try:
            (self.folder / MANIFEST).touch(exist_ok=False)
            self._write({"keep": "all", RECORDED: True})
            self._fill_reserve()
        except OSError:  # a second attempt finds the folder as this one did
            (self.folder / MANIFEST).unlink(missing_ok=True)
            if is_new:
                self.folder.rmdir()
            raise

    @_observing
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
        given = dict(zip(_ARGUMENTS, (model, update, style, head, n, metrics, kind), strict=True))
        self.message(SERVER, client, round, given, tensors)

    @_observing
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
            model: The state dict of a model, or the part of it that is sent; or its tensors as a list, in its order.
            update: The change of a model by name: trained minus received tensors.
            style: Mean and standard deviation (C,) of a layer's channels over the client's images; after these, if they
                are sent too, the variances (C,) over images of the images' means and standard deviations.
            head: The state dict of a classifier alone.
            n: Number of the client's training images.
            metrics: Figures by name; ``accuracy`` in [0, 1] is that of the received model on the client's held-out images.
            kind: The name of any other kind of content, for example ``prototype``.
            tensors: By name, the tensors of that kind.

        Left out are values that are no tensors, arrays or numbers, and a second, different, artifact of a kind from one client
        in one round. Floating-point tensors of less than 32 bits are recorded as float32.
        """
        given = dict(zip(_ARGUMENTS, (model, update, style, head, n, metrics, kind), strict=True))
        self.message(client, SERVER, round, given, tensors)

    def message(
        self, sender: Any, receiver: Any, round: Any, given: Named, tensors: Named = MappingProxyType({})
    ) -> None:
        """Records what can be recorded of one message.

        Args:
            sender, receiver: A client and ``"server"``.
            round: From 0.
            given: The arguments of `up` by name; None for those that are not sent.
            tensors: By name, the tensors of the kind ``given["kind"]``.

        Raises:
            ValueError: The names or the round cannot be recorded.
        """
        sender, receiver, number = _name(sender), _name(receiver), whole_number(round)
        if number is None or number < 0:
            raise ValueError(f"want a round from 0, got {printable(repr(round))}")
        if sender == SERVER:
            receiver = client_name(receiver, "record")
        else:
            sender = client_name(sender, "record")
            receiver = receiver if receiver == SERVER else client_name(receiver, "record")

        def omit(content: str, why: str) -> None:
            self.omit(sender, receiver, number, content, why)

        sent = {name: value for name, value in given.items() if value is not None}
        with self._lock:
            for artifact in message_artifacts(sender, number, sent, tensors, self._kinds, omit):
                try:
                    self._append(artifact, sender, receiver, number)
                except Exception as error:
                    omit(artifact.kind, reason(error))

    @_observing
    def failed(self, client: str, round: int, why: str = "the client failed") -> None:
        """Notes that `client` did not answer in this round, so that an audit does not wait for it."""
        number = whole_number(round)
        if number is not None:
            self._note(Omission(_name(client), SERVER, number, ANSWER, printable(why), failed=True))

    def omit(self, sender: object, receiver: object, round: int | None, content: str, why: str) -> None:
        """Logs that this content is not recorded, and why, and notes it in the recording; never raises."""
        omission = Omission(printable(sender), printable(receiver), round, printable(content), printable(why))
        try:
            problem = omission.content.rpartition(OF)[2], omission.reason
            if problem not in self._logged:
                self._logged.add(problem)
                _LOG.warning("record: not recorded, and the training goes on: %s", omission)
        except Exception:  # a handler of the training's own
            pass
        self._note(omission)

    def close(self) -> None:
        """Ends the recording. If it was not closed, an audit leaves out the last round unless all clients answered."""
        with self._lock:
            if self._closed:
                return
            self._free_reserve()
            try:
                self._write({CLOSED: self._count})
            except Exception as error:
                _LOG.warning("record: not closed: %s", one_line(error))
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._count:
            self.close()
        self._closed = True

    def _append(self, artifact: Artifact, sender: str, receiver: str, round: int) -> None:
        """Writes the tensors, unless they are stored already, and then the line that refers to them."""
        if self._closed:
            raise ValueError("want a recording that is open, got one that is closed")
        if os.getpid() != self._process:
            raise ValueError("want calls of the process that opened the recording, got one of another process")
        sha256 = tensors_digest(artifact.tensors())
        message = (sender, receiver, round, artifact.kind)
        if sender != SERVER or isinstance(artifact, _SERVER_KINDS):
            if self._sent.get(message) == sha256:
                return
            if message in self._sent:
                raise ValueError("want one in a round, got a second one, which differs")
        if sender != SERVER:
            self._origins.setdefault((artifact.kind, sha256), (sender, round))
        elif not isinstance(artifact, _SERVER_KINDS) and (artifact.kind, sha256) in self._origins:
            origin, origin_round = self._origins[artifact.kind, sha256]
            facts = {**artifact.facts(), "client": origin, "round": origin_round}
            artifact = type(artifact).build(artifact.tensors(), facts)
        key = (artifact.kind, sha256, artifact.client, artifact.round)
        index = self._stored.get(key, self._count)
        record = Record.of(artifact, sender, receiver, VERB, samples=0, clients=0, round=round)
        line = {**manifest_line(record, artifact.facts(), index), "sha256": sha256}
        file = self.folder / tensors_file(index)
        try:
            if index == self._count:
                tensors = unshared(artifact.tensors())
                save_tensors(file, {f"{index}/{name}": tensor for name, tensor in tensors.items()})
            self._write(line)
        except BaseException:  # a file without its line would count as damage
            if index == self._count:
                file.unlink(missing_ok=True)
            raise
        self._stored[key] = index
        self._sent[message] = sha256
        self._count += 1

    def _note(self, omission: Omission) -> None:
        """Writes the omission, now or, if the disk is full, with a later line; never raises."""
        with self._lock:
            self._unwritten.append(omission)
            with suppress(Exception):
                self._write()
                return
            self._free_reserve()
            with suppress(Exception):
                self._write()
            if not self._closed:
                self._fill_reserve()

    def _fill_reserve(self) -> None:
        """Takes space for omissions, as much as there is."""
        with suppress(OSError), (self.folder / RESERVE).open("wb", buffering=0) as reserve:
            for _ in range(_RESERVED // _BLOCK):
                reserve.write(bytes(_BLOCK))

    def _free_reserve(self) -> None:
        with suppress(OSError):
            (self.folder / RESERVE).unlink(missing_ok=True)

    def _write(self, *lines: Mapping[str, Any]) -> None:
        """Appends these lines, after the omissions that are not written yet; nothing if not all can be written."""
        omissions = [{OMITTED: vars(omission)} for omission in self._unwritten]
        content = "".join(json.dumps(line) + "\n" for line in (*omissions, *lines)).encode()
        with (self.folder / MANIFEST).open("r+b", buffering=0) as manifest:
            end = manifest.seek(0, 2)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[manifest.write(rest) :]
            except BaseException:
                manifest.truncate(end)
                raise
        self._unwritten.clear()


def record(folder: Path | str) -> Recording:
    """A recording in this folder, to be used as ``with fdgpriv.record("runs/mine") as wire: ...``; see `Recording`."""
    return Recording(folder)


def _name(client: Any) -> Any:
    """The name of a client that is called by a number; any other name as it is."""
    number = None if isinstance(client, str) else whole_number(client)
    return client if number is None else str(number)


def _has_no_messages(manifest: Path) -> bool:
    """Whether this is the manifest of a recording that was closed before its first message."""
    try:
        lines = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
        return [set(line) for line in lines] == [{"keep", RECORDED}, {CLOSED}]
    except (OSError, ValueError, TypeError):
        return False
