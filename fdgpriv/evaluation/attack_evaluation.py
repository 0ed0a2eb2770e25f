"""Evaluates one attack by one adversary on one kind of artifact, and stores the scores for a resumed run.

They are stored in ``scores/CELL/ATTACK@ROLE-KIND.json``; those of each further task that the same predictions answer in
``ATTACK@ROLE-KIND-TASK.json``. The scores of single candidates on whole clients' artifacts are in
``ATTACK@ROLE-KIND.csv.gz``, whose SHA-256 is in the first file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor

from fdgpriv.adversary import Prediction
from fdgpriv.evaluation.ablations import by_layer, by_rounds, by_variant, unaware, undefended
from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_tests import attack_tests
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.candidate_scores import candidate_scores
from fdgpriv.evaluation.planted import planted_power, undecided
from fdgpriv.evaluation.scores import ByTask, Predicted, PredictedTarget, averaged, evaluate_tasks
from fdgpriv.evaluation.too_little import too_little
from fdgpriv.evaluation.units import attacked_clients, candidate_pool
from fdgpriv.metrics.matching import first_match
from fdgpriv.results import figures
from fdgpriv.targets.ground_truth import GroundTruth
from fdgpriv.targets.simulator import Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.task import Task
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.checksum import check_files, digest, read_json, write_json
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.file_names import slug
from fdgpriv.utils.files import write_bytes
from fdgpriv.utils.seeds import generator

_SCORES = TypeAdapter(AttackScores)


def scores_file(out: Path, cell: str, spec: str, role: str, kind: str, implied: Task | None = None) -> Path:
    """The file that stores the scores of one evaluation, on the attack's own task or on one that this implies."""
    task = "" if implied is None else f"-{implied.name()}"
    return out / "scores" / cell / f"{slug(spec)}@{role}-{kind}{task}.json"


def candidates_file(scores: Path) -> Path:
    """The file that stores the scores of single candidates beside these scores."""
    return scores.with_name(f"{scores.name.removesuffix('.json')}.csv.gz")


