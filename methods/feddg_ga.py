"""FedDG-GA: weights of clients that follow their generalisation gaps on held-out images (Zhang et al., CVPR 2023)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.statistics import ModelEvaluation
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.utils.fields import OpenFraction, PositiveFloat, PositiveInt

from . import _expected_answers
from ._averaging import Aggregation, FederatedAveraging, StatefulClient, received
from ._federation import Schedule, load_average, model_state
from ._model_evaluation import Metric, evaluations, want_held_out

_ROUNDING = 1e-9  # of gaps that are equal


@dataclass(frozen=True)
class FedDGGA(FederatedAveraging):
    """Every round each client shares two evaluations on its held-out images: of the model it received, and of the one it
    trained. A client's gap is how much worse the received model is than the one that it trained the round before. Clients
    whose gap is above the mean gain weight, the others lose.

    Weights start equal. Where all clients of a round have weight 0, their models are averaged equally. A client's optimiser
    keeps its momentum from round to round, as in the released code, of which ``paper`` has the crops and colours; the
    learning rate falls to a tenth after 80 % of the rounds, as there.

    The paper has three clients, whose weights of a third move by at most `step` of 0.2. ``quick``, for 6 clients, and
    ``default``, for 30, have the same step relative to an equal weight: 0.1 and 0.02.

    Attributes:
        metric: Of the evaluations: the ``loss``, as in the paper, or the ``accuracy``, the released code's default.
        step: Largest change of a weight in the first round; it decreases linearly to 0 over the rounds.
        code_compat: Weights as in the released code: gaps are not centred, a step is divided by 3, weights are clipped at 1
            too, and the step decreases one round later.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**FederatedAveraging.presets["quick"], "step": 0.1},
        "default": {**FederatedAveraging.presets["default"], "step": 0.02},
        "paper": {"image_changes": "crop_strong_colour"},
    }
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet18", image_size=224)

    rounds: PositiveInt = 40
    participants: PositiveInt | None = None
    batch_size: PositiveInt = 16
    lr: PositiveFloat = 1e-3
    schedule: Schedule = "step_late"
    weights: Literal["uniform"] = "uniform"
    metric: Metric = "loss"
    step: OpenFraction = 0.2
    code_compat: bool = False

    @property
    def coupling(self) -> None:
        return None

    def disclosure(self) -> Disclosure:
        common = super().disclosure()
        uploads = (*common.uploads, ModelEvaluation.kind)
        often = {**common.often, ModelEvaluation.kind: 2 * self.rounds}
        return replace(common, uploads=uploads, individual=uploads, named=(ModelEvaluation.kind,), often=often)

    def step_at(self, round: int) -> float:
        """The step of the weights by the gaps of the model that `round` ends with."""
        return self.step * (1 - (round - self.code_compat) / self.rounds)

    def adjusted(self, weights: Mapping[str, float], gaps: Mapping[str, float], round: int) -> dict[str, float]:
        """The weights of all clients after these gaps of the model that `round` ended with."""
        if self.code_compat:
            return moved(weights, gaps, self.step_at(round) / 3, most=1.0)
        mean = sum(gaps.values()) / max(1, len(gaps))
        return moved(weights, {client: gap - mean for client, gap in gaps.items()}, self.step_at(round))

    def expected_fit(self, model: nn.Module, round: int) -> list[ExpectedArtifact]:
        expected = [_expected_answers.evaluation(self.metric, trained) for trained in (False, True)]
        return [*super().expected_fit(model, round), *expected]

    def aggregation(self, federation: Federation) -> "GeneralizationAdjustment":
        return GeneralizationAdjustment(self, federation)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "FedDGGAClient":
        return FedDGGAClient(self, federation, data, rng)


class GeneralizationAdjustment(Aggregation):
    """Averages by weights that grow with the gap between the global model and each client's own."""

    checkpointed: ClassVar[tuple[str, ...]] = ("client_weights", "last")

    method: FedDGGA

    def __init__(self, method: FedDGGA, federation: Federation) -> None:
        super().__init__(method)
        self.client_weights = dict.fromkeys(federation.clients, 1 / len(federation.clients))
        self.last: dict[str, float] = {}  # by client, the evaluation of the model it trained last

    def merge(self, model: nn.Module, answers: Answers, round: int) -> None:
        evaluations = {
            (client, artifact.trained): float(artifact.value)
            for client, message in answers.items()
            for artifact in message
            if isinstance(artifact, ModelEvaluation)
        }
        sign = 1 if self.method.metric == "loss" else -1
        gaps = {
            client: sign * (value - self.last[client])
            for (client, is_trained), value in evaluations.items()
            if not is_trained and client in self.last
        }
        self.client_weights = self.method.adjusted(self.client_weights, gaps, round - 1)
        self.last |= {client: value for (client, is_trained), value in evaluations.items() if is_trained}
        states = model_state(answers)
        weights = [self.client_weights[client] for client in states]
        load_average(model, list(states.values()), weights if any(weights) else None)


def moved(
    weights: Mapping[str, float], changes: Mapping[str, float], step: float, most: float = math.inf
) -> dict[str, float]:
    """Weights a_i + step change_i / max |change|, clipped to [0, `most`] and normalised to sum 1.

    The same weights where no change exceeds the rounding of evaluations, or where all of them would be clipped to 0.

    Args:
        weights: Of all N clients; their sum is 1.
        changes: By client. Others keep their weight.
        step: Largest change of a weight.
        most: Largest weight before the normalisation.
    """
    largest = max((abs(change) for change in changes.values()), default=0.0)
    if largest < _ROUNDING:
        return dict(weights)
    clipped = {c: min(most, max(0.0, a + step * changes.get(c, 0.0) / largest)) for c, a in weights.items()}
    total = sum(clipped.values())
    return {client: weight / total for client, weight in clipped.items()} if total else dict(weights)


class FedDGGAClient(StatefulClient):
    """Answers ``fit`` with its model and two evaluations."""

    method: FedDGGA

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        want_held_out(self.method, self.data)

    def fit(self, message: Message) -> Message:
        """As in federated averaging, and the metric of the received and of the trained model."""
        state = received(message)
        state.load_into(self.model)
        metrics = (self.method.metric,)
        before = evaluations(self.model, self.data, state.round, metrics, trained=False)
        answer = super().fit(message)
        return [*answer, *before, *evaluations(self.model, self.data, state.round, metrics, trained=True)]
