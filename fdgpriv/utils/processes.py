"""Works on items in several processes; the death of one costs its item, where concurrent.futures gives up all of them.

The parent learns by which signal it died, and prints the lines of all. Processes are spawned. They ignore Ctrl-C; the parent
asks them to stop by SIGTERM, which is a KeyboardInterrupt to them, and they end with the parent.
"""

import copy
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

PrintLine = Callable[[str], None]


@dataclass(frozen=True)
class Died:
    """What stands for a result where the process ended without one; `how` is in words."""

    how: str


@dataclass(eq=False)
class Processes(Generic[T, R]):
    """Up to `count` processes that take items one after the other.

    Attributes:
        make: Called once in each process, with a function that prints a line in the parent; returns the function of an item.
            After SIGTERM that function may return what has finished, or raise KeyboardInterrupt.
        count: Number of processes.
        say: Prints a line.
        done: Called in the parent with each item and its result, in the order in which they finish.
    """

    make: Callable[[PrintLine], Callable[[T], R]]
    count: int
    say: PrintLine
    done: Callable[[T, R | Died], None]
    _waiting: deque[T] = field(default_factory=deque, init=False)
    _workers: "dict[Connection, _Worker[T]]" = field(default_factory=dict, init=False)

    def run(self, items: Sequence[T]) -> None:
        """Works on all items.

        Raises:
            KeyboardInterrupt: After Ctrl-C, once the processes have returned what had finished.
            Exception: That an item raised; the other processes are killed.
        """
        self._waiting.extend(items)
        try:
            for _ in range(min(self.count, len(items))):
                self._start()
            self._listen()
        except KeyboardInterrupt:
            self._waiting.clear()
            for worker in self._workers.values():
                worker.stop()
            self._listen()
            raise
        finally:
            for worker in self._workers.values():
                worker.process.kill()
                worker.process.join()

    def _start(self) -> None:
        connection, other = get_context("spawn").Pipe()
        process = get_context("spawn").Process(target=_serve, args=(self.make, other), daemon=True)
        with _interrupts_ignored():  # also by the process, from its first instruction on
            process.start()
        other.close()
        worker = self._workers[connection] = _Worker[T](process, connection)
        worker.give(self._waiting.popleft())

    def _listen(self) -> None:
        """Until every process has ended."""
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                self._hear(self._workers[connection])

    def _hear(self, worker: "_Worker[T]") -> None:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            self._ended(worker)
            return
        if kind == "said":
            self.say(value)
        elif kind == "raised":
            raise value
        else:
            item, worker.item = worker.item, None
            assert item is not None
            worker.give(self._waiting.popleft() if self._waiting else None)
            self.done(item, value)

    def _ended(self, worker: "_Worker[T]") -> None:
        del self._workers[worker.connection]
        worker.connection.close()
        worker.process.join()
        if worker.item is not None and not worker.stopped:
            self.done(worker.item, Died(_how(worker.process.exitcode)))
        if self._waiting:
            self._start()


@dataclass(eq=False)
class _Worker(Generic[T]):
    """One process, and the item that it works on; None where it was told to end."""

    process: SpawnProcess
    connection: Connection
    item: T | None = None
    stopped: bool = False

    def give(self, item: T | None) -> None:
        self.item = item
        with suppress(OSError):  # it has died, which is noticed when its answer is read
            self.connection.send(item)

    def stop(self) -> None:
        self.stopped = True
        with suppress(OSError):
            self.connection.send(None)
        self.process.terminate()


def _serve(make: Callable[[PrintLine], Callable[[T], R]], connection: Connection) -> None:
    """The main function of a process."""
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lock = threading.Lock()

    def send(kind: str, value: Any) -> None:
        with lock:
            connection.send((kind, value))

    try:
        work = make(lambda text: send("said", text))
        while (item := connection.recv()) is not None:
            send("done", work(item))
    except KeyboardInterrupt:
        pass
    except Exception as error:
        send("raised", _portable(error))


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; a RuntimeError where it cannot be sent to another process."""
    trace = traceback.format_exc()
    try:
        portable = copy.copy(error)  # rebuilt in the same way as by pickle
        pickle.dumps(portable)
    except Exception:
        portable = RuntimeError(str(error))
    portable.add_note(trace)
    return portable


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended early, with exit code {code}"


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
