"""Evaluates one attack by one adversary on one kind of artifact, and stores its score tables for a resumed run.

Scores on the attack's task and on each task that its predictions imply are stored in ``scores/CELL/ATTACK@ROLE-KIND.zip``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from fdgpriv.adversary import Prediction
from fdgpriv.attack import Attack
from fdgpriv.evaluation.ablations import by_layer, by_rounds, by_variant, unaware, undefended
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.candidate_table import candidate_table
from fdgpriv.evaluation.planted import planted_power, undecided
from fdgpriv.evaluation.scoring import PredictedBySize, ScoresByTask, averaged, evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.evaluation.units import (
    attacked_clients,
    candidate_pool,
    insufficient_data_reason,
    single_domain_reason,
)
from fdgpriv.metrics.matching import first_match
from fdgpriv.results import figures
from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.score_rows import rows_file, write_rows
from fdgpriv.results.score_tables import RunKey, ScoreTables
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.tasks.task import Task
from fdgpriv.threat import ThreatModel
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.failures import Failed, attempt, ends_the_run
from fdgpriv.utils.file_names import slug
from fdgpriv.utils.files import DamagedFile
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import AttackScores, from_tables, table_rows, to_tables
from fdgpriv.verdicts.attack_tests import early_evidence
from fdgpriv.verdicts.trial_scores import Condition, TrialScores


def scores_file(out: Path, cell: str, spec: str, role: str, kind: str) -> Path:
    """The file that stores the score tables of one evaluation."""
    return out / "scores" / cell / f"{slug(spec)}@{role}-{kind}.zip"


def attack_scores(
    attack: Attack, threat: ThreatModel, kind: str, task: Task | None = None, **scored: Any
) -> AttackScores:
    """Scores of an attack by an adversary on a kind of artifact: on the attack's task or on an implied one.

    `scored` are the fields of `AttackScores` that depend on neither the attack nor the task.
    """
    task = task or attack.task
    return AttackScores(
        attack=attack.name(),
        task=task.name(),
        secret=task.secret,
        metric=task.metric,
        higher_leaks=task.higher_leaks,
        bounds=task.bounds,
        perfect=task.perfect,
        scopes=task.scopes,
        relevant=task.relevant,
        relative_to=task.relative_to,
        exact=task.exact,
        budget=attack.budget(),
        single_images=attack.group_sizes is None or 1 in attack.group_sizes,
        threat=Threat(
            role=threat.role, auxiliary=str(threat.auxiliary), capabilities=tuple(sorted(threat.capabilities))
        ),
        kind=kind,
        **scored,
    )


@dataclass(frozen=True, eq=False)
class AttackEvaluation:
    """One attack by one adversary on one kind of artifact of one trained federation.

    Attributes:
        trials: The attack, its threat model and the evaluator.
        spec: The attack, as on the command line.
        kind: The kind of artifact, which the attack reads.
        few: Whether to evaluate only the ends of ablations: the shared and the last layer, the first and the last variant,
            one round and all.
        out: The run's folder.
        cell: The name of the cell's folder.
        run_key: Identifies the cell in the score tables.
        repeats: Number of runs of the attack with different random numbers; scores are averaged.
        asking: By secret, the number of attacks that predict it from the same artifacts by the same adversary.
    """

    trials: AttackTrials
    spec: str
    kind: str
    few: bool
    out: Path
    cell: str
    run_key: RunKey
    repeats: int = 1
    asking: Mapping[str, int] = field(default_factory=dict)

    def run(self) -> dict[str, AttackScores]:
        """By key, the scores on each task: loaded if they are stored, else computed and stored.

        The scores on the attack's own task have the duration. A failed evaluation stores nothing.
        """
        if self.file.is_file():
            return self._stored()
        start = perf_counter()
        evaluated = attempt(self._evaluated)
        if isinstance(evaluated, Failed):
            return self.failed(evaluated.line)
        scores, candidates = evaluated
        scores[self.key] = scores[self.key].model_copy(update={"attack_s": perf_counter() - start})
        self._store(scores, candidates)
        return scores

    def _store(self, scores: Mapping[str, AttackScores], candidates: pa.Table) -> None:
        """Stores the score tables; where that fails, their rows in `rows_file`.

        Raises:
            OSError: The disk is full; its text says where the rows are.
        """
        try:
            replace(to_tables(self.run_key, scores), candidates=candidates).save_archive(self.file)
        except Exception as error:
            rows = {**table_rows(self.run_key, scores), "candidates": candidates.to_pylist()}
            written = write_rows(self.file, rows)
            if ends_the_run(error) or written != rows_file(self.file):
                if isinstance(error, OSError) and written is not None:
                    error.filename = f"{self.file}, whose scores are in {written}"
                raise
        else:
            rows_file(self.file).unlink(missing_ok=True)  # of an earlier attempt

    def _stored(self) -> dict[str, AttackScores]:
        """The stored scores, by key; DamagedFile if the file is damaged or has other evaluations."""
        try:
            scores = from_tables(ScoreTables.load_archive(self.file))
        except ValueError as error:
            prefix = "" if str(self.file) in str(error) else f"{self.file}: "
            raise DamagedFile(f"{prefix}{error}; remove {self.file}, and --resume computes it again") from None
        keys = [self._key(task) for task in self.trials.attack.tasks]
        if list(scores) != keys:
            raise DamagedFile(
                f"want the evaluations {' and '.join(keys)} in {self.file}, got {' and '.join(scores) or 'none'}; "
                "remove it, and --resume computes it again"
            )
        return scores

    def failed(self, line: str) -> dict[str, AttackScores]:
        """The evaluation without scores, since computing them failed."""
        reason = {"not_applicable": f"failed: {line}", "failed": True}
        by_key = attempt(lambda: {self._key(task): self._scores(task, **reason) for task in self.trials.attack.tasks})
        if isinstance(by_key, Failed):
            return {key: scores.model_copy(update=reason) for key, scores in self.pending(line).items()}
        return by_key

    def pending(self, reason: str) -> dict[str, AttackScores]:
        """The evaluation without scores, for this reason."""
        attack, threat = self.trials.attack, self.trials.threat
        return {
            self._key(task): attack_scores(attack, threat, self.kind, task, not_applicable=reason)
            for task in attack.tasks
        }

    @property
    def key(self) -> str:
        """Its name, unique over all cells: the key of its scores on the attack's own task."""
        return self._key(self.trials.attack.task)

    def _key(self, task: Task) -> str:
        """The key of the scores on one of the attack's tasks."""
        implied = "" if task is self.trials.attack.task else f", {task.name()}"
        return f"{self.cell}/{self.spec}@{self.trials.threat.role} on {self.kind}{implied}"

    @property
    def file(self) -> Path:
        """The file that stores its score tables."""
        return scores_file(self.out, self.cell, self.spec, self.trials.threat.role, self.kind)

    @property
    def draws_images(self) -> bool:
        """Whether it is a reconstruction attack, which takes longest."""
        return self.trials.attack.task.draws_images

    @property
    def expensive(self) -> bool:
        """Whether simulating an artifact is expensive."""
        return self._series is not None and self._series.expensive

    @property
    def _series(self) -> ArtifactSeries[Simulator] | None:
        return self.trials.evaluator.artifact_series.get(self.kind)

    def _scores(self, task: Task, **scored: Any) -> AttackScores:
        """Scores on one task, with the level, clients and domains of the series."""
        attack, series, population = self.trials.attack, self._series, self.trials.evaluator.population
        attacked = tuple(population.clients) if series is None else attacked_clients(population, series)
        on_wire = series is not None and (series.level == "image" or None in attack.sizes(series))
        return attack_scores(
            attack,
            self.trials.threat,
            self.kind,
            task,
            level=series.level if series is not None and on_wire else "image",
            shared=on_wire,
            shadows=tuple(sorted(set(attacked) & set(population.shadows))),
            domains={name: population.sources[population.main_domain(name)] for name in attacked},
            **scored,
        )

    def _evaluated(self) -> tuple[dict[str, AttackScores], pa.Table]:
        """By key the scores on each task, and the table of candidates."""
        trials, series, no_candidates = self.trials, self._series, ScoreTables.of_rows({}).candidates
        reason = self.refusal()
        adversaries = [] if series is None or reason is not None else trials.adversaries(series, trials.sizes(series))
        if series is None or not adversaries:
            reason = reason or f"no client was sent another client's {self.kind.replace('_', ' ')}"
            tasks = trials.attack.tasks
            return {self._key(task): self._scores(task, not_applicable=reason) for task in tasks}, no_candidates
        rng = generator(trials.evaluator.seed, 8)
        by_size, predicted = self._by_size(adversaries, rng)
        view_counts = _view_counts(adversaries, len(trials.evaluator.population.clients))
        conditions = self._by_condition(series, adversaries, by_size, rng)
        images = self._image_grid(predicted) if self.draws_images else ()
        adversary, truth = adversaries[0].adversary, adversaries[0].trials[0].truth
        evaluated = {}
        for task in trials.attack.tasks:
            if (reason := task.inapplicable(series)) is not None:
                evaluated[self._key(task)] = self._scores(task, not_applicable=reason)
                continue
            evaluated[self._key(task)] = self._scores(
                task,
                conditions=_task_scores(task, conditions),
                fingerprint=self._fingerprint(task, by_size, series),
                chance=task.chance(adversary, truth),
                figures=images if task is trials.attack.task else (),
                **view_counts,
            )
        candidates = self._candidates(by_size, predicted, series)
        return self._with_planted_power(evaluated, series), candidates

    def _by_size(
        self, adversaries: Sequence[AdversaryTrials], rng: torch.Generator
    ) -> tuple[dict[int | None, ScoresByTask], PredictedBySize]:
        """By number of images, the scores as configured, averaged over repeats, and the predictions of the first one."""
        attack, seed = self.trials.attack, self.trials.evaluator.seed
        by_size, predicted = evaluate_tasks(attack, adversaries, (1, None), rng)
        repeats = [
            evaluate_tasks(attack, adversaries, (1, None), generator(seed, 8, repeat))[0]
            for repeat in range(1, self.repeats)
        ]
        return {
            size: averaged([scores, *(repeat[size] for repeat in repeats)]) for size, scores in by_size.items()
        }, predicted

    def _by_condition(
        self,
        series: ArtifactSeries[Simulator],
        adversaries: Sequence[AdversaryTrials],
        by_size: Mapping[int | None, ScoresByTask],
        rng: torch.Generator,
    ) -> dict[Condition, ScoresByTask]:
        """By condition, the scores as configured, of ablations, the positive control, an unaware adversary, and by rounds."""
        trials = self.trials
        conditions = {Condition(n_images=size): by_task for size, by_task in by_size.items()}
        conditions |= by_layer(trials, series, by_size, self.few, rng) or by_variant(
            trials, self.kind, adversaries, by_size, self.few, rng
        )
        conditions |= undefended(trials, self.kind, series, by_size, rng)
        conditions |= unaware(trials, series, self.repeats, self.few, generator(trials.evaluator.seed, 8))
        return conditions | by_rounds(trials, series, self.few, rng)

    def refusal(self) -> str | None:
        """Why the attack is not evaluated on these artifacts, in one sentence; None if it is."""
        evaluator, attack, threat, series = self.trials.evaluator, self.trials.attack, self.trials.threat, self._series
        if (not_evaluated := evaluator.method.disclosure().not_evaluated.get(self.kind)) is not None:
            return not_evaluated
        if series is None:
            kinds = " and no ".join(kind.replace("_", " ") for kind in attack.kinds())
            return f"{evaluator.method.name()} shares no {kinds}"
        return (
            series.refused(threat)
            or attack.inapplicable(series)
            or (evaluator.overflow_reason(series) if attack.evaluates_models else None)
            or single_domain_reason(evaluator.population, series, attack.task)
            or insufficient_data_reason(evaluator.population, evaluator.federation.classes, series, threat)
        )

    def _fingerprint(
        self, task: Task, by_size: Mapping[int | None, ScoresByTask], series: ArtifactSeries[Simulator]
    ) -> str:
        """SHA-256 of the predictions on the shared artifacts; empty if these are not evaluated."""
        scores = by_size.get(1 if series.level == "image" else None, {}).get(task.name())
        return "" if scores is None else scores.fingerprint

    def _with_planted_power(
        self, evaluated: Mapping[str, AttackScores], series: ArtifactSeries[Simulator]
    ) -> dict[str, AttackScores]:
        """The scores with the power for a planted leak, by scope, if the verdict depends on it."""
        trials, planted_scores = self.trials, Cache[list[ScoresByTask]]()
        seed, with_power = trials.evaluator.seed, {}
        for key, scores in evaluated.items():
            scopes: list[str] = []
            if not scores.not_applicable and 1 in scores.by_size:
                scopes = undecided(scores, early_evidence(scores, seed), self.asking.get(scores.secret, 1))
            if scopes:
                adversaries = trials.adversaries(series, trials.sizes(series))
                power = planted_power(trials, adversaries, scores, scopes, generator(seed, 41), planted_scores)
                scores = scores.model_copy(update={"planted": power})
            with_power[key] = scores
        return with_power

    def _candidates(
        self, by_size: Mapping[int | None, ScoresByTask], predicted: PredictedBySize, series: ArtifactSeries[Simulator]
    ) -> pa.Table:
        """The table of single candidates' scores on whole clients' artifacts; without rows if the attack has none."""
        task, pool = self.trials.attack.task, candidate_pool(self.trials.evaluator.population, series)
        clients = by_size[None][task.name()].clients if None in by_size else []
        return candidate_table(self.key, task, clients, predicted.get(None, []), pool)

    def _image_grid(self, predicted: PredictedBySize) -> tuple[str, ...]:
        """Draws reconstructions of single images and of whole clients; the figure's path in the run's folder."""
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            trials = predicted.get(size, [])
            chosen = [(truth.images[0], _one_image_each(truth, predictions)) for truth, predictions in trials]
            rows += figures.rows_of(chosen, count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(trials))
        path = Path("figures") / self.cell / self.file.with_suffix(".png").name
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)


