"""Evaluates one attack by one adversary on one kind of artifact, and stores the scores for a resumed run.

They are stored in ``scores/CELL/ATTACK@ROLE-KIND.json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from fdgpriv.evaluation.planted import planted_power, undecided
from fdgpriv.evaluation.scores import averaged, evaluate_trials
from fdgpriv.evaluation.too_little import too_little
from fdgpriv.evaluation.units import attacked_clients
from fdgpriv.metrics.matching import first_match
from fdgpriv.results import figures
from fdgpriv.targets.ground_truth import GroundTruth
from fdgpriv.targets.simulator import Simulator
from fdgpriv.targets.target import Target
from fdgpriv.utils.checksum import read_json, write_json
from fdgpriv.utils.file_names import slug
from fdgpriv.utils.seeds import generator

Predicted = Mapping[int | None, Sequence[tuple[GroundTruth, Mapping[str, Prediction]]]]
_SCORES = TypeAdapter(AttackScores)


def scores_file(out: Path, cell: str, spec: str, role: str, kind: str) -> Path:
    """The file that stores the scores of one evaluation."""
    return out / "scores" / cell / f"{slug(spec)}@{role}-{kind}.json"


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
        asking: How many attacks ask the same question of the same artifacts by the same adversary, this one included.
    """

    trials: AttackTrials
    spec: str
    kind: str
    few: bool
    out: Path
    cell: str
    repeats: int = 1
    asking: int = 1

    def run(self) -> AttackScores:
        """The scores: loaded where they are stored already, else computed and stored."""
        file = self._file
        if file.is_file():
            return read_json(file, _SCORES)
        start = perf_counter()
        found = self._of(**self._found())
        found = found.model_copy(update={"planted": self._planted(found)})
        found = found.model_copy(update={"attack_s": perf_counter() - start})
        write_json(file, found.model_dump_json().encode())
        return found

    def pending(self, reason: str) -> AttackScores:
        """What stands for its scores while it has none: only the reason."""
        return AttackScores.of(self.trials.attack, self.trials.threat, self.kind, not_applicable=reason)

    @property
    def key(self) -> str:
        """Its name, unique over all cells."""
        return f"{self.cell}/{self.spec}@{self.trials.threat.role} on {self.kind}"

    @property
    def draws_images(self) -> bool:
        """Whether it is a reconstruction attack, which takes longest."""
        return self.trials.attack.task.draws_images

    @property
    def expensive(self) -> bool:
        """Whether simulating an artifact is expensive."""
        return self._target is not None and self._target.expensive

    @property
    def _file(self) -> Path:
        return scores_file(self.out, self.cell, self.spec, self.trials.threat.role, self.kind)

    @property
    def _target(self) -> Target[Simulator] | None:
        return self.trials.evaluator.targets.get(self.kind)

    def _of(self, **found: Any) -> AttackScores:
        """Scores with these fields and the target's level."""
        attack, target, population = self.trials.attack, self._target, self.trials.evaluator.population
        attacked = tuple(population.clients) if target is None else attacked_clients(population, target)
        on_wire = target is not None and (target.level == "image" or None in attack.sizes(target))
        return AttackScores.of(
            attack,
            self.trials.threat,
            self.kind,
            level=target.level if target is not None and on_wire else "image",
            shared=on_wire,
            shadows=tuple(sorted(set(attacked) & set(population.shadows))),
            domains={name: population.sources[population.main_domain(name)] for name in attacked},
            **found,
        )

    def _found(self) -> dict[str, Any]:
        """The fields of the scores, or why there are none."""
        trials, target = self.trials, self._target
        evaluator, attack, threat = trials.evaluator, trials.attack, trials.threat
        if target is None:
            kinds = " and no ".join(kind.replace("_", " ") for kind in attack.kinds())
            return {"not_applicable": f"{evaluator.method.name()} shares no {kinds}"}
        reason = (
            target.refused(threat)
            or attack.inapplicable(target)
            or too_little(evaluator.population, evaluator.federation.classes, target, threat)
        )
        if reason is not None:
            return {"not_applicable": reason}
        rng = generator(evaluator.seed, 8)
        adversaries = trials.adversaries(target, trials.sizes(target))
        if not adversaries:
            return {"not_applicable": f"no client was sent another client's {self.kind.replace('_', ' ')}"}
        scores, predicted = evaluate_trials(attack, adversaries, (1, None), rng)
        again = [generator(evaluator.seed, 8, i) for i in range(1, self.repeats)]
        more = [evaluate_trials(attack, adversaries, (1, None), own)[0] for own in again]
        scores = {size: averaged([at, *(one[size] for one in more)]) for size, at in scores.items()}
        adversary, first = adversaries[0].adversary, adversaries[0].trials[0]
        layers = by_layer(trials, target, scores, self.few, rng)
        return {
            "by_size": scores,
            "ablations": layers or by_variant(attack, self.kind, adversaries, scores, self.few, rng),
            "ablation": "variant" if attack.variants(self.kind) else "layer",
            "undefended": undefended(trials, self.kind, target, scores, rng),
            "unaware": unaware(trials, target, self.repeats, self.few, generator(evaluator.seed, 8)),
            "auxiliary_images": sum(len(domain) for domain in adversary.auxiliary),
            "chance": attack.task.chance(adversary, first.truth),
            "figures": self._grid(predicted) if self.draws_images else (),
            "by_rounds": by_rounds(trials, target, self.few, rng),
        }

    def _planted(self, found: AttackScores) -> dict[str, float]:
        """By scope, how often a planted leak is found, where a verdict depends on it."""
        target, trials = self._target, self.trials
        if target is None or found.not_applicable or 1 not in found.by_size:
            return {}
        tests = attack_tests({"": found}, trials.evaluator.seed, sharp=False)[""]
        scopes = undecided(found, tests, self.asking)
        if not scopes:
            return {}
        adversaries = trials.adversaries(target, trials.sizes(target))
        return planted_power(trials, adversaries, found, scopes, generator(trials.evaluator.seed, 41))

    def _grid(self, predicted: Predicted) -> tuple[str, ...]:
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            targets = predicted.get(size, [])
            chosen = [(truth.images[0], _one_image_each(truth, predictions)) for truth, predictions in targets]
            rows += figures.rows_of(chosen, count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(targets))
        path = Path("figures") / self.cell / self._file.with_suffix(".png").name
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)


def _one_image_each(truth: GroundTruth, predictions: Mapping[str, Prediction]) -> dict[str, Tensor]:
    """One image (3, H, W) of each prediction: itself, or the image of a set that is matched to the first true image."""
    return {name: p if p.ndim == 3 else first_match(p, truth.images) for name, p in predictions.items()}
