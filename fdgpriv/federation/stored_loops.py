"""Server loops that write a checkpoint before each pass and continue at the first pass that was not completed."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import JsonValue
from torch import Tensor

from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.state import Resumable, StateEncoder
from fdgpriv.federation.wire import Wire
from fdgpriv.utils.failures import ends_the_run, one_line

_NOT_REPEATED = ("engine", "observer")  # times and evaluations, which the participants do not see
_SHOWN = 3  # differences that are named


class PassRepeated(BaseException):
    """Ends a training that repeats one pass; no participant should catch it.

    Args:
        digests: Of the state after the pass, by name.
    """

    def __init__(self, digests: Mapping[str, str]) -> None:
        self.digests = digests
        super().__init__("the pass is over")


@dataclass
class StoredLoops:
    """The loops of one server, with a checkpoint before each pass.

    Attributes:
        checkpoints: Writes and reads the checkpoints.
        state: The state of the other participants and the engine; loaded after the server's.
        wire: Its transcript is stored too.
        settle: Called before a checkpoint is written; afterwards the state does not change.
        device: Of tensors that are not on the CPU.
        complete: Whether `state` is all of the participants' state; otherwise nothing is stored.
        repeated: Repeats, with new participants, the pass that follows the checkpoint, and returns the digests of the state
            after it. The first checkpoint is then only a trial: where the pass ends otherwise, nothing is stored. None where
            the participants are known to be complete.
        only_one: End the training after one pass by `PassRepeated`.
    """

    checkpoints: Checkpoints
    state: Mapping[str, Any]
    wire: Wire
    settle: Callable[[], None]
    device: torch.device
    complete: bool
    repeated: Callable[[Checkpoints], Mapping[str, str]] | None = None
    only_one: bool = False
    _asked: bool = False  # since the last checkpoint
    _inside: bool = False
    _trial: Checkpoints | None = None

    def __call__(self, name: str, count: int, server_state: Mapping[str, object]) -> Iterator[int]:
        """The remaining passes of the loop `name`; see `Federation.rounds`."""
        state, start, saved = {"server": dict(server_state), **self.state}, 0, self.checkpoints.saved
        if saved is not None:
            if saved.stage != name:
                return  # done before the checkpoint
            self.wire.transcript = self.checkpoints.load(saved, state, self.device)
            start, self.checkpoints.saved, self._asked = saved.index, None, False
            self.repeated = None
        for index in range(start, count):
            if index > start:
                self._after_pass(name, state)
            if self._asked and self.complete and self.checkpoints.due:
                self.settle()
                self._save(name, index, state)
                self._asked = False
            self._inside = True
            yield index
        self._inside = False
        if start < count:
            self._after_pass(name, state)

    def _save(self, name: str, index: int, state: dict[str, Any]) -> None:
        """Writes a checkpoint; the first one as a trial, if it has to be checked."""
        if self.repeated is None:
            self.checkpoints.save(name, index, state, self.wire.transcript)
        else:
            self._trial = self.checkpoints.trial()
            self._trial.save(name, index, {**state, "observer": Resumable()}, self.wire.transcript)

    def _after_pass(self, name: str, state: Mapping[str, Any]) -> None:
        """Ends the training if only one pass is wanted; compares the state with that of the repeated pass after a trial."""
        if self.only_one:
            raise PassRepeated(_digests(state))
        if self._trial is None or self.repeated is None:
            return
        trial, self._trial = self._trial, None
        self.settle()
        try:
            digests, repeated = _digests(state), self.repeated(trial.reread())
            changed = [part for part in {**digests, **repeated} if digests.get(part) != repeated.get(part)]
        except Exception as error:
            if ends_the_run(error):
                raise
            changed = [one_line(error)]
        trial.remove()
        self.repeated = None
        if changed:
            self.complete = False
            self.checkpoints.say(
                f"no checkpoints: a pass of {name} that is repeated from one ends otherwise ({', '.join(changed[:_SHOWN])}); "
                "want all that changes in `checkpointed` of clients and in Federation.rounds, and random numbers from rng; "
                "until then an interrupted training begins at the first round"
            )

    def on_ask(self) -> None:
        """Notes a request of the server. After one outside its loops nothing is stored: it would be repeated on resuming."""
        if self.checkpoints.saved is not None:
            self.checkpoints.refuse(f"it continues with {self.checkpoints.saved.stage}, a loop that this server lacks")
        self._asked = True
        self.complete = self.complete and self._inside


def _digests(state: Mapping[str, Any]) -> dict[str, str]:
    """By name, the SHA-256 of each part of the participants' state."""
    parts: dict[str, object] = {}
    for group, content in state.items():
        if group in _NOT_REPEATED:
            continue
        if isinstance(content, Mapping):
            parts |= {f"{group}: {name}": part for name, part in content.items()}
        else:
            parts[group] = content
    return {name: _digest(part) for name, part in parts.items()}


def _digest(part: object) -> str:
    encoder = StateEncoder()
    encoded = encoder.encode(part)
    return hashlib.sha256(json.dumps(_with_values(encoded, encoder.tensors)).encode()).hexdigest()


def _with_values(encoded: JsonValue, tensors: Mapping[str, Tensor]) -> JsonValue:
    """The encoded state with the digest of each tensor in place of its name: which ones share memory does not count."""
    if isinstance(encoded, list):
        return [_with_values(entry, tensors) for entry in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if isinstance(name := encoded.get("tensor"), str) and "stride" in encoded:
        values = tensors[name].contiguous()
        data = values.flatten().view(torch.uint8).numpy().data
        return [str(values.dtype), list(values.shape), hashlib.sha256(data).hexdigest()]
    return {key: _with_values(entry, tensors) for key, entry in encoded.items()}
