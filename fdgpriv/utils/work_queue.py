"""Works on items by several workers; the loss of one costs its item, where concurrent.futures gives up all of them.

What a worker is, a process of this machine or a task on another one, is up to the subclasses.
"""

import copy
import pickle
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")

PrintLine = Callable[[str], None]
SAID, RAISED, DONE, ENDED = "said", "raised", "done", "ended"  # what a worker reports


@dataclass(frozen=True)
class Died:
    """What stands for a result where the worker ended without one; `how` is in words."""

    how: str


class Worker(ABC, Generic[T]):
    """Takes items one after the other.

    Attributes:
        item: What it works on; None where it was told to end.
        stopped: Whether it was told to end before it has finished that.
    """

    item: T | None = None
    stopped: bool = False

    def give(self, item: T | None) -> None:
        """Sends it an item, or None to end."""
        self.item = item
        self._send(item)

    def stop(self) -> None:
        """Tells it to end, with what has finished of its item."""
        self.stopped = True
        self._send(None)

    @abstractmethod
    def _send(self, item: T | None) -> None: ...

    @abstractmethod
    def kill(self) -> None:
        """Ends it at once."""


@dataclass(eq=False)
class WorkQueue(ABC, Generic[T, R]):
    """Up to `count` workers that take items one after the other.

    Attributes:
        make: Called in a worker, with a function that prints a line in the parent; returns the function of an item. It may
            return what has finished, or raise KeyboardInterrupt, where the worker is stopped.
        count: Number of workers.
        say: Prints a line.
        done: Called in the parent with each item and its result, in the order in which they finish.
        tries: How often an item is tried whose worker is lost.
    """

    make: Callable[[PrintLine], Callable[[T], R]]
    count: int
    say: PrintLine
    done: Callable[[T, R | Died], None]
    tries: ClassVar[int] = 1
    _waiting: deque[T] = field(default_factory=deque, init=False)
    _workers: list[Worker[T]] = field(default_factory=list, init=False)
    _losses: Counter[T] = field(default_factory=Counter, init=False)

    @abstractmethod
    def _new_worker(self) -> Worker[T]:
        """A worker that waits for its first item."""

    @abstractmethod
    def _event(self) -> tuple[Worker[T], str, Any]:
        """Waits for the next report: the worker, `SAID`, `RAISED`, `DONE` or `ENDED`, and the line, error, result or reason."""

    def run(self, items: Sequence[T]) -> None:
        """Works on all items.

        Raises:
            KeyboardInterrupt: After Ctrl-C, once the workers have returned what had finished.
            Exception: That an item raised; the other workers are killed.
        """
        self._waiting.extend(items)
        try:
            for _ in range(min(self.count, len(items))):
                self._start()
            self._listen()
        except KeyboardInterrupt:
            self._waiting.clear()
            for worker in self._workers:
                worker.stop()
            self._listen()
            raise
        finally:
            for worker in self._workers:
                worker.kill()

    def _start(self) -> None:
        worker = self._new_worker()
        self._workers.append(worker)
        worker.give(self._waiting.popleft())

    def _listen(self) -> None:
        """Until every worker has ended."""
        while self._workers:
            worker, kind, value = self._event()
            if kind == SAID:
                self.say(value)
            elif kind == RAISED:
                raise value
            elif kind == DONE:
                item, worker.item = worker.item, None
                assert item is not None
                worker.give(self._waiting.popleft() if self._waiting and not worker.stopped else None)
                self.done(item, value)
            else:
                self._ended(worker, value)

    def _ended(self, worker: Worker[T], how: str) -> None:
        self._workers.remove(worker)
        if worker.item is not None and not worker.stopped:
            self._losses[worker.item] += 1
            if self._losses[worker.item] < self.tries:
                self.say(f"{worker.item}: {how}; it is tried again")
                self._waiting.append(worker.item)
            else:
                self.done(worker.item, Died(how))
        if self._waiting:
            self._start()


def portable(error: Exception) -> Exception:
    """The error with its traceback as a note; a RuntimeError where it cannot be sent to another process."""
    trace = "".join(traceback.format_exception(error))
    try:
        sendable = copy.copy(error)  # rebuilt in the same way as by pickle
        pickle.dumps(sendable)
    except Exception:
        sendable = RuntimeError(str(error))
    sendable.add_note(trace)
    return sendable
