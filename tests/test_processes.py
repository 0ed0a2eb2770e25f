"""Several processes: all results, one death costs one item, an error ends all, and after Ctrl-C what is finished is kept."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdgpriv.utils.processes import Processes
from fdgpriv.utils.work_queue import Died, PrintLine

ROOT = Path(__file__).parents[1]


class Unsendable(Exception):
    """Cannot be rebuilt from its message alone."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def worker(say: PrintLine) -> Callable[[str], str]:
    """What a process does with an item: a word, and after a colon its argument."""
    say("ready")

    def work(item: str) -> str:
        word, _, value = item.partition(":")
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "leave":
            os._exit(int(value))
        if word == "raise":
            raise ValueError("want another item")
        if word == "raise unsendable":
            raise Unsendable(1, 2)
        if word == "wait":
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                return "part"
        return word.upper()

    return work


def run(
    items: list[str], count: int, done: Callable[[str, Any], None] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The results by item, and the lines that were said."""
    found: dict[str, Any] = {}
    said: list[str] = []

    def keep(item: str, result: Any) -> None:
        found[item] = result
        if done is not None:
            done(item, result)

    Processes(worker, count, said.append, keep).run(items)
    return found, said


@pytest.mark.parametrize("count", [1, 9])
def test_every_item_has_its_result(count: int) -> None:
    found, said = run(["a", "b", "c"], count)
    assert found == {"a": "A", "b": "B", "c": "C"}
    assert said == ["ready"] * min(count, 3)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_death_costs_one_item(count: int) -> None:
    found, _ = run(["a", "die", "b", "leave:3", "c"], count)
    assert found == {
        "a": "A",
        "b": "B",
        "c": "C",
        "die": Died("its process was ended by SIGKILL"),
        "leave:3": Died("its process ended early, with exit code 3"),
    }


def test_an_error_ends_all_processes() -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError) as caught:
        run(["wait", "raise"], 2)
    assert str(caught.value) == "want another item"
    assert "in work" in "".join(caught.value.__notes__)
    assert time.perf_counter() - start < 30
    with pytest.raises(RuntimeError, match="1 and 2"):
        run(["raise unsendable"], 1)


def test_an_interrupt_begins_no_item() -> None:
    def interrupted(item: str, result: Any) -> None:
        if item == "a":
            raise KeyboardInterrupt

    found: dict[str, Any] = {}
    with pytest.raises(KeyboardInterrupt):
        run(
            ["wait", "a", "b", "c"],
            2,
            lambda item, result: (found.update({item: result}), interrupted(item, result))[1],
        )
    assert found.pop("b", "part") in ("part", "B")  # it may have been given, and even finished, before the interrupt
    assert found in ({"a": "A", "wait": "part"}, {"a": "A"})  # nothing where it was interrupted before it began


PARENT = """
import sys, time
sys.path.insert(0, "tests")
from test_processes import worker
from fdgpriv.utils.processes import Processes
if __name__ == "__main__":
    Processes(worker, 2, lambda said: print(said, flush=True), lambda *given: None).run(["wait", "wait:2"])
"""


def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        parent.kill()
    end = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < end
        time.sleep(0.1)
