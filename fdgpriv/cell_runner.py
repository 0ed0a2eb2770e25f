"""Trains and attacks one cell of an audit: one method, target, seed and defense."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.attack import Attack
from fdgpriv.claims.measurements import FACTS, facts
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.not_measured import not_measured
from fdgpriv.evaluation.remedies import not_covered, remedies
from fdgpriv.evaluation.simulation_fit import few_public_images_note
from fdgpriv.federation.partition import Population
from fdgpriv.federation.unfederated import participants_of
from fdgpriv.federation.weights import Weights
from fdgpriv.judging import MeasuredCell
from fdgpriv.privacy.release import DRAWS, ENTRIES, Measurement, measure
from fdgpriv.privacy.training_audit import CanaryAudit, measured_by_training, measured_by_updates
from fdgpriv.registry import Role
from fdgpriv.results.ledger import ledger
from fdgpriv.results.run import ArtifactRow, ImageCount, ImagesByDomain, Remedy
from fdgpriv.results.score_rows import rows_file
from fdgpriv.results.score_tables import ScoreTables
from fdgpriv.threat import ThreatModel, threat
from fdgpriv.training import Cell, TrainCell, Trained, reloaded, thin, train, trained_file
from fdgpriv.utils.arithmetic import fixed_arithmetic, whole_precision
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.files import DamagedFile
from fdgpriv.utils.memory import much_freed_returned, release_memory
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import AttackScores, to_tables

_PENDING = "interrupted before it"
_CURVES = ("server", "insider")  # adversaries whose leakage is evaluated by number of images, by default


@dataclass(eq=False, kw_only=True)
class CompletedCell(MeasuredCell):
    """The results of one cell; its images and models are released."""

    images: ImagesByDomain
    artifacts: tuple[ArtifactRow, ...]
    measurement: Measurement
    not_measured: tuple[str, ...]
    weights: Weights | None = None
    remedies: tuple[Remedy, ...] = ()
    failures: list[str] = field(default_factory=list)  # measurements that failed, one line each
    score_files: Sequence[Path] = ()  # relative to the run's folder
    attack_s: float = 0.0

    def add(self, key: str, scores_by_task: Mapping[str, AttackScores]) -> str:
        """Adds the scores of one evaluation on each of its tasks; returns a line for the progress."""
        self.scores |= scores_by_task
        attack_s = sum(scores.attack_s for scores in scores_by_task.values())
        self.attack_s += attack_s
        scores = scores_by_task[key]
        if scores.failed:
            return f"{key}: {scores.not_applicable}"
        return "" if scores.not_applicable else f"{key} in {attack_s:.1f} s"

    def score_tables(self, dataset: str, out: Path) -> ScoreTables:
        """The score tables of all evaluations: the stored ones, and rows without scores for the others."""
        files = [out / name for name in self.score_files]
        stored = ScoreTables.joined([ScoreTables.load_archive(file) for file in files if file.is_file()])
        stored_names = set(stored.evaluations["evaluation"].to_pylist())
        run_key = self.cell.run_key(dataset)
        missing = [
            attempt(partial(to_tables, run_key, {key: scores}))
            for key, scores in self.scores.items()
            if key not in stored_names
        ]
        return ScoreTables.joined([stored, *(tables for tables in missing if not isinstance(tables, Failed))])


@dataclass(frozen=True)
class CellRunner:
    """Runs cells of one audit; loads the results that are stored already.

    Attributes:
        config: Validated, with its targets.
        dataset: The dataset.
        out: The output folder.
        progress: Prints progress.
        workers: Number of parallel threads, one core each.
        train: Trains a cell, or loads its training.
    """

    config: AuditConfig
    dataset: Dataset
    out: Path
    progress: ProgressLog
    workers: int
    train: TrainCell = train

    def run(self, cells: Sequence[Cell], completed: dict[Cell, CompletedCell]) -> None:
        """Adds the results of each cell to `completed`; of a cell that Ctrl-C interrupts, its finished evaluations."""
        for number, cell in enumerate(cells):
            if number:
                release_memory()  # of the previous cell
            with whole_precision():
                outcome = attempt(partial(self._run_cell, cell, completed))
            if isinstance(outcome, Failed):
                self.progress.say(f"{cell.folder}: failed: {outcome.line}")
                if cell in completed:
                    completed[cell].failures.append(outcome.line)
                else:
                    completed[cell] = self.failed(cell, outcome.line)

    def failed(self, cell: Cell, reason: str) -> CompletedCell:
        """The results of a cell that failed for this reason."""
        _, defense = defended(self.config.method(cell.method), cell.defense, self.config.inject_bug)
        return CompletedCell(
            cell=cell,
            trained=Trained(utility=None, failed=reason, train_s=0.0, wire_s=0.0),
            images=_images(self.config.populate(self.dataset, cell.method, cell.target, cell.seed)),
            artifacts=(),
            measurement=Measurement(defense.guarantee()),
            not_measured=(f"Nothing was measured: {reason}. What it had finished is kept for --resume.",),
            records=(),
        )

    def _run_cell(self, cell: Cell, completed: dict[Cell, CompletedCell]) -> None:
        """Trains and evaluates one cell; its evaluator and simulated artifacts are released at the end."""
        trained, evaluator = self.train(self.config, self.dataset, cell, self.out, self.progress, self.workers)
        completed[cell] = self._after_training(cell, trained, evaluator)
        if trained.utility is not None and self.config.attacks:
            with much_freed_returned():
                self._evaluate_attacks(completed[cell], evaluator)
        failed = any(scores.failed for scores in completed[cell].scores.values())
        if not failed and not completed[cell].failures:  # --resume repeats what failed
            thin(self.out, cell, evaluator.transcript, self.config.keep)

    def _after_training(self, cell: Cell, trained: Trained, evaluator: Evaluator) -> CompletedCell:
        """The results of a trained cell before its attacks, with the measured guarantee of its defense."""
        dim = len(evaluator.template.vector()) if evaluator.shares_styles else ENTRIES
        trained_on = participants_of(evaluator.method, evaluator.population.clients)
        sizes = {name: len(data) for name, data in trained_on.items()}
        attacks = [self.config.attack(spec) for spec in self.config.attacks] if trained.failed is None else []
        few_public = few_public_images_note(evaluator.population, attacks)
        completed = CompletedCell(
            cell=cell,
            trained=trained,
            images=_images(evaluator.population),
            artifacts=ledger(evaluator.transcript.records, evaluator.method.disclosure().sent_as),
            measurement=Measurement(evaluator.defense.guarantee()),
            not_measured=(
                *((f"{few_public}.",) if few_public else ()),
                *not_measured(
                    evaluator,
                    trained.failed,
                    trained.diverged,
                    attacked=bool(self.config.attacks),
                    once=len(self.config.seeds) == 1,
                    few=not self.config.every_ablation,
                ),
            ),
            records=evaluator.transcript.records,
            weights=evaluator.population.weights(evaluator.method.disclosure().weights),
            remedies=remedies(self.config.method(cell.method), sizes),
        )
        if not trained.failed:
            canaries = partial(_trained_with_canaries, evaluator)
            measured = attempt(lambda: measure(evaluator.defense, dim, DRAWS, cell.seed, canaries))
            if isinstance(measured, Failed):
                completed.failures.append(f"measured epsilon of {evaluator.defense.spec()}: {measured.line}")
            else:
                shared = evaluator.method.disclosure().uploads
                completed.measurement = replace(measured, not_covered=not_covered(shared, measured.proved))
        return completed

    def evaluations(self, cell: Cell, evaluator: Evaluator) -> list[AttackEvaluation]:
        """One evaluation for each attack, adversary and kind of artifact that it reads; none has run yet."""
        run_key = cell.run_key(self.config.dataset)
        few = not self.config.every_ablation
        attacks = self.config.attacks if evaluator.method.disclosure().shares else ()
        combinations = [
            (spec, attack, role, kind)
            for spec in attacks
            for attack in (self.config.attack(spec),)
            for role in self.config.threats
            if role in attack.threats
            for kind in _readable(attack, threat(role), evaluator)
        ]
        asking: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for _, attack, role, kind in combinations:
            asking[role, kind].update(task.secret for task in attack.tasks)
        return [
            AttackEvaluation(
                AttackTrials(evaluator, attack, threat(role), curve=not few or role in _CURVES),
                spec,
                kind,
                few,
                self.out,
                cell.folder,
                run_key,
                self.config.repeats,
                asking[role, kind],
            )
            for spec, attack, role, kind in combinations
        ]

    def _evaluate_attacks(self, completed: CompletedCell, evaluator: Evaluator) -> None:
        """Runs all evaluations and the measurements of claims in threads; adds their results to `completed`."""
        folder, evaluations = completed.cell.folder, self.evaluations(completed.cell, evaluator)
        files = [evaluation.file for evaluation in evaluations]
        completed.score_files = [file.relative_to(self.out) for file in files]
        measurements = self.out / "scores" / folder
        missing = [file for file in (*files, measurements / FACTS) if not file.is_file()]
        if missing and evaluator.transcript.is_thinned:
            transcript = trained_file(self.out, completed.cell).parent
            raise DamagedFile(
                f"want {missing[0]}, got none, and {transcript} no longer has the models of all rounds that it was computed "
                f"from; remove {transcript}, and --resume trains again and computes it"
            )
        task = self.progress.task(f"attacking {folder}", len(evaluations))
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        measured_facts = pool.submit(facts, evaluator, measurements, self.config.attacks)
        try:
            for evaluation in evaluations:
                completed.scores |= evaluation.pending(_PENDING)
            submitted = {pool.submit(evaluation.run): evaluation.key for evaluation in _scheduled(evaluations)}
            for finished in as_completed(submitted):
                self.progress.step(task, completed.add(submitted[finished], finished.result()))
            for evaluation in evaluations:
                if not evaluation.file.is_file() and (rows := rows_file(evaluation.file)).is_file():
                    completed.failures.append(
                        f"the score table {evaluation.file.name} could not be written: its rows are in {rows}"
                    )
        except KeyboardInterrupt:
            completed.scores = {
                key: scores for key, scores in completed.scores.items() if scores.not_applicable != _PENDING
            }
            self.progress.say(f"{folder}: finishing the attacks in progress")
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            if not measured_facts.cancelled():
                measured = measured_facts.result()
                completed.facts = measured.figures
                completed.failures += measured.failures
        self.progress.done(task, f"{folder}: {len(evaluations)} attacks")


def in_process(
    parts: Sequence[type[Role]],
    config: AuditConfig,
    sha256: str | None,
    out: Path,
    workers: int,
    say: Callable[[str], None],
) -> Callable[[Cell], CompletedCell | None]:
    """For another process: a function that returns a cell's results; None if Ctrl-C came before its training ended.

    Args:
        parts, sha256: As of `reloaded`.
        config, out, workers: As of `CellRunner`.
        say: Prints a line.
    """
    log = ProgressLog(to=say)
    dataset, config = reloaded(parts, config, sha256, log)
    runner = CellRunner(config, dataset, out, log, workers)

    @fixed_arithmetic()
    def results(cell: Cell) -> CompletedCell | None:
        completed: dict[Cell, CompletedCell] = {}
        with suppress(KeyboardInterrupt):
            runner.run([cell], completed)
        return completed.get(cell)

    return results


def _trained_with_canaries(evaluator: Evaluator) -> CanaryAudit | None:
    """The audit of the defense in a further training of the first client, or in the updates of canary clients."""
    defense, method, rng = evaluator.defense, evaluator.method, generator(evaluator.seed, 43)
    data = next(iter(evaluator.population.clients.values()))
    by_training = measured_by_training(defense, method, evaluator.federation, data, rng)
    return by_training or measured_by_updates(defense, method.disclosure().releases(ModelState.kind), rng)


def _images(population: Population) -> ImagesByDomain:
    """The numbers of images by use, by domain and in all."""
    counts = {name: asdict(population.images(name)) for name in population.sources}
    total = {use: sum(count[use] for count in counts.values()) for use in ImageCount.model_fields}
    return ImagesByDomain(**total, domains={name: ImageCount(**count) for name, count in counts.items()})


def _readable(attack: Attack, adversary: ThreatModel, evaluator: Evaluator) -> Sequence[str]:
    """The kinds of artifact to evaluate: those that this adversary sees, and transferred ones that cannot be evaluated.

    If there are none, one kind, for which the reason is reported.
    """
    shared = [kind for kind in attack.kinds() if kind in evaluator.artifact_series]
    readable = [kind for kind in shared if evaluator.artifact_series[kind].refused(adversary) is None]
    not_evaluated = [kind for kind in attack.kinds() if kind in evaluator.method.disclosure().not_evaluated]
    return (readable or shared[:1]) + not_evaluated or attack.kinds()[:1]


def _scheduled(evaluations: Sequence[AttackEvaluation]) -> list[AttackEvaluation]:
    """Orders evaluations for threads: long ones first, and taken alternately from both ends of the list by kind.

    Long ones start early, so that no thread is left with one at the end. Two neighbours of one kind often need the same
    intermediate result, so that threads that work on them at once would wait for each other. Of one kind, those of one
    adversary come one after the other, since only the latest artifacts that it calibrates with are cached.
    """
    kinds = list(dict.fromkeys(evaluation.kind for evaluation in evaluations))
    roles = list(dict.fromkeys(evaluation.trials.threat.role for evaluation in evaluations))
    by_kind = sorted(
        evaluations, key=lambda evaluation: (kinds.index(evaluation.kind), roles.index(evaluation.trials.threat.role))
    )
    queue = deque(sorted(by_kind, key=lambda evaluation: not (evaluation.expensive or evaluation.draws_images)))
    return [queue.pop() if number % 2 else queue.popleft() for number in range(len(queue))]
