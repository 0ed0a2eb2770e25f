"""Runs cells as tasks of a Ray cluster: in the run's folder if all machines share it, else in copies of its files.

Every machine has the same versions of fdgpriv and torch, and the dataset at the same path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import torch

from fdgpriv._version import __version__
from fdgpriv.cell_runner import CompletedCell
from fdgpriv.training import Cell, trained_file
from fdgpriv.utils.files import PART, write_bytes
from fdgpriv.utils.ray_tasks import RayTasks, connected
from fdgpriv.utils.work_queue import Died, PrintLine

MAX_CORES = 4  # of one task
MakeWork = Callable[
    [Path, int, PrintLine], Callable[[Cell], CompletedCell | None]
]  # folder, threads: as of `in_process`
Files = Mapping[str, bytes]
"""The content of files by name, relative to the folder of the run."""


@dataclass(frozen=True)
class Machine:
    """Facts about a machine of the cluster.

    Attributes:
        versions: Versions of fdgpriv and torch.
        shares: Whether it has the run's folder.
    """

    versions: str
    shares: bool


@dataclass(frozen=True)
class CellWithFiles:
    """A cell and its stored files."""

    cell: Cell
    files: Files


def run_on_cluster(
    address: str,
    cells: Sequence[Cell],
    make: MakeWork,
    out: Path,
    on_gpu: bool,
    say: PrintLine,
    done: Callable[[Cell, CompletedCell | Died | None], None],
) -> None:
    """Runs all cells on the cluster at this address; a cell whose task is lost is tried once more.

    Args:
        address: HOST:PORT, or auto.
        cells: The cells to run.
        make: As of `in_process`, given the folder and the number of threads of a task.
        out: The folder of the run, in which all files lie at the end.
        on_gpu: Whether a task takes a GPU.
        say: Prints a line.
        done: Called with the results of each cell, as soon as its files lie in `out`.

    Raises:
        ValueError: There is no such cluster, or a machine cannot work on this run.
    """
    with connected(address) as ray, _marked(out) as marker:
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        machines = _machines(ray, nodes, marker)
        is_shared = all(machine.shares for machine in machines)
        cores = min([MAX_CORES, *(int(node["Resources"]["CPU"]) for node in nodes)])
        say(f"Ray: {len(machines)} machines, {'one folder' if is_shared else 'files are copied'}")

        def stored(cell: Cell, outcome: tuple[CompletedCell | None, Files | None] | Died) -> None:
            if isinstance(outcome, Died):
                done(cell, outcome)
                return
            completed, files = outcome
            if files is not None:
                _replace(files, out, cell)
            done(cell, completed)

        def packed(cell: Cell) -> CellWithFiles:
            return CellWithFiles(cell, {} if is_shared else _files(out, cell))

        work: Any = partial(_work, make, marker if is_shared else None, cores)  # of packed cells
        RayTasks(work, len(cells), say, stored, ray=ray, cores=cores, gpus=int(on_gpu), packed=packed).run(cells)


@contextmanager
def _marked(out: Path) -> Iterator[Path]:
    """A temporary file in the folder of the run, by which other machines recognise the folder."""
    marker = out.absolute() / f".shared-{uuid4().hex}"
    marker.touch()
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)


def _machines(ray: Any, nodes: Sequence[Mapping[str, Any]], marker: Path) -> list[Machine]:
    """The facts about these nodes; ValueError if one cannot work on the run."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task, machines = ray.remote(num_cpus=0)(_machine), list[Machine]()
    for node in nodes:
        on_node = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        name = node["NodeManagerAddress"]
        try:
            machines.append(ray.get(on_node.remote(marker)))
        except Exception as error:
            reason = " ".join(str(error).split())[-200:]
            raise ValueError(f"--ray: want fdgpriv on each machine of the cluster, got on {name}: {reason}") from error
        if machines[-1].versions != _versions():
            raise ValueError(f"--ray: want {_versions()} on each machine, got {machines[-1].versions} on {name}")
    if not machines:
        raise ValueError("--ray: want a cluster with at least one core, got none")
    return machines


def _machine(marker: Path) -> Machine:
    """The facts about this machine."""
    return Machine(_versions(), marker.is_file())


def _versions() -> str:
    return f"fdgpriv {__version__} with torch {torch.__version__}"


def _work(
    make: MakeWork, marker: Path | None, threads: int, say: PrintLine
) -> Callable[[CellWithFiles], tuple[CompletedCell | None, Files | None]]:
    """For a task: a function that runs a cell in the marker's folder; without one, in a copy, whose files it returns."""

    def work(packed: CellWithFiles) -> tuple[CompletedCell | None, Files | None]:
        if marker is not None:
            if not marker.is_file():
                raise ValueError(f"--ray: want {marker.parent} on each machine of the cluster, got one without it")
            return make(marker.parent, threads, say)(packed.cell), None
        with TemporaryDirectory(prefix="fdgpriv-") as folder:
            copied = Path(folder)
            _replace(packed.files, copied, packed.cell)
            completed = make(copied, threads, say)(packed.cell)
            return completed, _files(copied, packed.cell)

    return work


def _files(out: Path, cell: Cell) -> Files:
    """The files of a cell in the folder of a run, all of which lie in folders of its name."""
    paths = [path for path in out.glob(f"*/{cell.folder}/**/*") if path.is_file() and path.suffix != PART]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


def _replace(files: Files, out: Path, cell: Cell) -> None:
    """Replaces the files of a cell in the folder of a run; the record of its training, which marks it as complete, is last."""
    last = trained_file(Path(), cell).as_posix()
    for name in sorted(files, key=lambda name: name == last):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out / name, files[name])
    for name in _files(out, cell).keys() - files.keys():
        (out / name).unlink()
