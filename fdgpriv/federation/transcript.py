"""The transcript of a run: metadata of all exchanged artifacts, tensors of a selection, saved without pickle.

On disk a transcript is a folder: ``manifest.jsonl``, one record per line, and ``tensors.safetensors`` with the stored
tensors under the keys ``INDEX/NAME``. File names are fixed; nothing in the manifest is used as a path.

A recording (fdgpriv.federation.recording) is a transcript that grows while somebody else's training runs: the tensors of
record INDEX lie in ``tensors-INDEX.safetensors``, its line has their checksum, and a last line says that it was closed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.named_tensors import named_tensors
from fdgpriv.artifacts.parameters import ModelState, TensorState
from fdgpriv.federation.omission import Omission
from fdgpriv.federation.setup import KEEP
from fdgpriv.utils.checksum import tensors_digest, write_tensors
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.file_memory import LARGE
from fdgpriv.utils.files import write_text

MANIFEST, TENSORS = "manifest.jsonl", "tensors.safetensors"
SMALL = 65_536  # bytes; artifacts up to this size are always stored
SMALL_TENSOR = 8_192  # bytes; a network's tensors up to this size are stored of every round while attacks read them
BUDGET = 2**30  # bytes of models that are stored while attacks read them
VIEWS = "views"  # the rule by which a training records what attacks will read
RECORDED = "recorded"  # in a manifest's first line: the tensors of each record lie in a file of their own
CLOSED = "closed"  # in a recording's last line: the number of records
OMITTED = "omitted"  # in a recording's line that is no record: content that is missing
RESERVE = "reserve"  # a file of an open recording: space for omissions once the disk is full
Whole = Annotated[int, Field(ge=0)]


class DamagedTranscript(ValueError):
    """A transcript on disk is truncated, altered or not a transcript."""


@dataclass(frozen=True)
class Record:
    """Metadata of one transfer of an artifact.

    Attributes:
        sender, receiver: Names; one of them is ``"server"``.
        origin: The participant that computed the artifact; a client if the server relays it.
        verb: The request.
        round: Of the request by which it crossed; an artifact that the server relays may be of an earlier one.
        samples, clients: Numbers of samples and clients that it was computed from.
    """

    sender: str
    receiver: str
    origin: str
    verb: str
    round: Whole
    kind: str
    level: str
    layer: str | None
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    nbytes: Whole
    samples: Whole
    clients: Whole

    @classmethod
    def of(
        cls,
        artifact: Artifact,
        sender: str,
        receiver: str,
        verb: str,
        samples: int,
        clients: int,
        round: int | None = None,
    ) -> Self:
        """The record of a transfer of this artifact in its own round, or in a later one if the server relays it."""
        shapes, dtypes = artifact.form
        return cls(
            sender=sender,
            receiver=receiver,
            origin=artifact.client,
            verb=verb,
            round=artifact.round if round is None else round,
            kind=artifact.kind,
            level=artifact.level,
            layer=artifact.layer,
            shapes=shapes,
            dtypes=dtypes,
            nbytes=artifact.nbytes,
            samples=samples,
            clients=clients,
        )

    @property
    def relayed(self) -> bool:
        """Whether the server relays one client's artifact to another."""
        return self.sender == SERVER and self.origin != SERVER


