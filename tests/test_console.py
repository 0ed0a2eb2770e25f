"""The progress bar tells how much time is left, from the steps so far."""

from io import StringIO

from rich.console import Console

from fdgpriv.utils.console import ProgressLog


def test_the_bar_says_how_long_it_still_takes() -> None:
    """Two of five steps took twenty seconds, so that three take thirty."""
    log, now = ProgressLog(), [0.0]
    log._progress.get_time = lambda: now[0]
    task = log.task("attacking", 5)
    for _ in range(2):
        now[0] += 10
        log.step(task)
    page = Console(file=StringIO(), width=120, record=True)
    page.print(log._progress.make_tasks_table(log._progress.tasks))
    assert "2/5 0:00:20 left 0:00:30" in page.export_text()