def _view_counts(adversaries: Sequence[AdversaryTrials], n_clients: int) -> dict[str, int]:
    """The numbers of rounds, clients and auxiliary images that these adversaries read.

    Of a shadow client's artifact the others are all clients of the federation, so that the federation's size is the limit.
    """
    views = [adversary_trials.adversary.view_read for adversary_trials in adversaries]
    return {
        "rounds_read": max(1, *(len(view.rounds) for view in views)),
        "clients_read": min(1 + max(view.others for view in views), max(1, n_clients)),
        "auxiliary_images": sum(len(domain) for domain in adversaries[0].adversary.auxiliary),
    }


def _task_scores(task: Task, conditions: Mapping[Condition, ScoresByTask]) -> dict[Condition, TrialScores]:
    """By condition, the scores on one task."""
    return {condition: by_task[task.name()] for condition, by_task in conditions.items() if task.name() in by_task}


def _one_image_each(truth: GroundTruth, predictions: Mapping[str, tuple[Prediction, GroundTruth]]) -> dict[str, Tensor]:
    """By role, one predicted image (3, H, W): of a set, the image that is matched to the first true image."""
    return {
        role: prediction if prediction.ndim == 3 else first_match(prediction, truth.images)
        for role, (prediction, _) in predictions.items()
    }
