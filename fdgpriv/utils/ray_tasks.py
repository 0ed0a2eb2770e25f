"""A work queue whose workers are tasks on the machines of a Ray cluster."""

import io
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, ClassVar

from fdgpriv.utils import ray_environment as ray_environment
from fdgpriv.utils.extras import optional
from fdgpriv.utils.work_queue import DONE, ENDED, RAISED, SAID, PrintLine, R, T, Worker, WorkQueue, portable

_TIMEOUT_S = 5  # until a cluster must answer; Ray itself tries for minutes


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module `ray`, connected to the cluster at this address as long as the context lasts.

    Raises:
        ValueError: Ray is not installed, or there is no cluster of which this machine is part.
    """
    ray = optional("ray", "ray", "--ray")
    with redirect_stdout(io.StringIO()):  # Ray prints there what is reported here in one line
        try:
            _reach(address)
            ray.init(address, logging_level=logging.CRITICAL, log_to_driver=False)
        except (Exception, SystemExit) as error:
            wanted = f"--ray: want a Ray cluster that this machine is part of, got none at {address}"
            raise ValueError(f"{wanted}: {' '.join(str(error).split())[:200]}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def _reach(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT, for which Ray itself would wait for minutes, and end this process."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=_TIMEOUT_S).close()


@dataclass(eq=False)
class RayTasks(WorkQueue[T, R]):
    """A work queue with a task for each item. A task that is stopped is killed, as Ray reaches no main thread by signals.

    Attributes:
        ray: The connected module.
        cores, gpus: That one task takes.
        packed: Called in the parent; what the function of an item gets in place of the item.
    """

    tries: ClassVar[int] = 2
    ray: Any = field(kw_only=True)
    cores: int = field(kw_only=True)
    gpus: int = field(kw_only=True)
    packed: Callable[[T], Any] = field(kw_only=True)

    def _new_worker(self) -> "_Tasks[T]":
        remote = self.ray.remote(num_cpus=self.cores, num_gpus=self.gpus, max_retries=0)(_served)
        launch = remote.options(num_returns="streaming").remote
        return _Tasks[T](lambda item: launch(self.make, self.packed(item)), self.ray.cancel)

    def _event(self) -> tuple[Worker[T], str, Any]:
        by_task = {}
        for worker in self._workers:
            assert isinstance(worker, _Tasks)
            if worker.task is None:
                return worker, ENDED, "stopped"
            by_task[worker.task] = worker
        (task, *_), _ = self.ray.wait(list(by_task), num_returns=1)
        try:
            kind, value = self.ray.get(next(task))
        except (StopIteration, self.ray.exceptions.RayError) as error:
            return by_task[task], ENDED, f"its worker was lost ({type(error).__name__})"
        return by_task[task], kind, value


@dataclass(eq=False)
class _Tasks(Worker[T]):
    """Runs one task after the other; `task` is the generator of what the present one reports."""

    launch: Callable[[T], Any]
    cancel: Callable[..., None]
    task: Any = None

    def _send(self, item: T | None) -> None:
        if self.stopped:
            self.kill()
        self.task = None if item is None else self.launch(item)

    def kill(self) -> None:
        if self.task is not None:
            with suppress(Exception):  # it has ended
                self.cancel(self.task, force=True)


def _served(make: Callable[[PrintLine], Callable[[T], R]], item: T) -> Iterator[tuple[str, Any]]:
    """In a task: the lines that the work on this item prints, and at the end its result or the error that it raised."""
    reports = SimpleQueue[tuple[str, Any]]()

    def work() -> None:
        try:
            reports.put((DONE, make(lambda text: reports.put((SAID, text)))(item)))
        except Exception as error:
            reports.put((RAISED, portable(error)))
        except BaseException:
            os._exit(1)

    threading.Thread(target=work, daemon=True).start()
    kind = SAID
    while kind == SAID:
        kind, value = reports.get()
        yield kind, value
