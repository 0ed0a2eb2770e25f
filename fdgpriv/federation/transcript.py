"""The transcript of a run: metadata of all exchanged artifacts, tensors of some, saved without pickle.

On disk a transcript is a folder: ``manifest.jsonl``, one record per line, and ``tensors.safetensors`` with the stored
tensors under the keys ``INDEX/NAME``. File names are fixed; nothing in the manifest is used as a path.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.parameters import ModelState, TensorState
from fdgpriv.federation.setup import KEEP
from fdgpriv.utils.checksum import write_tensors
from fdgpriv.utils.file_memory import LARGE
from fdgpriv.utils.files import write_text

MANIFEST, TENSORS = "manifest.jsonl", "tensors.safetensors"
SMALL = 65_536  # bytes; artifacts up to this size are always stored
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
        tensors = artifact.tensors()
        return cls(
            sender=sender,
            receiver=receiver,
            origin=artifact.client,
            verb=verb,
            round=artifact.round if round is None else round,
            kind=artifact.kind,
            level=artifact.level,
            layer=artifact.layer,
            shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
            dtypes={name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()},
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
        keep: ``ends`` stores small artifacts of all rounds and large ones of the first and last round, ``all`` stores
            all, ``small`` stores only small artifacts that are not tensors of a network.
        records: One per transfer.
        kept: The stored artifacts, by index of the record; large ones lie in mapped files.
    """

    keep: str = "ends"
    records: list[Record] = field(default_factory=list)
    kept: dict[int, Artifact] = field(default_factory=dict)
    # the last large artifact, and the same in a file: what several clients receive is written once
    _last: tuple[Artifact, Artifact] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.keep not in KEEP:
            raise ValueError(f"want keep to be one of {', '.join(KEEP)}, got {self.keep!r}")

    def add(self, record: Record, artifact: Artifact) -> Artifact:
        """Add one transfer; returns the artifact as it is stored, or itself if it is not."""
        index = len(self.records)
        self.records.append(record)
        if self.keep == "ends" and record.nbytes > SMALL:
            self._forget(record.round - int(record.sender == SERVER))
        if self.keep != "small" or (record.nbytes <= SMALL and not isinstance(artifact, TensorState)):
            artifact = self.kept[index] = artifact if artifact.nbytes < LARGE else self._in_file(artifact)
        return artifact

    def _forget(self, last: int) -> None:
        """Drops large artifacts of the rounds between the first and `last`.

        A round's are dropped when clients share in a later one: a final model that is only sent drops none.
        """
        first = self.records[0].round
        for i in [i for i, a in self.kept.items() if a.nbytes > SMALL and first < self.records[i].round < last]:
            del self.kept[i]

    def _in_file(self, artifact: Artifact) -> Artifact:
        if self._last is None or self._last[0] is not artifact:
            self._last = artifact, artifact.in_file()
        return self._last[1]

    def crossed(self, kind: str) -> bool:
        """Whether any artifact of this kind was transferred, stored or not."""
        return any(record.kind == kind for record in self.records)

    def of_kind(self, kind: str) -> Iterator[tuple[Record, Artifact | None]]:
        """Every transfer of an artifact of this kind, with the artifact if it is stored."""
        for index, record in enumerate(self.records):
            if record.kind == kind:
                yield record, self.kept.get(index)

    def models_sent(self, round: int, verb: str | None = None) -> dict[str, ModelState]:
        """By client, the first stored model that the server sent it in this round, with `verb` unless None."""
        found: dict[str, ModelState] = {}
        for record, artifact in self.of_kind(ModelState.kind):
            matches = record.round == round and record.origin == SERVER and verb in (None, record.verb)
            if matches and isinstance(artifact, ModelState):
                found.setdefault(record.receiver, artifact)
        return found

    def model_sent(self, round: int, verb: str | None = None) -> ModelState | None:
        """The global model of this round; None if it is not stored, or if clients received different models."""
        models = {id(model): model for model in self.models_sent(round, verb).values()}
        return next(iter(models.values())) if len(models) == 1 else None

    def save(self, folder: Path) -> None:
        """Write the transcript into `folder`, each file atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        owner: dict[int, int] = {}  # an artifact sent to several clients is written once
        lines: list[str] = []
        tensors: dict[str, Tensor] = {}
        for index, record in enumerate(self.records):
            artifact = self.kept.get(index)
            stored = None if artifact is None else owner.setdefault(id(artifact), index)
            if artifact is not None and stored == index:
                parts = artifact.tensors() if artifact.nbytes >= LARGE else _apart(artifact.tensors())
                tensors |= {f"{index}/{name}": tensor for name, tensor in parts.items()}
            facts = None if artifact is None else artifact.facts()
            lines.append(json.dumps({"record": asdict(record), "facts": facts, "stored": stored}))
        write_tensors(folder / TENSORS, tensors)
        write_text(folder / MANIFEST, "\n".join([json.dumps({"keep": self.keep}), *lines]) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The transcript in `folder`.

        Checks that records and tensors are consistent; `fdgpriv.training` checks the SHA-256 of the files.

        Raises:
            DamagedTranscript: The folder contains no valid transcript.
        """
        try:
            with safe_open(folder / TENSORS, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            head, *lines = (folder / MANIFEST).read_text(encoding="utf-8").splitlines()
            transcript = cls(keep=json.loads(head)["keep"])
            for index, line in enumerate(lines):
                transcript._load_line(index, json.loads(line), tensors)
            if tensors:
                raise DamagedTranscript(f"{TENSORS} holds {len(tensors)} tensors that no record names")
        except DamagedTranscript as error:
            raise DamagedTranscript(_printable(f"{folder}: {error}")) from None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
            reason = f"{folder}: not a whole transcript ({type(error).__name__}: {str(error)[:200]})"
            raise DamagedTranscript(_printable(reason)) from None
        return transcript

    def _load_line(self, index: int, line: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if set(line) != {"record", "facts", "stored"}:
            raise DamagedTranscript(f"record {index}: want record, facts, stored; got {', '.join(sorted(line))}")
        unknown = set(line["record"]) ^ {f.name for f in fields(Record)}
        if unknown:
            raise DamagedTranscript(f"record {index}: unknown or missing {', '.join(sorted(unknown))}")
        try:
            record = _RECORD.validate_python(line["record"])
        except ValidationError as error:
            first = error.errors()[0]
            raise DamagedTranscript(f"record {index}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        self.records.append(record)
        stored = line["stored"]
        if stored is None:
            return
        if not isinstance(stored, int) or (stored != index and stored not in self.kept):
            raise DamagedTranscript(f"record {index}: stored wants the index of an earlier record, got {stored!r}")
        if record.kind not in Artifact.kinds:
            raise DamagedTranscript(f"record {index}: want a kind of {', '.join(Artifact.kinds)}; got {record.kind!r}")
        if stored == index:
            own = {name: tensors.pop(f"{index}/{name}") for name in record.shapes}
            for name, tensor in own.items():
                shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
                if (shape, dtype) != (record.shapes[name], record.dtypes.get(name)):
                    raise DamagedTranscript(f"record {index}: {name} wants {record.shapes[name]}, got {shape} {dtype}")
            self.kept[index] = Artifact.kinds[record.kind].build(own, line["facts"])
            if (bad := self.kept[index].not_finite()) is not None:
                raise DamagedTranscript(f"record {index}: {bad} holds NaN or an infinity")
        else:
            self.kept[index] = self.kept[stored]
        kept = self.kept[index]
        told = (record.sender, record.receiver, record.verb, record.samples, record.clients)
        actual = asdict(Record.of(kept, *told, max(record.round, kept.round) if record.relayed else None))
        for name, stated in asdict(record).items():
            if stated != actual[name]:
                raise DamagedTranscript(f"record {index}: {name} wants {actual[name]}, as stored; got {stated}")


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies, since safetensors does not write shared memory."""
    return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}


def _printable(text: str) -> str:
    """`text` with non-printable characters replaced by ``?``."""
    return "".join(c if c.isprintable() else "?" for c in text)


_RECORD = TypeAdapter(Record)
