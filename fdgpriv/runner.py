"""Runs an audit: trains every federation, evaluates all attacks and assembles the results; continues earlier runs."""

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import torch

from fdgpriv._version import __version__
from fdgpriv.cell_runner import CellRunner, CompletedCell, in_process
from fdgpriv.cluster import run_on_cluster
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import scores_file
from fdgpriv.judging import Judgement
from fdgpriv.models.style_codec import digits_codec, photo_codec
from fdgpriv.privacy.release import privacies
from fdgpriv.registry import registered
from fdgpriv.results import figures
from fdgpriv.results.finding import DatasetNote, Results, Timing
from fdgpriv.results.run import Run, RunFigure
from fdgpriv.results.score_tables import ScoreTables, check_writable
from fdgpriv.training import Cell, TrainCell, train, trained_file
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.environment import environment, usable_cores
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.file_names import expanded
from fdgpriv.utils.processes import Processes
from fdgpriv.utils.run_folder import Basis
from fdgpriv.utils.work_queue import Died

T = TypeVar("T")
MAX_DOMAINS_SHOWN = 8  # in the figure of the style codec
_PROCESSES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


@dataclass
class Runner:
    """Runs the audit of one configuration in one folder.

    Attributes:
        config: Validated, with its targets.
        dataset: The dataset.
        out: The output folder.
        progress: Prints progress.
        workers: Number of parallel threads, one core each.
        train: Trains a cell, or loads its training.
        basis: As of `AuditConfig.basis`.
    """

    config: AuditConfig
    dataset: Dataset
    out: Path
    progress: ProgressLog
    workers: int = field(default_factory=lambda: min(4, usable_cores()))
    train: TrainCell = train
    basis: Basis = field(init=False)
    _start: float = field(default_factory=perf_counter, init=False)

    def __post_init__(self) -> None:
        self.basis = self.config.basis()

    @property
    def _cell_runner(self) -> CellRunner:
        return CellRunner(self.config, self.dataset, self.out, self.progress, self.workers, self.train)

    def cells(self) -> list[Cell]:
        """All runs, in order."""
        return [
            Cell(method, target, seed, defense)
            for method in self.config.methods
            for target in self.config.targets
            for seed in self.config.seeds
            for defense in self.config.defenses
        ]

    def check_tables(self) -> None:
        """Raises ValueError if the score tables of these runs could not be written."""
        check_writable([cell.run_key(self.config.dataset) for cell in self.cells()])

    def files(self) -> list[Path]:
        """The final file of each training and the score files of all possible evaluations, relative to `out`."""
        trained = [trained_file(Path(), cell) for cell in self.cells()]
        scores = [
            scores_file(Path(), cell.folder, spec, role, kind)
            for cell in self.cells()
            for spec in self.config.attacks
            for attack in (self.config.attack(spec),)
            for role in self.config.threats
            for kind in attack.kinds()
        ]
        return trained + scores

    def run(self, command: str | None) -> Results:
        """Trains and evaluates all cells that are not stored; after Ctrl-C, the results are marked as interrupted."""
        cells, completed = self.cells(), dict[Cell, CompletedCell]()
        jobs, interrupted = min(self.config.jobs, len(cells)), False
        try:
            if self.config.ray is not None:
                self._on_cluster(cells, self.config.ray, completed)
            elif jobs > 1:
                self._in_processes(cells, jobs, completed)
            else:
                self._cell_runner.run(cells, completed)
        except KeyboardInterrupt:
            interrupted = True
            self.progress.say("interrupted: keeping finished work")
        return self._results([completed[cell] for cell in cells if cell in completed], interrupted, command)

    def _in_processes(self, cells: Sequence[Cell], jobs: int, completed: dict[Cell, CompletedCell]) -> None:
        """Adds the results of the cells, run in `jobs` processes; a cell whose process dies has failed."""
        workers = max(1, self.workers // jobs)
        make = partial(in_process, registered(), self.config, self.dataset.sha256, self.out, workers)
        Processes(make, jobs, self.progress.say, self._adding(cells, completed)).run(cells)

    def _on_cluster(self, cells: Sequence[Cell], address: str, completed: dict[Cell, CompletedCell]) -> None:
        """Adds the results of the cells, each a task of a Ray cluster."""
        root, weights = self.config.data_root, self.config.weights
        config = replace(self.config, data_root=_absolute(root), weights=_absolute(weights))
        make = partial(in_process, registered(), config, self.dataset.sha256)
        on_gpu = self.config.device == "cuda"
        run_on_cluster(address, cells, make, self.out, on_gpu, self.progress.say, self._adding(cells, completed))

    def _adding(
        self, cells: Sequence[Cell], completed: dict[Cell, CompletedCell]
    ) -> Callable[[Cell, CompletedCell | Died | None], None]:
        """A function that adds the results of a cell; a lost cell has failed."""
        task = self.progress.task("runs", len(cells))

        def done(cell: Cell, outcome: CompletedCell | Died | None) -> None:
            if isinstance(outcome, Died):
                self.progress.say(f"{cell.folder}: {outcome.how}; the other runs continue")
                outcome = self._cell_runner.failed(cell, outcome.how)
            if outcome is not None:
                completed[cell] = outcome
            self.progress.step(task)

        return done

    def _results(self, completed: Sequence[CompletedCell], interrupted: bool, command: str | None) -> Results:
        """Judges all cells; returns the results and writes the score tables."""
        tables = ScoreTables.joined([cell.score_tables(self.config.dataset, self.out) for cell in completed])
        unwritten = tables.save(self.out)
        self.progress.say("computing verdicts")
        judgement = Judgement.of(completed, self.config.seeds[0])
        unusable = [f"{role} {name}: {line}" for (role, name), line in self.config.unusable.items()] + unwritten
        codec_figures = _attempted(self._codec_figure, "figure of the style codec", unusable) if completed else ()
        guarantees = privacies([finished.measurement for finished in completed])
        runs = []
        for finished, privacy in zip(completed, guarantees, strict=True):
            failures = [*finished.failures, *unusable]
            claims = _attempted(partial(judgement.claims, finished, self.config), "claims", failures)
            runs.append(
                Run(
                    method=finished.cell.method,
                    dataset=self.config.dataset,
                    target=finished.cell.target,
                    seed=finished.cell.seed,
                    defense=finished.cell.defense,
                    images=finished.images,
                    utility=finished.trained.utility,
                    failed=finished.trained.failed,
                    diverged=finished.trained.diverged,
                    failures=tuple(failures),
                    artifacts=finished.artifacts,
                    questions=judgement.questions(finished),
                    attacks=judgement.attacks(finished),
                    privacy=privacy,
                    claims=claims,
                    figures=codec_figures,
                    not_measured=(*finished.not_measured, *(f"Failed: {failure}" for failure in failures)),
                    training=finished.trained.log,
                    weights=finished.weights,
                    remedies=finished.remedies,
                )
            )
        return Results(
            fdgpriv=__version__,
            command=command,
            config=self.config.as_config(self.dataset.n_sources),
            environment=environment(self.config.device, self.workers, self.basis),
            timing=Timing(
                total_s=perf_counter() - self._start,
                train_s=sum(finished.trained.train_s for finished in completed),
                attack_s=sum(finished.attack_s for finished in completed),
                peak_rss_mb=max(resource.getrusage(who).ru_maxrss for who in _PROCESSES) / 1024,
            ),
            dataset=DatasetNote(**{field: getattr(self.dataset, field) for field in DatasetNote.model_fields}),
            interrupted=interrupted,
            runs=tuple(runs),
        )

    def _codec_figure(self) -> tuple[RunFigure, ...]:
        """Draws the style codec's round trip; empty if the images do not fit the codec."""
        path = Path("figures") / "style_encoder.png"
        if self.dataset.image_size % 4 or not all(map(len, self.dataset.domains)):
            return ()
        codec = photo_codec() if self.config.photographs else digits_codec()
        with torch.no_grad():
            figures.stylised(codec, self.dataset.domains[:MAX_DOMAINS_SHOWN], self.out / path)
        caption = (
            "The shipped style encoder and decoder: one image of each domain, its round trip, and each domain's style."
        )
        return (RunFigure(file=path.as_posix(), caption=caption),)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else expanded(path).absolute()


def _attempted(compute: Callable[[], tuple[T, ...]], what: str, failures: list[str]) -> tuple[T, ...]:
    """The result of `compute`; if it raises an exception, empty, with a line about `what` added to `failures`."""
    outcome = attempt(compute)
    if isinstance(outcome, Failed):
        failures.append(f"{what}: {outcome.line}")
        return ()
    return outcome