@dataclass(frozen=True, eq=False)
class AttackEvaluation:
    """One attack by one adversary on one kind of artifact of one trained federation.

    Attributes:
        trials: The attack, its threat model and the evaluator.
        spec: The attack, as on the command line.
        kind: Of the artifacts, one of those the attack can use.
        few: Ablate only the layer on the wire and the last one, the first and the last variant, one round and all.
        out: The run's folder.
        cell: The name of the cell's folder.
        repeats: How often the attack is run, each time with its own randomness; scores are averaged.
        asking: By secret, how many attacks ask for it of the same artifacts by the same adversary, this one included.
    """

    trials: AttackTrials
    spec: str
    kind: str
    few: bool
    out: Path
    cell: str
    repeats: int = 1
    asking: Mapping[str, int] = field(default_factory=dict)

    def run(self) -> dict[str, AttackScores]:
        """The scores on each task, by key: loaded where they are stored already, else computed and stored.

        The first has the duration of all. A failed evaluation stores nothing.
        """
        files = {self._key(task): self._file(task) for task in self.trials.attack.tasks}
        if all(file.is_file() for file in files.values()):
            return {key: self._stored(file) for key, file in files.items()}
        start = perf_counter()
        several = attempt(self._computed)
        if isinstance(several, Failed):
            return self.failed(several.line)
        several[0] = several[0].model_copy(update={"attack_s": perf_counter() - start})
        for file, scores in zip(files.values(), several, strict=True):
            write_json(file, scores.model_dump_json().encode())
        return dict(zip(files, several, strict=True))

    @staticmethod
    def _stored(file: Path) -> AttackScores:
        scores = read_json(file, _SCORES)
        check_files(file.parent, scores.tables, remove=file)
        return scores

    def failed(self, line: str) -> dict[str, AttackScores]:
        """What stands for its scores where they cannot be computed."""
        reason = {"not_applicable": f"failed: {line}", "failed": True}
        several = attempt(lambda: {self._key(task): self._of(task, **reason) for task in self.trials.attack.tasks})
        if isinstance(several, Failed):
            return {key: one.model_copy(update=reason) for key, one in self.pending(line).items()}
        return several

    def _computed(self) -> list[AttackScores]:
        return self._with_planted([self._of(task, **found) for task, found in self._found()])

    def pending(self, reason: str) -> dict[str, AttackScores]:
        """What stands for its scores while it has none: only the reason."""
        attack, threat = self.trials.attack, self.trials.threat
        return {
            self._key(task): AttackScores.of(attack, threat, self.kind, task, not_applicable=reason)
            for task in attack.tasks
        }

    @property
    def key(self) -> str:
        """Its name, unique over all cells: the key of its scores on the attack's own task."""
        return self._key(self.trials.attack.task)

    def _key(self, task: Task) -> str:
        implied = "" if task is self.trials.attack.task else f", {task.name()}"
        return f"{self.cell}/{self.spec}@{self.trials.threat.role} on {self.kind}{implied}"

    @property
    def draws_images(self) -> bool:
        """Whether it is a reconstruction attack, which takes longest."""
        return self.trials.attack.task.draws_images

    @property
    def expensive(self) -> bool:
        """Whether simulating an artifact is expensive."""
        return self._target is not None and self._target.expensive

    def _file(self, task: Task) -> Path:
        implied = None if task is self.trials.attack.task else task
        return scores_file(self.out, self.cell, self.spec, self.trials.threat.role, self.kind, implied)

    @property
    def _target(self) -> Target[Simulator] | None:
        return self.trials.evaluator.targets.get(self.kind)

    def _of(self, task: Task, **found: Any) -> AttackScores:
        """Scores on one task with these fields and the target's level."""
        attack, target, population = self.trials.attack, self._target, self.trials.evaluator.population
        attacked = tuple(population.clients) if target is None else attacked_clients(population, target)
        on_wire = target is not None and (target.level == "image" or None in attack.sizes(target))
        return AttackScores.of(
            attack,
            self.trials.threat,
            self.kind,
            task,
            level=target.level if target is not None and on_wire else "image",
            shared=on_wire,
            shadows=tuple(sorted(set(attacked) & set(population.shadows))),
            domains={name: population.sources[population.main_domain(name)] for name in attacked},
            **found,
        )

    def _found(self) -> list[tuple[Task, dict[str, Any]]]:
        """For each task the fields of the scores, or why there are none."""
        trials, target = self.trials, self._target
        evaluator, attack = trials.evaluator, trials.attack
        reason = self._refused()
        adversaries = [] if target is None or reason is not None else trials.adversaries(target, trials.sizes(target))
        if target is None or not adversaries:
            reason = reason or f"no client was sent another client's {self.kind.replace('_', ' ')}"
            return [(task, {"not_applicable": reason}) for task in attack.tasks]
        rng = generator(evaluator.seed, 8)
        scores, predicted = evaluate_tasks(attack, adversaries, (1, None), rng)
        again = [generator(evaluator.seed, 8, i) for i in range(1, self.repeats)]
        more = [evaluate_tasks(attack, adversaries, (1, None), own)[0] for own in again]
        scores = {size: averaged([at, *(one[size] for one in more)]) for size, at in scores.items()}
        adversary, first = adversaries[0].adversary, adversaries[0].trials[0]
        views = [trials_of.adversary.view_read for trials_of in adversaries]
        rounds_read = max(1, *(len(view.rounds) for view in views))
        clients_read = 1 + max(view.others for view in views)
        ablations = by_layer(trials, target, scores, self.few, rng)
        ablations = ablations or by_variant(attack, self.kind, adversaries, scores, self.few, rng)
        bare = undefended(trials, self.kind, target, scores, rng)
        ignorant = unaware(trials, target, self.repeats, self.few, generator(evaluator.seed, 8))
        figures_of = self._grid(predicted) if self.draws_images else ()
        rounds = by_rounds(trials, target, self.few, rng)
        clients = scores[None][attack.task.name()].clients if None in scores else []
        tables = self._candidates(clients, predicted.get(None, []), target)

        def of(task: Task) -> dict[str, Any]:
            name = task.name()
            if (reason := task.inapplicable(target)) is not None:
                return {"not_applicable": reason}
            return {
                "by_size": {size: at[name] for size, at in scores.items() if name in at},
                "ablations": {what: at[name] for what, at in ablations.items() if name in at},
                "ablation": "variant" if attack.variants(self.kind) else "layer",
                "undefended": bare.get(name) if bare else None,
                "unaware": ignorant.get(name) if ignorant else None,
                "rounds_read": rounds_read,
                "clients_read": clients_read,
                "auxiliary_images": sum(len(domain) for domain in adversary.auxiliary),
                "chance": task.chance(adversary, first.truth),
                "figures": figures_of if task is attack.task else (),
                "by_rounds": [(count, size, at[name]) for count, size, at in rounds if name in at],
                "tables": tables if task is attack.task else {},
            }

        return [(task, of(task)) for task in attack.tasks]

    def _refused(self) -> str | None:
        """Why the attack is not evaluated here, in one sentence."""
        evaluator, attack, threat, target = self.trials.evaluator, self.trials.attack, self.trials.threat, self._target
        if target is None:
            kinds = " and no ".join(kind.replace("_", " ") for kind in attack.kinds())
            return f"{evaluator.method.name()} shares no {kinds}"
        return (
            target.refused(threat)
            or attack.inapplicable(target)
            or too_little(evaluator.population, evaluator.federation.classes, target, threat)
        )

    def _with_planted(self, several: Sequence[AttackScores]) -> list[AttackScores]:
        """The scores with, by scope, how often a planted leak is found, where a verdict depends on it."""
        trials, target, evaluated = self.trials, self._target, Cache[list[ByTask]]()
        seed, found = trials.evaluator.seed, []
        for one in several:
            scopes: list[str] = []
            if target is not None and not one.not_applicable and 1 in one.by_size:
                tests = attack_tests({"": one}, seed, sharp=False)[""]
                scopes = undecided(one, tests, self.asking.get(one.secret, 1))
            if target is not None and scopes:
                adversaries = trials.adversaries(target, trials.sizes(target))
                power = planted_power(trials, adversaries, one, scopes, generator(seed, 41), evaluated)
                one = one.model_copy(update={"planted": power})
            found.append(one)
        return found

    def _candidates(
        self, clients: Sequence[str], targets: Sequence[PredictedTarget], target: Target[Simulator]
    ) -> dict[str, str]:
        """Writes the scores of single candidates, if the attack has any; the file's name, and its SHA-256."""
        task, population = self.trials.attack.task, self.trials.evaluator.population
        table = candidate_scores(task, clients, targets, candidate_pool(population, target))
        if table is None:
            return {}
        file = candidates_file(self._file(task))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, table)
        return {file.name: digest(file)}

    def _grid(self, predicted: Predicted) -> tuple[str, ...]:
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            targets = predicted.get(size, [])
            chosen = [(truth.images[0], _one_image_each(truth, predictions)) for truth, predictions in targets]
            rows += figures.rows_of(chosen, count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(targets))
        path = Path("figures") / self.cell / self._file(self.trials.attack.task).with_suffix(".png").name
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)


def _one_image_each(truth: GroundTruth, predictions: Mapping[str, tuple[Prediction, GroundTruth]]) -> dict[str, Tensor]:
    """One image (3, H, W) of each prediction: itself, or the image of a set that is matched to the first true image."""
    return {name: p if p.ndim == 3 else first_match(p, truth.images) for name, (p, _) in predictions.items()}
