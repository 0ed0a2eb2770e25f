"""Checkpoints of a training between rounds: an interrupted one continues with results equal to an uninterrupted one's.

A checkpoint is the folder ``checkpoint-N`` with the transcript so far and all tensors, and ``checkpoint.json``, which is
written last and holds the SHA-256 of the other files. The folder of the previous checkpoint is removed afterwards.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NoReturn

import torch
from pydantic import Field, JsonValue, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file

from fdgpriv.federation.state import StateDecoder, StateEncoder
from fdgpriv.federation.transcript import MANIFEST, TENSORS, Transcript
from fdgpriv.utils.checksum import DamagedFile, digest, read_json, write_json, write_tensors
from fdgpriv.utils.records import Amount, Count, Entry

INDEX, STATE = "checkpoint.json", "state.safetensors"
TRIAL = "checkpoint-trial"  # of the folder of a checkpoint that is only checked
COST = 0.05  # largest share of the time that is spent on writing
FIRST = 0.05  # assumed seconds of the first checkpoint, so that none is written in the first second


class Saved(Entry):
    """The content of ``checkpoint.json``.

    Attributes:
        training: What is trained, by name of the setting; a checkpoint of another training is refused.
        folder: The name of the folder with the tensors and the transcript.
        stage, index: The server's next loop, and the next pass of it.
        train_s: Seconds of training so far.
        state: The participants' state, as `StateEncoder` encodes it.
        files: SHA-256 of the files in the folder.
    """

    training: dict[str, str]
    folder: str = Field(pattern=r"^checkpoint-[0-9]+$")
    stage: str
    index: Count
    train_s: Amount
    state: JsonValue
    files: dict[str, str]


def print_nothing(text: str) -> None:
    """Prints nothing."""


@dataclass
class Checkpoints:
    """The checkpoint of one training.

    Attributes:
        folder: The folder that it lies in.
        training: What is trained, by name of the setting.
        cost: Largest share of the time to spend on writing; a round that is too short for it is not stored.
        say: Prints a line.
        saved: The checkpoint to continue from, if there is one.
    """

    folder: Path
    training: Mapping[str, str]
    cost: float = COST
    say: Callable[[str], None] = print_nothing
    saved: Saved | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _earlier_s: float = field(default=0.0, init=False)
    _start: float = field(init=False)
    _next: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = perf_counter()
        self._next = self._start + FIRST / self.cost
        if not (self.folder / INDEX).is_file():
            self.remove()  # files of a checkpoint that was not completely written
            return
        saved = read_json(self.folder / INDEX, _SAVED)
        for name in {**self.training, **saved.training}:
            stored, current = saved.training.get(name), self.training.get(name)
            if stored != current:
                self.refuse(f"{name}: was {stored}, now {current}")
        if set(saved.files) != {STATE, MANIFEST, TENSORS}:
            self.refuse(f"want {STATE}, {MANIFEST} and {TENSORS}, got {', '.join(saved.files)}")
        for name, sha256 in saved.files.items():
            path = self.folder / saved.folder / name
            if not path.is_file() or digest(path) != sha256:
                self.refuse(f"{saved.folder}/{name} is not as it was written")
        self.saved, self._earlier_s, self._number = saved, saved.train_s, int(saved.folder.partition("-")[2])

    def trial(self) -> "Checkpoints":
        """Another checkpoint of this training, from which no interrupted training continues."""
        return Checkpoints(self.folder / TRIAL, self.training)

    def reread(self) -> "Checkpoints":
        """This checkpoint as a training that continues from it reads it."""
        return Checkpoints(self.folder, self.training)

    @property
    def train_s(self) -> float:
        """Seconds of training, those before an interruption included."""
        return self._earlier_s + perf_counter() - self._start

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the last checkpoint to afford another one."""
        return perf_counter() >= self._next

    def save(self, stage: str, index: int, state: object, transcript: Transcript) -> None:
        """Writes a checkpoint and removes the previous one."""
        start = perf_counter()
        self._number += 1
        encoder, folder = StateEncoder(), self.folder / f"checkpoint-{self._number}"
        encoded = encoder.encode(state)
        transcript.save(folder)
        write_tensors(folder / STATE, encoder.tensors)
        files = {name: digest(folder / name) for name in (STATE, MANIFEST, TENSORS)}
        saved = Saved(
            training=dict(self.training),
            folder=folder.name,
            stage=stage,
            index=index,
            train_s=self.train_s,
            state=encoded,
            files=files,
        )
        write_json(self.folder / INDEX, saved.model_dump_json().encode())
        self._remove_folders(folder.name)
        self._next = perf_counter() + (perf_counter() - start) / self.cost

    def load(self, saved: Saved, state: object, device: torch.device) -> Transcript:
        """Loads the checkpoint into `state`, of the same form as the saved one, and returns the transcript.

        Raises:
            DamagedFile: It does not fit.
        """
        folder = self.folder / saved.folder
        try:
            StateDecoder(load_file(folder / STATE), device).decode(saved.state, state)
            return Transcript.load(folder)
        except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            self.refuse(" ".join(str(error).split())[:200])

    def remove(self) -> None:
        """Removes the checkpoint, if there is one."""
        (self.folder / INDEX).unlink(missing_ok=True)
        self._remove_folders("")
        if self.folder.name == TRIAL:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_folders(self, keep: str) -> None:
        for folder in self.folder.glob("checkpoint-*"):
            if folder.name != keep:
                shutil.rmtree(folder, ignore_errors=True)

    def refuse(self, reason: str) -> NoReturn:
        """Raises DamagedFile with this reason."""
        index = self.folder / INDEX
        raise DamagedFile(
            f"want a checkpoint of this training in {index}; {reason}; "
            f"remove {index}, and --resume trains from the first round"
        ) from None


_SAVED = TypeAdapter(Saved)
