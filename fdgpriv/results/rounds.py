"""Evaluates the models of a training's rounds, outside the federation, and prints the training's progress."""

from collections.abc import Mapping
from typing import ClassVar

from rich.progress import TaskID
from torch import nn

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.federation.partition import Population
from fdgpriv.federation.state import Resumable
from fdgpriv.results.round_log import RoundLog
from fdgpriv.results.selection import rounds_to_try
from fdgpriv.results.utility import personal_utility, utility
from fdgpriv.results.utility_finding import PersonalUtility, Utility
from fdgpriv.utils.console import ProgressLog

SHARE = 3  # during training, each client's personalised model is evaluated on every third target image


class RoundEvaluation(Resumable):
    """The callbacks of an engine in one training.

    Args:
        name: Of the training, for progress lines.
        population: The evaluation data.
        rounds: Number of rounds.
        personal: Whether clients receive different models.
        own_statistics: As of `utility`.
        model: Any model of the method, on the device of the evaluation; overwritten.
        progress: Prints progress.
        log: Receives the accuracies of each evaluated round.

    Attributes:
        evaluated: By number of completed rounds, the utility of the model.
        task: The training on the progress display.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ("latest", "stored")

    def __init__(
        self,
        name: str,
        population: Population,
        rounds: int,
        personal: bool,
        own_statistics: bool,
        model: nn.Module,
        progress: ProgressLog,
        log: RoundLog,
    ) -> None:
        self.name, self.population, self.rounds, self.personal = name, population, rounds, personal
        self.own_statistics, self.model, self.progress, self.log = own_statistics, model, progress, log
        self.evaluated: dict[int, Utility | PersonalUtility] = {}
        self.latest = -1
        self.task = progress.task(f"training {name}", rounds)
        self._stages: dict[str, TaskID] = {}  # by verb, requests before any model is sent
        self._evaluated_rounds = rounds_to_try(rounds, personal)

    @property
    def stored(self) -> dict[int, str]:
        """The per-round evaluations as JSON."""
        return {round: evaluation.model_dump_json() for round, evaluation in self.evaluated.items()}

    @stored.setter
    def stored(self, stored: dict[int, str]) -> None:
        kind = PersonalUtility if self.personal else Utility
        self.evaluated = {round: kind.model_validate_json(text) for round, text in stored.items()}

    def resumed(self) -> None:
        """Advances the progress display by the completed rounds."""
        for _ in range(self.latest):
            self.progress.step(self.task)
        self.progress.say(f"{self.name}: continues after round {max(0, self.latest)} of {self.rounds}")

    def on_answer(self, verb: str, answered: int, asked: int) -> None:
        """Shows the progress of a stage before the rounds."""
        if self.latest >= 0:
            return
        if verb not in self._stages:
            self._stages[verb] = self.progress.task(f"{self.name}: {verb}", asked)
        self.progress.step(self._stages[verb])
        if answered == asked:
            self.progress.done(self._stages[verb], f"{self.name}: {verb}, {asked} clients")

    def on_round(self, round: int, models: Mapping[str, ModelState]) -> None:
        """Evaluates the models after `round` rounds, by client, if this round is among those to be evaluated.

        Personal models are evaluated only if every client is sent its own, since a mean over some clients is another figure.
        """
        self.latest = round
        complete = not self.personal or models.keys() >= self.population.clients.keys()
        if round in self._evaluated_rounds and complete:
            evaluation = self.evaluated[round] = self._utility(models)
            self.log.write(round, figures(evaluation))
            self.progress.step(self.task, f"{self.name}: round {round} of {self.rounds}, {accuracies(evaluation)}")
        elif round > 0:
            self.progress.step(self.task, f"{self.name}: round {round} of {self.rounds}")

    def _utility(self, models: Mapping[str, ModelState]) -> Utility | PersonalUtility:
        if not self.personal:
            return utility(self._sent(models, next(iter(models))), self.population, self.own_statistics)
        arguments = (list(models), self.population)
        return personal_utility(lambda name: self._sent(models, name), *arguments, every=SHARE)

    def _sent(self, models: Mapping[str, ModelState], client: str) -> nn.Module:
        models[client].load_into(self.model)
        return self.model


def figures(evaluation: Utility | PersonalUtility) -> dict[str, float]:
    """The accuracies of one round by name, where there are any."""
    named = {"source_accuracy": evaluation.source_accuracy.value, "target_accuracy": evaluation.target_accuracy.value}
    return {name: value for name, value in named.items() if value is not None}


def accuracies(evaluation: Utility | PersonalUtility) -> str:
    """The accuracies as text, for progress lines."""
    figures = {"source": evaluation.source_accuracy, "target": evaluation.target_accuracy}
    texts = [f"{name} {'unknown' if f.value is None else f'{f.value:.3f}'}" for name, f in figures.items()]
    return ", ".join(texts)
