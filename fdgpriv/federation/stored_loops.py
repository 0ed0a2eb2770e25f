"""The loops of a server whose training is stored before each pass, and continues at the pass that was not completed."""

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
        checkpoints: Writes and reads them.
        state: The participants' state besides the server's; loaded after it.
        wire: Its transcript is stored as well.
        settle: Called before a checkpoint is written; afterwards the state does not change.
        device: Of tensors that are not on the CPU.
        complete: Whether `state` is all that the participants hold; otherwise nothing is stored.
    """

    checkpoints: Checkpoints
    state: Mapping[str, Any]
    wire: Wire
    settle: Callable[[], None]
    device: torch.device
    complete: bool
    _asked: bool = False  # since the last checkpoint
    _inside: bool = False

    def __call__(self, name: str, count: int, held: Mapping[str, object]) -> Iterator[int]:
        """The passes of the loop `name` that are still to be done; see `Federation.rounds`."""
        state, start, saved = {"server": dict(held), **self.state}, 0, self.checkpoints.saved
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
        """Notes a request of the server; one outside of its loops would be repeated, so that nothing is stored."""
        if self.checkpoints.saved is not None:
            self.checkpoints.refuse(f"it continues with {self.checkpoints.saved.stage}, of which there is no such loop")
        self._asked = True
        self.complete = self.complete and self._inside
