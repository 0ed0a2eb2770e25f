"""Server loops that write a checkpoint before each pass and continue at the first pass that was not completed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.wire import Wire


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
    """

    checkpoints: Checkpoints
    state: Mapping[str, Any]
    wire: Wire
    settle: Callable[[], None]
    device: torch.device
    complete: bool
    _asked: bool = False  # since the last checkpoint
    _inside: bool = False

    def __call__(self, name: str, count: int, server_state: Mapping[str, object]) -> Iterator[int]:
        """The remaining passes of the loop `name`; see `Federation.rounds`."""
        state, start, saved = {"server": dict(server_state), **self.state}, 0, self.checkpoints.saved
        if saved is not None:
            if saved.stage != name:
                return  # done before the checkpoint
            self.wire.transcript = self.checkpoints.load(saved, state, self.device)
            start, self.checkpoints.saved, self._asked = saved.index, None, False
        for index in range(start, count):
            if self._asked and self.complete and self.checkpoints.due:
                self.settle()
                self.checkpoints.save(name, index, state, self.wire.transcript)
                self._asked = False
            self._inside = True
            yield index
        self._inside = False

    def on_ask(self) -> None:
        """Notes a request of the server. After one outside its loops nothing is stored: it would be repeated on resuming."""
        if self.checkpoints.saved is not None:
            self.checkpoints.refuse(f"it continues with {self.checkpoints.saved.stage}, a loop that this server lacks")
        self._asked = True
        self.complete = self.complete and self._inside
