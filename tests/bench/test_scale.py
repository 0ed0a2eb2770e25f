"""What many clients cost, and a framework around the training, as ratios within one run: `make bench` prints them."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from conftest import with_extra

pytestmark = pytest.mark.bench
HERE = Path(__file__).parent
REPEATS = 3


def printed(script: str, *arguments: str) -> str:
    """What a script of this folder prints last, in a process of its own."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def test_a_thousand_clients(capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 clients against 10 with the same images in batches of the same size, in processor time and memory."""
    runs = [[json.loads(printed("_scale.py", count)) for count in ("10", "1000")] for _ in range(REPEATS)]
    with capsys.disabled():
        for name, goal in (("s", "at most 1.2"), ("memory_mb", "at most 1.3"), ("files_mb", "no goal")):
            few, many = (median(run[i][name] for run in runs) for i in (0, 1))
            print(f"\n1,000 clients / 10, {name}: {many:.0f} / {few:.0f} = {many / few:.2f} (goal: {goal})", end="")


@with_extra("flower", "flwr")
@pytest.mark.parametrize("rounds", ["3", "20"])
def test_whole_runs_against_flower(rounds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten clients: the local engine, the same over Flower, and Flower's own FedAvg, one after the other."""
    ways = ("local", "ours", "flower")
    runs = [[float(printed("_whole_run.py", way, rounds)) for way in ways] for _ in range(REPEATS)]
    faster = median(flower / local for local, _, flower in runs)
    slower = median(ours / flower for _, ours, flower in runs)
    seconds = ["  ".join(f"{s:.1f}" for s in run) for run in runs]
    with capsys.disabled():
        print(f"\n{rounds} rounds, seconds of local, ours over Flower, Flower's own FedAvg: {'; '.join(seconds)}")
        print(f"Flower's own / local: {faster:.2f} (goal: at least 3)")
        print(f"ours over Flower / Flower's own: {slower:.2f} (goal: at most 1.1)")
