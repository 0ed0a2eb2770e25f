"""Runs an audit: trains every federation, evaluates all attacks and assembles the results; continues earlier runs."""

import os
import resource
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter

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
from fdgpriv.evaluation.verdicts import judge
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import Record
from fdgpriv.models.style_codec import digits_codec, photo_codec
from fdgpriv.privacy.release import DRAWS, ENTRIES, Measurement, measure, privacies
from fdgpriv.privacy.training_audit import CanaryAudit, measured_by_training
from fdgpriv.results import figures
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import ArtifactRow, Claim, DatasetNote, ImageCount, Images, Results, Run, RunFigure, Timing
from fdgpriv.results.ledger import ledger
from fdgpriv.threat import ThreatModel, threat
from fdgpriv.training import Cell, Trained, train, trained_file
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.environment import environment
from fdgpriv.utils.memory import release_memory
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.work_queue import WorkQueue

_PENDING = "interrupted before it"
_CURVES = ("server", "insider")  # whose leakage is shown against the number of images behind an artifact by default


@dataclass(eq=False)
class CompletedCell:
    """The results of one cell; its images and models are released."""

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
    """Runs the audit of one configuration in one folder.

    Attributes:
        config: Validated, with its targets.
        dataset: The dataset.
        out: The output folder.
        progress: Prints progress.
        workers: Number of parallel threads, one core each.
    """

    config: AuditConfig
    dataset: Dataset
    out: Path
    progress: ProgressLog
    workers: int = field(default_factory=lambda: max(1, min(4, os.cpu_count() or 1)))
    _start: float = field(default_factory=perf_counter, init=False)

    def cells(self) -> list[Cell]:
        """All runs, in order."""
        return [
            Cell(method, target, seed, defense)
            for method in self.config.methods
            for target in self.config.targets
            for seed in self.config.seeds
            for defense in self.config.defenses
        ]

    def files(self) -> list[Path]:
        """Relative to `out`, the final file of each training, and the scores of each evaluation for any kind of artifact."""
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
        """Trains and evaluates what is missing; after Ctrl-C, the results of the finished work, marked as interrupted."""
        torch.set_num_threads(1)
        completed: list[CompletedCell] = []
        interrupted = False
        try:
            for cell in self.cells():
                self._run_cell(cell, completed)
                release_memory()
        except KeyboardInterrupt:
            interrupted = True
            self.progress.say("interrupted: keeping finished work")
        return self._results(completed, interrupted, command)

    def _run_cell(self, cell: Cell, completed: list[CompletedCell]) -> None:
        """Trains and evaluates one cell; its evaluator and simulated artifacts are released at the end."""
        trained, evaluator = train(self.config, self.dataset, cell, self.out, self.progress, self.workers)
        completed.append(self._after_training(cell, trained, evaluator))
        if trained.utility is not None and self.config.attacks:
            self._evaluate_attacks(completed[-1], evaluator)

    def _after_training(self, cell: Cell, trained: Trained, evaluator: Evaluator) -> CompletedCell:
        dim = len(evaluator.template.vector()) if evaluator.shares_styles else ENTRIES
        return CompletedCell(
            cell=cell,
            trained=trained,
            images=_images(evaluator.population),
            artifacts=ledger(evaluator.transcript.records, evaluator.method.disclosure().sent_as),
            measurement=measure(
                evaluator.defense, dim, DRAWS[self.config.preset], cell.seed, lambda: _trained_with_canaries(evaluator)
            ),
            not_measured=tuple(
                not_measured(
                    evaluator,
                    trained.failed,
                    trained.diverged,
                    attacked=bool(self.config.attacks),
                    once=len(self.config.seeds) == 1,
                    few=not self.config.every_ablation,
                )
            ),
            records=evaluator.transcript.records,
        )

    def _evaluate_attacks(self, completed: CompletedCell, evaluator: Evaluator) -> None:
        folder, scores = completed.cell.folder, completed.scores
        few, repeats = not self.config.every_ablation, self.config.repeats
        evaluations = [
            AttackEvaluation(
                AttackTrials(evaluator, attack, threat(role), curve=not few or role in _CURVES),
                spec,
                kind,
                few,
                self.out,
                folder,
                repeats,
            )
            for spec in self.config.attacks
            for attack in (self.config.attack(spec),)
            for role in self.config.threats
            if role in attack.threats
            for kind in _readable(attack, threat(role), evaluator)
        ]
        task = self.progress.task(f"attacking {folder}", len(evaluations))
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        measured = pool.submit(facts, evaluator, self.out / "scores" / folder)
        try:
            for one in evaluations:
                scores[one.key] = one.pending(_PENDING)
            queue = WorkQueue(_scheduled(evaluations))
            for finished in as_completed([pool.submit(_run_next, queue) for _ in evaluations]):
                one, found = finished.result()
                scores[one.key] = found
                completed.attack_s += found.attack_s
                self.progress.step(task, f"{one.key} in {found.attack_s:.1f} s")
        except KeyboardInterrupt:
            for key in [key for key, one in scores.items() if one.not_applicable == _PENDING]:
                del scores[key]
            self.progress.say("finishing the attacks in progress")
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            if not measured.cancelled():
                completed.facts = measured.result()
        self.progress.done(task, f"{folder}: {len(evaluations)} attacks")

    def _results(self, completed: Sequence[CompletedCell], interrupted: bool, command: str | None) -> Results:
        self.progress.say("computing verdicts")
        scores = {key: found for one in completed for key, found in one.scores.items()}
        verdicts = judge(scores, self.config.seeds[0])
        findings = verdicts.findings
        codec_figures = self._codec_figure() if completed else ()
        guarantees = privacies([one.measurement for one in completed])
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
                questions=verdicts.questions.of_cell(one.cell.folder, list(one.scores)),
                attacks=tuple(findings[key] for key in one.scores),
                privacy=privacy,
                claims=self._claims(one, [run for run in completed if run.trained.failed is None], findings),
                figures=codec_figures,
                not_measured=one.not_measured,
                training=one.trained.log,
            )
            for one, privacy in zip(completed, guarantees, strict=True)
        ]
        return Results(
            fdgpriv=__version__,
            command=command,
            config=self.config.as_config(len(self.dataset.domains) - 1),
            environment=environment(self.config.device, self.workers),
            timing=Timing(
                total_s=perf_counter() - self._start,
                train_s=sum(one.trained.train_s for one in completed),
                attack_s=sum(one.attack_s for one in completed),
                peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            ),
            dataset=DatasetNote(name=self.dataset.name, about=self.dataset.about, limits=self.dataset.limits),
            interrupted=interrupted,
            runs=tuple(runs),
        )

    def _claims(
        self, one: CompletedCell, completed: Sequence[CompletedCell], findings: Mapping[str, AttackFinding]
    ) -> tuple[Claim, ...]:
        """The claims about this run, compared with other methods' runs of the same target, seed and defense.

        None for a failed run, whose transcript is incomplete.
        """
        if one.trained.failed is not None:
            return ()
        attacks, method = [findings[key] for key in one.scores], self.config.method(one.cell.method)
        others = [run for run in completed if run is not one and replace(run.cell, method=one.cell.method) == one.cell]
        comparisons = [
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
        return claims(method.name(), Case(attacks, one.records, known, method.name(), settings_of(method), comparisons))

    def _codec_figure(self) -> tuple[RunFigure, ...]:
        path = Path("figures") / "style_encoder.png"
        if self.dataset.image_size % 4:
            return ()
        codec = photo_codec() if self.config.photographs else digits_codec()
        with torch.no_grad():
            figures.stylised(codec, self.dataset.domains, self.out / path)
        caption = (
            "The shipped style encoder and decoder: one image of each domain, its round trip, and each domain's style."
        )
        return (RunFigure(file=path.as_posix(), caption=caption),)


def _trained_with_canaries(evaluator: Evaluator) -> CanaryAudit | None:
    """The audit of the defense in a further training of the first client."""
    data = next(iter(evaluator.population.clients.values()))
    rng = generator(evaluator.seed, 43)
    return measured_by_training(evaluator.defense, evaluator.method, evaluator.federation, data, rng)


def _images(population: Population) -> Images:
    counts = {name: asdict(population.images(name)) for name in population.sources}
    total = {use: sum(count[use] for count in counts.values()) for use in ImageCount.model_fields}
    return Images(**total, domains={name: ImageCount(**count) for name, count in counts.items()})


def _readable(attack: Attack, adversary: ThreatModel, evaluator: Evaluator) -> Sequence[str]:
    """The kinds of artifact that this adversary reads; if there are none, one for which the reason is reported."""
    shared = [kind for kind in attack.kinds() if kind in evaluator.targets]
    readable = [kind for kind in shared if evaluator.targets[kind].refused(adversary) is None]
    return readable or shared[:1] or attack.kinds()[:1]


def _scheduled(evaluations: Sequence[AttackEvaluation]) -> list[AttackEvaluation]:
    """Ordered by kind, to reuse intermediates; evaluations that generate images take longest and are put at the ends."""
    kinds = list(dict.fromkeys(one.kind for one in evaluations))
    by_kind = sorted(evaluations, key=lambda one: kinds.index(one.kind))
    first, last = by_kind[: len(by_kind) // 2], by_kind[len(by_kind) // 2 :]
    return sorted(first, key=lambda one: not one.draws_images) + sorted(last, key=lambda one: one.draws_images)


def _run_next(queue: WorkQueue[AttackEvaluation]) -> tuple[AttackEvaluation, AttackScores]:
    """Takes the next evaluation and runs it."""
    one = queue.take()
    return one, one.run()
