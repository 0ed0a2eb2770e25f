"""Progress messages on stderr: a live progress bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SPEED_PERIOD = 600.0  # seconds of which the steps count for the time that is left: attacks are steps of minutes


class ProgressLog(AbstractContextManager["ProgressLog"]):
    """Displays tasks and their steps; thread-safe.

    Args:
        quiet: Print nothing.
        to: Receives the lines, without times, in place of stderr.
    """

    def __init__(self, quiet: bool = False, to: Callable[[str], None] | None = None) -> None:
        self._quiet, self._to = quiet, to
        watched = sys.stderr.isatty()  # FORCE_COLOR and the like make no terminal of a file
        self._console = Console(stderr=True, highlight=False, quiet=quiet or to is not None, force_terminal=watched)
        self._live = watched and self._console.is_terminal and to is None
        self._start = perf_counter()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            speed_estimate_period=SPEED_PERIOD,
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
        """Start a task with this many steps; returns its handle."""
        return self._progress.add_task(name, total=steps)

    def step(self, task: TaskID, text: str = "") -> None:
        """Advance the task by one step; `text` is printed unless a live progress bar is shown."""
        self._progress.advance(task)
        if text and not self._live:
            self.say(text)

    def done(self, task: TaskID, text: str) -> None:
        """End the task and print `text`."""
        self._progress.update(task, visible=False)
        self.say(text)

    def counter(self, name: str) -> Callable[[int, int], None]:
        """A function of (done, total) that shows a task from its first call to its last, where done is total.

        Without a live progress bar a task of less than a second prints nothing.
        """
        tasks: list[TaskID] = []
        start, has_printed = perf_counter(), False

        def count(done: int, total: int) -> None:
            nonlocal has_printed
            if not tasks:
                tasks.append(self.task(name, total))
            self._progress.update(tasks[0], completed=done, visible=done < total)
            if perf_counter() > start + 1 and not self._live and (not has_printed or done == total):
                has_printed = True
                self.say(f"{name}: {done:,} of {total:,}")

        return count

    def say(self, text: str) -> None:
        """Print one line with the elapsed time, unless quiet."""
        if self._quiet:
            return
        if self._to is not None:
            self._to(text)
        elif self._live:
            self._progress.console.print(f"[dim]{perf_counter() - self._start:6.1f} s[/dim]  ", end="", markup=True)
            self._progress.console.print(text, markup=False)
        else:
            sys.stderr.write(f"{perf_counter() - self._start:6.1f} s  {text}\n")
            sys.stderr.flush()
