"""Estimates the time and memory of an audit from two timed rounds of each federation, and lists the attacks that apply.

Nothing is written. The time of attacks is scaled from recorded audits: their seconds for each evaluation, in units of the
seconds of one round of training in the same audit.
"""

import resource
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple, cast

import torch

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.cell_runner import CellRunner
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import BUDGET, Transcript
from fdgpriv.federation.upload import ClientFailed
from fdgpriv.federation.wire import Diverged, Wire
from fdgpriv.method import Method
from fdgpriv.training import Cell, PreparedCell
from fdgpriv.utils.console import ProgressLog

TIMED_ROUNDS = 2  # the first has additional artifacts that are sent once
TIMED_IMAGES, LEAST_TIMED = 24, 4  # of each client, at `REFERENCE_SIDE` and at the largest sides
# Seconds of one thread for one evaluation of an attack, by preset, in units of the wall time of one round.
EVALUATION_ROUNDS: Mapping[str, float] = {"quick": 2.0, "default": 5.0, "thorough": 16.0}
BUSY = 0.5  # share of processor time below which the machine had other work
SPREAD = 2.0  # factor between the estimated time of attacks and the ends of its range
# Memory of attacks in GB, by preset, for images of 32 pixels; it grows in proportion to their side.
ATTACK_MEMORY: Mapping[str, float] = {"quick": 0.6, "default": 3.5, "thorough": 3.5}
REFERENCE_SIDE = 32  # pixels


class _Stopped(Exception):
    """The timed rounds are over."""


@dataclass
class TimedWire(Wire):
    """A wire that notes when each round begins, and stops the training after `TIMED_ROUNDS`.

    A round begins when the server first sends its model, or a request without a model.

    Attributes:
        began: By round, the time and the processor time of this process, in seconds.
    """

    began: dict[int, tuple[float, float]] = field(default_factory=dict, init=False)

    def down(self, client: str, verb: str, message: Sequence[Artifact], round: int | None = None) -> Message:
        begun = {a.round for a in message if isinstance(a, ModelState) and a.client == SERVER}
        begun |= set() if message or round is None else {round}
        for number in begun:
            self.began.setdefault(number, _clocks())
        delivered = super().down(client, verb, message, round)
        if any(number >= TIMED_ROUNDS for number in begun):
            raise _Stopped
        return delivered


@dataclass(frozen=True)
class CellEstimate:
    """The time and storage of one cell, and the attacks that apply.

    Attributes:
        train_s: Seconds of training.
        attack_s: Seconds of attacks; None if no audit with the preset was recorded.
        idle: Share of the time that an idle machine would take, from the processor time of the timed rounds.
        transcript_bytes: Bytes that the transcript stores while attacks read it.
        applying: By attack, the kinds of artifact and the adversaries that it is evaluated on.
        not_applying: By attack that is not evaluated, the reason.
        failed: The reason why the training could not be timed; all other fields are then empty.
    """

    train_s: float = 0.0
    attack_s: float | None = None
    idle: float = 1.0
    transcript_bytes: int = 0
    applying: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    not_applying: Mapping[str, str] = field(default_factory=dict)
    failed: str | None = None


