"""A work queue whose workers are processes of this machine.

The parent learns by which signal one died. Processes are spawned. They ignore Ctrl-C; the parent asks them to stop by
SIGTERM, which is a KeyboardInterrupt to them, and they end with the parent.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from fdgpriv.utils.work_queue import DONE, ENDED, RAISED, SAID, PrintLine, R, T, Worker, WorkQueue, portable


@dataclass(eq=False)
class Processes(WorkQueue[T, R]):
    """A work queue with a process for each worker."""

    def _new_worker(self) -> "_Process[T]":
        connection, other = get_context("spawn").Pipe()
        process = get_context("spawn").Process(target=_serve, args=(self.make, other), daemon=True)
        with _interrupts_ignored():  # also by the process, from its first instruction on
            process.start()
        other.close()
        return _Process[T](process, connection)

    def _event(self) -> tuple[Worker[T], str, Any]:
        by_connection = {worker.connection: worker for worker in self._workers if isinstance(worker, _Process)}
        connection = wait(list(by_connection))[0]
        assert isinstance(connection, Connection)
        worker = by_connection[connection]
        try:
            kind, value = connection.recv()
        except (EOFError, OSError):
            connection.close()
            worker.process.join()
            return worker, ENDED, _how(worker.process.exitcode)
        return worker, kind, value


@dataclass(eq=False)
class _Process(Worker[T]):
    """One process, and the connection to it."""

    process: SpawnProcess
    connection: Connection

    def _send(self, item: T | None) -> None:
        with suppress(OSError):  # it has died, which is noticed when its answer is read
            self.connection.send(item)

    def stop(self) -> None:
        super().stop()
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _serve(make: Callable[[PrintLine], Callable[[T], R]], connection: Connection) -> None:
    """The main function of a process."""
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lock = threading.Lock()

    def send(kind: str, value: Any) -> None:
        with lock:
            connection.send((kind, value))

    try:
        work = make(lambda text: send(SAID, text))
        while (item := connection.recv()) is not None:
            send(DONE, work(item))
    except KeyboardInterrupt:
        pass
    except Exception as error:
        send(RAISED, portable(error))


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


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