@dataclass
class Transcript:
    """All transfers in order, and the stored artifacts.

    Attributes:
        keep: ``last`` stores small artifacts of all rounds, large ones of the last round, and what the server sent in the
            first; ``ends`` all of the first round too; ``all`` stores all; ``small`` stores only small artifacts that are
            not tensors of a network; ``views`` stores large ones of the first, of the last and of evenly spaced rounds,
            `BUDGET` bytes at most, and of the other rounds their small tensors.
        records: One per transfer.
        kept: The stored artifacts, by index of the record; large ones lie in mapped files.
        small: By index of the record, the small tensors of large artifacts that are not stored.
        closed: Whether it is complete; a recording whose training was killed is not.
        omissions: What a recording lacks.
    """

    keep: str = "ends"
    records: list[Record] = field(default_factory=list)
    kept: dict[int, Artifact] = field(default_factory=dict)
    small: dict[int, Artifact] = field(default_factory=dict)
    closed: bool = True
    omissions: list[Omission] = field(default_factory=list)
    _interval: int = field(default=1, init=False, repr=False, compare=False)  # between stored rounds
    _latest: int = field(default=-1, init=False, repr=False, compare=False)  # earlier rounds have been thinned
    _references: Counter[int] = field(default_factory=Counter, init=False, repr=False, compare=False)  # by id
    _stored_bytes: int = field(default=0, init=False, repr=False, compare=False)  # of large artifacts
    # the latest large artifact and its copy in a file: one that several clients receive is written once
    _latest_copy: tuple[Artifact, Artifact] | None = field(default=None, init=False, repr=False, compare=False)
    # shapes and dtypes of loaded records, one object for equal ones: with relays there may be tens of thousands
    _forms: dict[str, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.keep not in (*KEEP, VIEWS):
            raise ValueError(f"want keep to be one of {', '.join((*KEEP, VIEWS))}, got {self.keep!r}")
        self._count_all()

    def add(self, record: Record, artifact: Artifact) -> Artifact:
        """Adds one transfer; returns the stored artifact, or the same one if it is not stored."""
        index = len(self.records)
        self.records.append(record)
        if self.keep != "small" or (record.nbytes <= SMALL and not isinstance(artifact, TensorState)):
            artifact = self.kept[index] = self._in_file(artifact)
        if self.keep in ("last", "ends", VIEWS) and record.nbytes > SMALL:
            # clients' answers in a later round drop this round's large artifacts; a final model that is only sent does not
            self._forget(record, artifact)
        return artifact

    def _forget(self, record: Record, artifact: Artifact) -> None:
        """Drops large artifacts that the rule no longer stores after this one was added."""
        self._count(artifact, record.nbytes)
        last = record.round - int(record.sender == SERVER)
        if last > self._latest or record.round < self._latest:  # otherwise nothing changes
            self._latest = max(last, self._latest)
            self._drop(last)
        while self.keep == VIEWS and self._stored_bytes > BUDGET and self._interval <= last:
            self._interval *= 2
            self._drop(last)

    def _count(self, artifact: Artifact, nbytes: int) -> None:
        """Counts an artifact's bytes, once if several clients received it."""
        self._references[id(artifact)] += 1
        if self._references[id(artifact)] == 1:
            self._stored_bytes += nbytes

    def _count_all(self) -> None:
        """Counts the large artifacts that are stored."""
        for index, artifact in self.kept.items():
            if self.records[index].nbytes > SMALL:
                self._count(artifact, self.records[index].nbytes)

    def _drop(self, last: int) -> None:
        """Drops large artifacts of rounds before `last` that the rule does not store."""
        first = self.records[0].round
        parts: dict[int, Artifact] = {}
        for i, artifact in list(self.kept.items()):
            record = self.records[i]
            if record.nbytes <= SMALL or record.round >= last or not self._drops(record, record.round - first):
                continue
            del self.kept[i]
            self._references[id(artifact)] -= 1
            if not self._references[id(artifact)]:
                del self._references[id(artifact)]
                self._stored_bytes -= record.nbytes
            if self.keep == VIEWS and isinstance(artifact, TensorState):
                if id(artifact) not in parts:
                    parts[id(artifact)] = _small_part(artifact)
                self.small[i] = parts[id(artifact)]

    def _drops(self, record: Record, since: int) -> bool:
        """Whether the rule drops this large artifact, `since` rounds after the first, once a later round is complete."""
        if self.keep == "last":
            return since > 0 or record.receiver == SERVER
        return since > 0 if self.keep == "ends" else bool(since % self._interval)

    def in_files(self, message: Message) -> Message:
        """An answer that is not checked yet, with large artifacts moved to files.

        Unchanged if an element is no artifact or has no dense tensors.
        """
        if self.keep == "small":
            return message
        in_files = attempt(lambda: [artifact.in_file(self._file_bytes) for artifact in message])
        return message if isinstance(in_files, Failed) else in_files

    @property
    def _file_bytes(self) -> int:
        """Bytes from which an artifact is stored in a file."""
        return SMALL if self.keep == VIEWS else LARGE

    def _in_file(self, artifact: Artifact) -> Artifact:
        """The artifact, in a file if it is large."""
        if artifact.nbytes < self._file_bytes:
            return artifact
        if self._latest_copy is None or self._latest_copy[0] is not artifact:
            self._latest_copy = artifact, artifact.in_file(self._file_bytes)
        return self._latest_copy[1]

    def thinned(self, keep: str) -> "Transcript":
        """The same transfers, with those of the stored artifacts that the rule `keep` stores."""
        thin = Transcript(keep, list(self.records), dict(self.kept))
        shared = [record.round for record in self.records if record.receiver == SERVER and record.nbytes > SMALL]
        if keep in ("last", "ends") and shared:
            thin._drop(max(shared))
        return thin

    @property
    def stored_bytes(self) -> int:
        """Size of all stored artifacts; one that several clients received counts once."""
        return sum(artifact.nbytes for artifact in {id(a): a for a in self.kept.values()}.values())

    @property
    def is_thinned(self) -> bool:
        """Whether large artifacts that attacks read have been dropped."""
        return self.keep in ("last", "ends") and len(self.kept) < len(self.records)

    def was_transferred(self, kind: str) -> bool:
        """Whether any artifact of this kind was transferred, stored or not."""
        return any(record.kind == kind for record in self.records)

    def of_kind(self, kind: str, small: bool = False) -> Iterator[tuple[Record, Artifact | None]]:
        """Every transfer of an artifact of this kind, with the artifact if it is stored.

        Args:
            kind: The kind.
            small: Whether to give the small tensors of an artifact whose other tensors are not stored.
        """
        for index, record in enumerate(self.records):
            if record.kind == kind:
                stored = self.kept.get(index)
                yield record, self.small.get(index) if stored is None and small else stored

    def models_sent(self, round: int, verb: str | None = None, small: bool = False) -> dict[str, ModelState]:
        """By client, the first stored model that the server sent it in this round, with `verb` unless None.

        Args:
            round: The round.
            verb: Of the request; None for any.
            small: As of `of_kind`.
        """
        models: dict[str, ModelState] = {}
        for record, artifact in self.of_kind(ModelState.kind, small):
            matches = record.round == round and record.origin == SERVER and verb in (None, record.verb)
            if matches and isinstance(artifact, ModelState):
                models.setdefault(record.receiver, artifact)
        return models

    def model_sent(self, round: int, verb: str | None = None) -> ModelState | None:
        """The global model of this round; None if it is not stored, or if clients received different models."""
        models = {id(model): model for model in self.models_sent(round, verb).values()}
        return next(iter(models.values())) if len(models) == 1 else None

    def save(self, folder: Path) -> None:
        """Writes the transcript into `folder`, each file atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        first_index: dict[int, int] = {}  # by id of an artifact: one sent to several clients is written once
        lines: list[str] = []
        tensors: dict[str, Tensor] = {}
        for index, record in enumerate(self.records):
            artifact = self.kept.get(index, self.small.get(index))
            stored = None if artifact is None else first_index.setdefault(id(artifact), index)
            if artifact is not None and stored == index:
                parts = artifact.tensors() if artifact.nbytes >= LARGE else unshared(artifact.tensors())
                tensors |= {f"{index}/{name}": tensor for name, tensor in parts.items()}
            facts = None if artifact is None else artifact.facts()
            lines.append(json.dumps(manifest_line(record, facts, stored, index not in self.small)))
        write_tensors(folder / TENSORS, tensors)
        write_text(folder / MANIFEST, "\n".join([json.dumps({"keep": self.keep}), *lines]) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The transcript in `folder`.

        Checks that records and tensors are consistent; `fdgpriv.training` checks the SHA-256 of the files. A recording
        whose training was killed is loaded as far as it was written.

        Raises:
            DamagedTranscript: The folder contains no valid transcript.
        """
        if not (folder / MANIFEST).is_file():
            what = (
                f"which has no {MANIFEST}"
                if folder.is_dir()
                else "which is no folder"
                if folder.exists()
                else "which does not exist"
            )
            raise DamagedTranscript(_printable(f"want the folder of a recording or a transcript, got {folder}, {what}"))
        try:
            head, *lines = _lines(folder) or [""]
            if not head:
                raise DamagedTranscript(f"{MANIFEST} is empty: nothing was recorded, or it was damaged")
            header = json.loads(head)
            transcript = cls(keep=header["keep"])
            if header.get(RECORDED):
                transcript._load_recorded(folder, lines)
            else:
                transcript._load_saved(folder, lines)
            transcript._count_all()
        except DamagedTranscript as error:
            raise DamagedTranscript(_printable(f"{folder}: {error}")) from None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
            reason = f"{folder}: not a whole transcript ({type(error).__name__}: {str(error)[:200]})"
            raise DamagedTranscript(_printable(reason)) from None
        return transcript

    def _load_saved(self, folder: Path, lines: Sequence[str]) -> None:
        """Adds the records of these lines, with the tensors of one file."""
        with safe_open(folder / TENSORS, framework="pt") as file:
            unread = set(file.keys())
            for index, line in enumerate(lines):
                self._load_line(index, json.loads(line), file, unread)
        if unread:
            raise DamagedTranscript(f"{TENSORS} holds {len(unread)} tensors that no record names")

    def _load_recorded(self, folder: Path, lines: Sequence[str]) -> None:
        """Adds the records of these lines, each with the tensors of its file."""
        records, closed = self._recorded_lines(lines)
        self.closed = closed is not None
        if closed is not None and closed != len(records):
            raise DamagedTranscript(f"{MANIFEST} wants {closed} records, got {len(records)}")
        stored = {path.name for path in folder.glob("tensors-*.safetensors")}
        for index, line in enumerate(records):
            sha256 = line.pop("sha256", None)
            if line.get("stored") != index:
                self._load_line(index, line, None, set(), recorded=True)
                continue
            stored.discard(tensors_file(index))
            self._load_file(folder / tensors_file(index), index, line, sha256)
        stored.discard(tensors_file(len(self.records)))  # written when the training was killed, before its record
        if stored:
            raise DamagedTranscript(
                f"{MANIFEST} was cut after {len(self.records)} records: none is of {min(stored)}, which is there"
            )

    def _recorded_lines(self, lines: Sequence[str]) -> tuple[list[dict[str, Any]], int | None]:
        """The lines of records, and the number that the closing line states, if there is one; adds the omissions."""
        records: list[dict[str, Any]] = []
        closed = None
        for text in lines:
            try:
                line = json.loads(text)
            except ValueError:
                raise DamagedTranscript(
                    f"record {len(records)} is cut: want a line of JSON in {MANIFEST}, got {text[:40]!r}"
                ) from None
            if set(line) == {OMITTED}:
                self.omissions.append(_OMISSION.validate_python(line[OMITTED]))
            elif set(line) == {CLOSED} and closed is None:
                closed = line[CLOSED]
            else:
                records.append(line)
        return records, closed

    def _load_file(self, path: Path, index: int, line: dict[str, Any], sha256: str) -> None:
        """Adds the record of one line, with the tensors of this file, which must have this checksum."""
        try:
            with safe_open(path, framework="pt") as file:
                unread = set(file.keys())
                self._load_line(index, line, file, unread, recorded=True)
        except (OSError, SafetensorError) as error:
            raise DamagedTranscript(f"record {index}: want its tensors in {path.name}, got: {error}") from None
        artifact = self.kept[index]
        if unread or tensors_digest(artifact.tensors()) != sha256:
            raise DamagedTranscript(f"record {index}: want the tensors of {path.name} as they were written, got others")
        if artifact.nbytes <= SMALL:  # a process can map only so many files
            self.kept[index] = artifact.map(torch.clone)

    def _load_line(self, index: int, line: dict[str, Any], file: Any, unread: set[str], recorded: bool = False) -> None:
        """Adds the record of one line, with its tensors of the open file; their keys are taken from `unread`.

        Only a recording may have kinds that fdgpriv does not know, and values that are not finite.
        """
        record = _parsed_record(index, line)
        forms = record.shapes, record.dtypes
        shapes, dtypes = self._forms.setdefault(repr(forms), forms)
        self.records.append(replace(record, shapes=shapes, dtypes=dtypes))
        stored = line["stored"]
        if stored is None:
            return
        artifacts = self.kept if line["whole"] else self.small
        if not isinstance(stored, int) or (stored != index and stored not in artifacts):
            raise DamagedTranscript(f"record {index}: stored wants the index of an earlier record, got {stored!r}")
        if record.kind not in Artifact.kinds and not recorded:
            raise DamagedTranscript(f"record {index}: want a kind of {', '.join(Artifact.kinds)}; got {record.kind!r}")
        if stored != index:
            artifacts[index] = artifacts[stored]
        else:
            names = [name for name in record.shapes if line["whole"] or f"{index}/{name}" in unread]
            unread -= {f"{index}/{name}" for name in names}
            tensors = {name: file.get_tensor(f"{index}/{name}") for name in names}
            artifact = _loaded_artifact(index, record, tensors, line["facts"])
            if not recorded and (name := artifact.not_finite()) is not None:
                raise DamagedTranscript(f"record {index}: {name} holds NaN or an infinity")
            artifacts[index] = artifact.in_file(SMALL) if self.keep == VIEWS else artifact
        if line["whole"]:
            _check_record(index, record, artifacts[index])


def _parsed_record(index: int, line: dict[str, Any]) -> Record:
    """The record of a manifest's line; DamagedTranscript if a field is missing, unknown or of another type."""
    if set(line) != {"record", "facts", "stored", "whole"}:
        raise DamagedTranscript(f"record {index}: want record, facts, stored, whole; got {', '.join(sorted(line))}")
    unknown = set(line["record"]) ^ {f.name for f in fields(Record)}
    if unknown:
        raise DamagedTranscript(f"record {index}: unknown or missing {', '.join(sorted(unknown))}")
    try:
        return _RECORD.validate_python(line["record"])
    except ValidationError as error:
        first = error.errors()[0]
        raise DamagedTranscript(f"record {index}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _loaded_artifact(index: int, record: Record, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Artifact:
    """The artifact of these tensors; DamagedTranscript if they have other shapes or dtypes than the record states."""
    for name, tensor in tensors.items():
        shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if (shape, dtype) != (record.shapes[name], record.dtypes.get(name)):
            raise DamagedTranscript(f"record {index}: {name} wants {record.shapes[name]}, got {shape} {dtype}")
    artifact_class = Artifact.kinds.get(record.kind) or named_tensors(record.kind)
    return artifact_class.build(tensors, facts)


def _check_record(index: int, record: Record, artifact: Artifact) -> None:
    """Raises DamagedTranscript if the record states other facts of the artifact than it has."""
    facts_of_transfer = (record.sender, record.receiver, record.verb, record.samples, record.clients)
    relay_round = max(record.round, artifact.round) if record.relayed else None
    actual = vars(Record.of(artifact, *facts_of_transfer, relay_round))
    for name, stated in vars(record).items():
        if stated != actual[name]:
            raise DamagedTranscript(f"record {index}: {name} wants {actual[name]}, as stored; got {stated}")


def tensors_file(index: int) -> str:
    """The name of the file with the tensors of a recording's record INDEX."""
    return f"tensors-{index:08d}.safetensors"


def manifest_line(
    record: Record, facts: dict[str, Any] | None, stored: int | None, whole: bool = True
) -> dict[str, Any]:
    """The line of one record.

    Args:
        record: The record.
        facts: Of the artifact; None if it is not stored.
        stored: The index of the record with which its tensors are stored; None if they are not.
        whole: Whether all of its tensors are stored, not only small ones.
    """
    return {"record": vars(record), "facts": facts, "stored": stored, "whole": whole}


def _lines(folder: Path) -> list[str]:
    """The whole lines of the manifest: a training that is killed may leave a part of a line at the end."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedTranscript(f"{MANIFEST} is not text: byte {error.start} is not UTF-8") from None
    return text.rpartition("\n")[0].splitlines()


def _small_part(artifact: TensorState) -> TensorState:
    """The artifact with its small tensors alone."""
    small = {name: tensor.clone() for name, tensor in artifact.tensors().items() if tensor.nbytes <= SMALL_TENSOR}
    return artifact.build(small, artifact.facts())


def unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, copied where they are not contiguous or share memory, which safetensors does not write."""
    separate, seen = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        is_separate = tensor.is_contiguous() and memory not in seen
        separate[name] = tensor if is_separate else tensor.clone(memory_format=torch.contiguous_format)
        seen.add(memory)
    return separate


def _printable(text: str) -> str:
    """`text` with non-printable characters replaced by ``?``."""
    return "".join(c if c.isprintable() else "?" for c in text)


_RECORD, _OMISSION = TypeAdapter(Record), TypeAdapter(Omission)