def estimate(config: AuditConfig, dataset: Dataset, cells: Sequence[Cell], workers: int, log: ProgressLog) -> list[str]:
    """The time and memory of the audit of these cells, in lines.

    Cells that differ only in target or seed are assumed to be equal.

    Args:
        config: Validated, with its targets.
        dataset: The dataset.
        cells: All cells of the audit.
        workers: Number of parallel threads.
        log: Prints progress.
    """
    counts = {name: len({getattr(cell, name) for cell in cells}) for name in ("method", "target", "seed", "defense")}
    axes = " x ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items())
    lines, estimates = [f"cells: {len(cells)} ({axes})", *_setup_lines(config, dataset)], []
    for cell in cells:
        if (cell.target, cell.seed) == (cells[0].target, cells[0].seed):
            log.say(f"timing {TIMED_ROUNDS} rounds of {cell.method}, defense {cell.defense}")
            estimates.append(_estimated(config, dataset, cell, workers))
            lines += [f"{cell.method}, defense {cell.defense}:", *(f"  {line}" for line in _cell_lines(estimates[-1]))]
    return [*lines, *_total_lines(config, dataset, estimates, len(cells) // len(estimates))]


def _setup_lines(config: AuditConfig, dataset: Dataset) -> list[str]:
    """What each method trains, on which images, with which target domains, in lines."""
    lines = []
    for spec in config.methods:
        setup = config.setup(spec, dataset.n_sources)
        network = ", ".join(config.network(spec, dataset.n_sources))
        lines.append(
            f"{spec}: network {network}; {setup.clients} clients ({setup.partition}), images of {dataset.image_size} pixels, "
            f"{config.method(spec).rounds} rounds; target {', '.join(config.targets)}"
        )
    return lines


def _timed_images(image_size: int) -> int:
    """Images of each client in the timed rounds: fewer where they are larger, so that the rounds take seconds."""
    return max(LEAST_TIMED, TIMED_IMAGES * REFERENCE_SIDE // max(image_size, REFERENCE_SIDE))


def _estimated(config: AuditConfig, dataset: Dataset, cell: Cell, workers: int) -> CellEstimate:
    """The estimate of one cell, from rounds on `_timed_images` images of each client."""
    prepared = PreparedCell.of(config, dataset, cell)
    clients, rounds = prepared.population.clients, prepared.method.rounds
    count = _timed_images(dataset.image_size)
    timed_clients = {name: _with_timed_images(data, count) for name, data in clients.items()}
    sizes = {name: len(data) for name, data in timed_clients.items()}
    wire = TimedWire(sizes, prepared.defense, Transcript("all"))
    try:
        time, processor_time = _timed(prepared, timed_clients, wire, workers)
    except (ClientFailed, Diverged) as error:
        return CellEstimate(failed=str(error))
    share = sum(sizes.values()) / sum(map(len, clients.values()))
    train_s, processor_s = time.of(rounds) / share, processor_time.of(rounds) / share
    cell_runner = CellRunner(config, dataset, Path(), ProgressLog(quiet=True), workers)
    applying, not_applying = _applying(cell_runner.evaluations(cell, prepared.evaluator(wire.transcript)))
    evaluation_rounds = EVALUATION_ROUNDS.get(config.preset)
    evaluation_s = None if evaluation_rounds is None else evaluation_rounds * time.round_s / share / workers
    sent = sum(record.nbytes for record in wire.transcript.records if record.round == TIMED_ROUNDS - 1)
    return CellEstimate(
        train_s=train_s,
        attack_s=None if evaluation_s is None else evaluation_s * sum(map(len, applying.values())),
        idle=min(1.0, processor_s / (workers * train_s)) if config.device == "cpu" else 1.0,
        transcript_bytes=min(BUDGET, sent * rounds),
        applying=applying,
        not_applying=not_applying,
    )


def estimate_recorded(
    config: AuditConfig, dataset: Dataset, cell: Cell, evaluator: Evaluator, round_s: float, workers: int
) -> list[str]:
    """The time and memory of the attacks on a recorded training, in lines; nothing is trained.

    Args:
        config, dataset, cell, workers: As of `estimate`.
        evaluator: Of the recorded training.
        round_s: Seconds in which its clients train for one round, on one core.
    """
    cell_runner = CellRunner(config, dataset, Path(), ProgressLog(quiet=True), workers)
    applying, not_applying = _applying(cell_runner.evaluations(cell, evaluator))
    evaluation_rounds = EVALUATION_ROUNDS.get(config.preset)
    count = sum(map(len, applying.values()))
    attack_s = None if evaluation_rounds is None else evaluation_rounds * round_s / workers * count
    recorded = CellEstimate(
        attack_s=attack_s,
        transcript_bytes=evaluator.transcript.stored_bytes,
        applying=applying,
        not_applying=not_applying,
    )
    total = "no recorded audit tells the time of its attacks" if attack_s is None else _range(attack_s)
    return [
        *_attack_lines(recorded),
        f"in all: {total} while this machine is as busy as now",
        _memory_line(config, dataset, [recorded], 1),
        "These are estimates: attacks from recorded audits of digits, in units of one round of the clients' training, of which "
        "one client's was timed; photographs may take several times as long. Nothing was written.",
    ]


class RoundTimes(NamedTuple):
    """Seconds of the first round of a training and of each later one."""

    first_s: float
    round_s: float

    def of(self, rounds: int) -> float:
        """Seconds of a training with this number of rounds."""
        return self.first_s + (rounds - 1) * self.round_s


def _timed(
    prepared: PreparedCell, clients: Mapping[str, ClientData], wire: TimedWire, workers: int
) -> tuple[RoundTimes, RoundTimes]:
    """Trains `TIMED_ROUNDS` rounds; returns the times and the processor times."""
    start = _clocks()
    with suppress(_Stopped):
        LocalEngine(workers).run(_short(prepared.method), prepared.federation, clients, wire)
    end = _clocks()
    second, third = wire.began.get(1, end), wire.began.get(TIMED_ROUNDS, end)
    time, processor_time = (
        RoundTimes(b - a, c - b if prepared.method.rounds > 1 else b - a)
        for a, b, c in zip(start, second, third, strict=True)
    )
    return time, processor_time


def _applying(evaluations: Iterable[AttackEvaluation]) -> tuple[dict[str, list[tuple[str, str]]], dict[str, str]]:
    """By attack, the artifacts and adversaries that it is evaluated on; and by attack that is not evaluated, the reason."""
    applying, refused = dict[str, list[tuple[str, str]]](), dict[str, str]()
    for evaluation in evaluations:
        if (reason := evaluation.refusal()) is None:
            applying.setdefault(evaluation.spec, []).append((evaluation.kind, evaluation.trials.threat.role))
        else:
            refused.setdefault(evaluation.spec, reason)
    return applying, {spec: reason for spec, reason in refused.items() if spec not in applying}


def _short(method: Method) -> Method:
    """The method; with few rounds if it is no federation, so that the timed rounds include what it shares at the end."""
    if method.federated:
        return method
    shortened: Method = replace(cast(Any, method), rounds=min(method.rounds, TIMED_ROUNDS))
    return shortened


def _clocks() -> tuple[float, float]:
    """The time, and the processor time of all threads of this process, in seconds."""
    return perf_counter(), process_time()


def _with_timed_images(data: ClientData, most: int) -> ClientData:
    """A client with at most so many of its images, evenly spaced."""
    count = min(len(data), most)
    rows = torch.arange(count) * len(data) // max(1, count)
    return replace(data, pixels=data.pixels[rows], labels=data.labels[rows])


def _cell_lines(cell: CellEstimate) -> list[str]:
    """The estimate of one cell, in lines."""
    if cell.failed is not None:
        return [f"its training cannot be timed: {cell.failed}"]
    return [f"training: about {_duration(cell.train_s)}", *_attack_lines(cell)]


def _attack_lines(cell: CellEstimate) -> list[str]:
    """The attacks that apply, their time, and why others do not, in lines."""
    count = sum(map(len, cell.applying.values()))
    attacks = "no recorded audit tells their time" if cell.attack_s is None else _range(cell.attack_s)
    lines = []
    if count:
        lines.append(f"attacks: {len(cell.applying)} apply, {count} evaluations: {attacks}")
    elif not cell.not_applying:
        lines.append("attacks: none")
    for spec, evaluated in cell.applying.items():
        by_kind = {kind: [role for other, role in evaluated if other == kind] for kind, _ in evaluated}
        lines.append(f"  {spec}: " + "; ".join(f"{kind} by {', '.join(roles)}" for kind, roles in by_kind.items()))
    by_reason: dict[str, list[str]] = {}
    for spec, reason in cell.not_applying.items():
        by_reason.setdefault(reason, []).append(spec)
    return lines + [f"  not {', '.join(specs)}: {reason}" for reason, specs in by_reason.items()]


def _total_lines(config: AuditConfig, dataset: Dataset, cells: Sequence[CellEstimate], times: int) -> list[str]:
    """The time and memory of all cells, each of which is run `times` times, in lines."""
    train_s = times * sum(cell.train_s for cell in cells)
    attack_s = times * sum(cell.attack_s or 0.0 for cell in cells)
    low, high = train_s + attack_s / SPREAD, train_s + attack_s * SPREAD
    idle = min(cell.idle for cell in cells)
    total = f"{_between(low, high)} while this machine is as busy as now"
    if idle < BUSY:
        total += f"; {_between(low * idle, high * idle)} while it is idle"
    unknown = ", and the attacks" if any(cell.applying and cell.attack_s is None for cell in cells) else ""
    images = _timed_images(dataset.image_size)
    return [
        f"in all: {total}{unknown}",
        _memory_line(config, dataset, cells, times),
        f"These are estimates: training from {TIMED_ROUNDS} rounds on at most {images} images of each client, attacks "
        "from recorded audits of digits; photographs may take several times as long. Nothing was written.",
    ]


def _memory_line(config: AuditConfig, dataset: Dataset, cells: Sequence[CellEstimate], times: int) -> str:
    """The memory of all cells, each of which is run `times` times."""
    process_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    attack_gb = ATTACK_MEMORY.get(config.preset, ATTACK_MEMORY["thorough"]) * dataset.image_size / REFERENCE_SIDE
    stored_gb = max(cell.transcript_bytes for cell in cells) / 2**30
    gb = process_gb + stored_gb + (attack_gb if any(cell.applying for cell in cells) else 0.0)
    jobs = min(config.jobs, times * len(cells))
    return f"memory: about {gb * jobs:.1f} GB, of which {process_gb:.1f} GB were measured here"


def _range(seconds: float) -> str:
    return _between(seconds / SPREAD, seconds * SPREAD)


def _between(low: float, high: float) -> str:
    return f"about {_duration(low)}" if low == high else f"{_duration(low)} to {_duration(high)}"


def _duration(seconds: float) -> str:
    """A time in seconds, minutes or hours, to two digits."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{max(1.0, seconds):.2g} s"
