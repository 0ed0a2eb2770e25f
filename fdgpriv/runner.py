"""The conductor: trains each federation, examines it, judges everything together; with `resume`, only what is missing."""

import os
import platform
import resource
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from fdgpriv._version import __version__
from fdgpriv.attack import Attack
from fdgpriv.claims import Case, claims
from fdgpriv.claims.measurements import facts
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation, scores_file
from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.comparison import RunComparison, compared, settings_of
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.not_measured import not_measured
from fdgpriv.evaluation.verdicts import attack_findings
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import Record
from fdgpriv.models.style_codec import digits_codec
from fdgpriv.privacy.release import DRAWS, Measurement, measure, privacies
from fdgpriv.results import figures
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import ArtifactRow, Claim, DatasetNote, ImageCount, Images, Results, Run, RunFigure, Timing
from fdgpriv.results.ledger import ledger
from fdgpriv.threat import ThreatModel, threat
from fdgpriv.training import Cell, Trained, train, trained_file
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.memory import release_memory
from fdgpriv.utils.work_queue import WorkQueue

_NOT_YET = "interrupted before it"


@dataclass(eq=False)
class Done:
    """What is kept of one cell once it is done; its images and models are let go."""

    cell: Cell
    trained: Trained
    images: Images
    artifacts: tuple[ArtifactRow, ...]
    measurement: Measurement
    not_measured: tuple[str, ...]
    records: Sequence[Record]
    facts: dict[str, float] = field(default_factory=dict)
    scores: dict[str, AttackScores] = field(default_factory=dict)
    attack_s: float = 0.0


