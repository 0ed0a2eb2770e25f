"""What each method costs over FedAvg, as ratios within one run. Prints; asserts nothing about time. `make bench`."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import pytest
from conftest import shortened

from fdgpriv import data
from fdgpriv.artifacts.artifact import Artifact, Message
from fdgpriv.config import AuditConfig
from fdgpriv.defense import Defense
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import Population, populate
from fdgpriv.federation.wire import Wire

pytestmark = pytest.mark.bench
CLIENTS, IMAGES, REPEATS, ROUNDS = 3, 400, 3, 2  # images of a domain, of which a client holds a third in the end
ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "stablefdg": ("stablefdg", {}),
    "ccst": ("ccst", {}),
    "ccst, K = 3": ("ccst", {"augmentation": 3}),
    "pardon": ("pardon", {}),
    "lsi": ("lsi", {}),
    "hfedf": ("hfedf", {}),
    "pfedhn": ("pfedhn", {}),
}
SHORT_STAGES = {"lsi": {"pretrain_epochs": 1, "inversion_steps": 1, "translator_steps": 1}}  # after the first repeat
PAPERS = {  # StableFDG, Table 6: seconds of a client's local update, ResNet-18 on PACS; it does not state CCST's K
    "stablefdg": "7.39 / 4.57 = 1.62",
    "ccst": "9.03 / 4.57 = 1.98, K not stated",
    "ccst, K = 3": "as above",
}
ONE_OFF_PAPERS = {"pardon": "3.3 s beside 8.67 s of a client's local training: 0.38 (section on overhead)"}


@dataclass(frozen=True)
class Seconds:
    """Of one round, by the clock and of the CPU, and of the one-off stages before the first, by the clock."""

    round: float
    cpu: float
    once: float


@dataclass
class Stopwatch(Wire):
    """A wire that notes when the server's asks begin, by the clock and in the process's CPU seconds."""

    first: str = ""
    asked: list[tuple[str, tuple[float, float]]] = field(default_factory=list)

    def down(self, client: str, verb: str, message: Sequence[Artifact], round: int | None = None) -> Message:
        if client == self.first:
            self.asked.append((verb, (perf_counter(), process_time())))
        return super().down(client, verb, message, round)

    def seconds(self) -> Seconds:
        """Of a round, from one ``fit`` to the next, and of what is asked only before the first."""
        (begin, cpu), *_, (end, cpu_end) = fits = [at for verb, at in self.asked if verb == "fit"]
        recurring = {verb for verb, at in self.asked if at >= fits[0]}
        once = [at for verb, (at, _) in self.asked if verb not in recurring]
        rounds = len(fits) - 1
        return Seconds((end - begin) / rounds, (cpu_end - cpu) / rounds, begin - once[0] if once else 0.0)


def timed(row: str, population: Population, federation: Federation, repeat: int) -> Seconds:
    name, settings = ROWS[row]
    settings = {**settings, **(SHORT_STAGES.get(name, {}) if repeat else {})}
    method = replace(AuditConfig().method(name), rounds=ROUNDS, **settings)  # type: ignore[type-var]
    sizes = {client: len(held) for client, held in population.clients.items()}
    wire = Stopwatch(sizes, Defense.named("none")(), first=federation.clients[0])
    LocalEngine(2).run(method, federation, population.clients, wire)
    return wire.seconds()


def spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):5.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def test_cost_of_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = shortened(data.load("digits"), IMAGES)
    population = populate(dataset, dataset.default_target, "single", CLIENTS, 0)
    federation = AuditConfig().checked().federation(dataset, list(population.clients), 0)
    timed("fedavg", population, federation, 0)  # warm
    found = [{row: timed(row, population, federation, repeat) for row in ROWS} for repeat in range(REPEATS)]
    images = sum(map(len, population.clients.values()))
    base = median(one["fedavg"].round for one in found)
    with capsys.disabled():
        print(f"\n{CLIENTS} clients, {images} images, default presets; FedAvg: {base:.2f} s a round")
        print(
            f"seconds a round / FedAvg's, median [range] of {REPEATS} interleaved repeats; then the same in CPU seconds"
        )
        for row in ROWS:
            clock = spread([one[row].round / one["fedavg"].round for one in found])
            cpu = spread([one[row].cpu / one["fedavg"].cpu for one in found])
            paper = f"   (paper: {PAPERS[row]})" if row in PAPERS else ""
            print(f"    {row:12} {clock}   {cpu}{paper}")
        print("one-off stages before the first round, in FedAvg rounds; measured once")
        for row in ROWS:
            if once := found[0][row].once:
                paper = f"   (paper: {ONE_OFF_PAPERS[row]})" if row in ONE_OFF_PAPERS else ""
                print(f"    {row:12} {once / base:5.2f} ({once:.1f} s){paper}")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read where Linux tells it")
def test_memory_of_the_hypernetworks_server(capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).with_name("_server_memory.py")
    with capsys.disabled():
        print("\nhfedf's server at its peak / bytes of theta: theta, gradient, Adam's two moments and average are 5;")
        print("    a gradient kept for each client would add their number")
        for clients in (3, 12):
            said = subprocess.run(
                [sys.executable, str(script), str(clients)], capture_output=True, text=True, check=True
            )
            print(f"    {clients:2} clients: {said.stdout.strip()}")
