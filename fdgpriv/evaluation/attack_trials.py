"""One attack by one adversary against one evaluator: the trials it is given, and its scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fdgpriv.attack import Attack
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import ScoresByTask, evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.threat import ThreatModel


@dataclass(frozen=True, eq=False)
class AttackTrials:
    """An attack, its threat model, and the evaluator that lays out its trials.

    Attributes:
        evaluator: The federation's evaluator.
        attack: The configured attack.
        threat: The threat model.
        curve: Whether artifacts of several images are evaluated between those of one and those of the whole client.
        know_defense: Whether adversaries simulate and calibrate with the defense.
    """

    evaluator: Evaluator
    attack: Attack
    threat: ThreatModel
    curve: bool = True
    know_defense: bool = True

    def sizes(self, series: ArtifactSeries[Simulator]) -> tuple[int | None, ...]:
        """The numbers of images of evaluated artifacts.

        For a global artifact, one image and all; for an artifact that needs all clients, all.
        """
        return tuple(size for size in self._supported_sizes(series) if self.curve or size in (1, None))

    def adversaries(self, series: ArtifactSeries[Simulator], sizes: Sequence[int | None]) -> list[AdversaryTrials]:
        """The adversaries, each with its trials of these sizes; they simulate artifacts of all supported sizes."""
        adversaries = self.evaluator.adversaries(
            series, self.threat, self._supported_sizes(series), self.attack.task, know_defense=self.know_defense
        )
        with_trials = [
            replace(
                adversary, trials=[t for t in adversary.trials if t.size in sizes and self.attack.task.askable(t.truth)]
            )
            for adversary in adversaries
        ]
        return [adversary for adversary in with_trials if adversary.trials]

    def _supported_sizes(self, series: ArtifactSeries[Simulator]) -> tuple[int | None, ...]:
        """The numbers of images that the attack and the evaluator support for this series."""
        sizes = self.attack.sizes(series)
        if series.is_global or series.needs_all_clients:
            sizes = tuple(size for size in sizes if size is None or (size == 1 and not series.needs_all_clients))
        return tuple(size for size in sizes if size is None or size in self.evaluator.per_client)

    def scores(
        self, series: ArtifactSeries[Simulator], sizes: Sequence[int | None], rng: torch.Generator
    ) -> dict[int | None, ScoresByTask]:
        """Scores by number of images of the artifact, and by task."""
        return evaluate_tasks(self.attack, self.adversaries(series, sizes), (), rng)[0]
