"""Says what is going on: a live line on a terminal, plain lines elsewhere; always on stderr, never in the results."""

import sys
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class ProgressLog(AbstractContextManager["ProgressLog"]):
    """Tells of tasks and their steps; safe to call from several threads."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._live = self._console.is_terminal
        self._start = perf_counter()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )

    def __enter__(self) -> "ProgressLog":
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()

    def task(self, name: str, steps: int) -> TaskID:
        """Begin a task of so many steps; returns its handle."""
        return self._progress.add_task(name, total=steps)

    def step(self, task: TaskID, text: str = "") -> None:
        """One step of the task is done; `text` is told where nobody watches a live line."""
        self._progress.advance(task)
        if text and not self._live:
            self.say(text)

    def done(self, task: TaskID, text: str) -> None:
        """The task is over."""
        self._progress.update(task, visible=False)
        self.say(text)

    def say(self, text: str) -> None:
        """One line; none where it is quiet."""
        if self._quiet:
            return
        if self._live:
            self._progress.console.print(f"[dim]{perf_counter() - self._start:6.1f} s[/dim]  ", end="", markup=True)
            self._progress.console.print(text, markup=False)
        else:
            sys.stderr.write(f"{perf_counter() - self._start:6.1f} s  {text}\n")
            sys.stderr.flush()