@dataclass
class Runner:
    """Carries out a plan in a folder.

    Attributes:
        config: Checked and with its targets.
        dataset: Loaded.
        out: Where everything goes.
        progress: Says what is going on.
        workers: Threads that compute side by side, each on one core.
    """

    config: AuditConfig
    dataset: Dataset
    out: Path
    progress: ProgressLog
    workers: int = field(default_factory=lambda: max(1, min(4, os.cpu_count() or 1)))
    _start: float = field(default_factory=perf_counter, init=False)

    def cells(self) -> list[Cell]:
        """All runs of the plan, in order."""
        return [
            Cell(method, target, seed, defense)
            for method in self.config.methods
            for target in self.config.targets
            for seed in self.config.seeds
            for defense in self.config.defenses
        ]

    def files(self) -> list[Path]:
        """Relative to `out`, the file that ends each training, and that of each evaluation with any kind of artifact."""
        trained = [trained_file(Path(), cell) for cell in self.cells()]
        evaluated = [
            scores_file(Path(), cell.folder, spec, role, kind)
            for cell in self.cells()
            for spec in self.config.attacks
            for role in self.config.threats
            for kind in self.config.attack(spec).kinds()
        ]
        return trained + evaluated

    def run(self, command: str | None) -> Results:
        """Do what is not yet done; on Ctrl-C, what is done is judged and returned as interrupted."""
        torch.set_num_threads(1)
        done: list[Done] = []
        interrupted = False
        try:
            for cell in self.cells():
                self._do(cell, done)
                release_memory()
        except KeyboardInterrupt:
            interrupted = True
            self.progress.say("interrupted: keeping what is done")
        return self._results(done, interrupted, command)

    def _do(self, cell: Cell, done: list[Done]) -> None:
        """Train and evaluate one cell; its evaluator, with the artifacts that it made, is let go at the end."""
        trained, evaluator = train(self.config, self.dataset, cell, self.out, self.progress, self.workers)
        done.append(self._begun(cell, trained, evaluator))
        if trained.utility is not None and self.config.attacks:
            self._examine(done[-1], evaluator)

    def _begun(self, cell: Cell, trained: Trained, evaluator: Evaluator) -> Done:
        dim = len(evaluator.template.vector()) if evaluator.shares_styles else 1
        return Done(
            cell=cell,
            trained=trained,
            images=_images(evaluator.population),
            artifacts=ledger(evaluator.transcript.records, evaluator.method.disclosure().sent_as),
            measurement=measure(evaluator.defense, dim, DRAWS[self.config.preset], cell.seed),
            not_measured=tuple(
                not_measured(
                    evaluator,
                    trained.failed,
                    trained.diverged,
                    attacked=bool(self.config.attacks),
                    once=len(self.config.seeds) == 1,
                )
            ),
            records=evaluator.transcript.records,
        )

    def _examine(self, done: Done, evaluator: Evaluator) -> None:
        folder, scores = done.cell.folder, done.scores
        few = self.config.preset == "quick"
        asked = [
            AttackEvaluation(AttackTrials(evaluator, attack, threat(role)), spec, kind, few, self.out, folder)
            for spec in self.config.attacks
            for attack in (self.config.attack(spec),)
            for role in self.config.threats
            if role in attack.threats
            for kind in _readable(attack, threat(role), evaluator)
        ]
        task = self.progress.task(f"attacking {folder}", len(asked))
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        measured = pool.submit(facts, evaluator, self.out / "scores" / folder)
        try:
            for one in asked:
                scores[one.key] = one.pending(_NOT_YET)
            row = WorkQueue(_heavy_outside(asked))
            for finished in as_completed([pool.submit(_next, row) for _ in asked]):
                one, found = finished.result()
                scores[one.key] = found
                done.attack_s += found.attack_s
                self.progress.step(task, f"{one.key} in {found.attack_s:.1f} s")
        except KeyboardInterrupt:
            for key in [key for key, one in scores.items() if one.not_applicable == _NOT_YET]:
                del scores[key]
            self.progress.say("finishing the attacks in progress")
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            if not measured.cancelled():
                done.facts = measured.result()
        self.progress.done(task, f"{folder}: {len(asked)} attacks")

    def _results(self, done: Sequence[Done], interrupted: bool, command: str | None) -> Results:
        self.progress.say("judging")
        findings = attack_findings({key: p for one in done for key, p in one.scores.items()}, self.config.seeds[0])
        pictures = self._codec_figure() if done else ()
        stated = privacies([one.measurement for one in done])
        runs = [
            Run(
                method=one.cell.method,
                dataset=self.config.dataset,
                target=one.cell.target,
                seed=one.cell.seed,
                defense=one.cell.defense,
                images=one.images,
                utility=one.trained.utility,
                failed=one.trained.failed,
                artifacts=one.artifacts,
                attacks=tuple(findings[key] for key in one.scores),
                privacy=privacy,
                claims=self._claims(one, [run for run in done if run.trained.failed is None], findings),
                figures=pictures,
                not_measured=one.not_measured,
                training=one.trained.log,
            )
            for one, privacy in zip(done, stated, strict=True)
        ]
        return Results(
            fdgpriv=__version__,
            command=command,
            config=self.config.as_config(len(self.dataset.domains) - 1),
            environment=environment(self.config, self.workers),
            timing=Timing(
                total_s=perf_counter() - self._start,
                train_s=sum(one.trained.train_s for one in done),
                attack_s=sum(one.attack_s for one in done),
                peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            ),
            dataset=DatasetNote(name=self.dataset.name, about=self.dataset.about, limits=self.dataset.limits),
            interrupted=interrupted,
            runs=tuple(runs),
        )

    def _claims(self, one: Done, done: Sequence[Done], findings: Mapping[str, AttackFinding]) -> tuple[Claim, ...]:
        """The ledger of this run, with what the others of its target, seed and defense say beside it.

        Of a run that failed none: what crossed is not all that its method sends.
        """
        if one.trained.failed is not None:
            return ()
        attacks, method = [findings[key] for key in one.scores], self.config.method(one.cell.method)
        others = [run for run in done if run is not one and replace(run.cell, method=one.cell.method) == one.cell]
        beside = [
            RunComparison(
                other.cell.method,
                part.name(),
                settings_of(part),
                other.records,
                compared(one.scores, other.scores, findings),
            )
            for other in others
            for part in (self.config.method(other.cell.method),)
        ]
        known = one.trained.log | one.facts
        return claims(method.name(), Case(attacks, one.records, known, method.name(), settings_of(method), beside))

    def _codec_figure(self) -> tuple[RunFigure, ...]:
        path = Path("figures") / "style_encoder.png"
        if self.dataset.domains[0].images.shape[-1] % 4:
            return ()
        with torch.no_grad():
            figures.stylised(digits_codec(), self.dataset.domains, self.out / path)
        caption = (
            "The shipped style encoder and decoder: one image of each domain, its round trip, and each domain's style."
        )
        return (RunFigure(file=path.as_posix(), caption=caption),)


def _images(population: Population) -> Images:
    counts = {name: asdict(population.images(name)) for name in population.sources}
    total = {use: sum(count[use] for count in counts.values()) for use in ImageCount.model_fields}
    return Images(**total, domains={name: ImageCount(**count) for name, count in counts.items()})


def _readable(attack: Attack, who: ThreatModel, evaluator: Evaluator) -> Sequence[str]:
    """The kinds that this adversary reads here; where there is none, the one of which it is said why."""
    there = [kind for kind in attack.kinds() if kind in evaluator.targets]
    seen = [kind for kind in there if evaluator.targets[kind].refused(who) is None]
    return seen or there[:1] or attack.kinds()[:1]


def _heavy_outside(asked: Sequence[AttackEvaluation]) -> list[AttackEvaluation]:
    """By kind, so that what was made for one serves the next; what draws images takes longest and stands at the ends."""
    kinds = list(dict.fromkeys(one.kind for one in asked))
    row = sorted(asked, key=lambda one: kinds.index(one.kind))
    first, last = row[: len(row) // 2], row[len(row) // 2 :]
    return sorted(first, key=lambda one: not one.draws_images) + sorted(last, key=lambda one: one.draws_images)


def _next(row: WorkQueue[AttackEvaluation]) -> tuple[AttackEvaluation, AttackScores]:
    """The evaluation that this thread takes, and its paper."""
    one = row.take()
    return one, one.run()


def environment(config: AuditConfig, workers: int) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "workers": workers,
        "device": torch.cuda.get_device_name() if config.device == "cuda" else "cpu",
    }
