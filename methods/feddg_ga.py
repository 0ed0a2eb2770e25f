"""FedDG-GA: weights of clients that follow their generalisation gaps on held-out images (Zhang et al., CVPR 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.statistics import ModelEvaluation
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.results.utility import logits
from fdgpriv.utils.fields import OpenFraction, PositiveFloat, PositiveInt

from ._averaging import Aggregation, AveragingClient, FederatedAveraging, received
from ._federation import Schedule, load_average, model_state


@dataclass(frozen=True)
class FedDGGA(FederatedAveraging):
    """Every round each client shares two evaluations on its held-out images: of the model it received, and of the one it
    trained. A client whose received model is worse than the one it trained last gains weight.

    Weights start equal. With three clients a step is that of the released code, which divides it by three; here it is
    divided by the number of clients. Of clients that a round draws, all with weight 0, models are averaged equally.

    Attributes:
        metric: Of the evaluations: the ``loss``, as in the paper, or the ``accuracy``, the released code's default.
        step: Of the weights in the first round; it decreases linearly to 0 over the rounds.
        centred: Weights move by a gap less the mean gap of the round, instead of by the gap, as in the released code.
    """

    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet18", image_size=224)

    rounds: PositiveInt = 40
    participants: PositiveInt | None = None
    batch_size: PositiveInt = 16
    lr: PositiveFloat = 1e-3
    schedule: Schedule = "constant"
    weights: Literal["uniform"] = "uniform"
    metric: Literal["loss", "accuracy"] = "loss"
    step: OpenFraction = 0.2
    centred: bool = False

    @property
    def coupling(self) -> None:
        return None

    def disclosure(self) -> Disclosure:
        common = super().disclosure()
        uploads = (*common.uploads, ModelEvaluation.kind)
        often = {**common.often, ModelEvaluation.kind: 2 * self.rounds}
        return replace(common, uploads=uploads, individual=uploads, named=(ModelEvaluation.kind,), often=often)

    def step_at(self, round: int) -> float:
        """The step of the weights for the model that `round` ends with."""
        return self.step * (1 - round / self.rounds)

    def expected_fit(self, model: nn.Module, round: int) -> list[ExpectedArtifact]:
        template = ModelEvaluation(client=SERVER, round=0, value=torch.zeros(()), metric=self.metric, trained=False)
        evaluations = [ExpectedArtifact(replace(template, trained=trained)) for trained in (False, True)]
        return [*super().expected_fit(model, round), *evaluations]

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
        mean = sum(gaps.values()) / max(1, len(gaps)) if self.method.centred else 0.0
        changes = {client: gap - mean for client, gap in gaps.items()}
        self.client_weights = adjusted(self.client_weights, changes, self.method.step_at(round - 1))
        self.last |= {client: value for (client, is_trained), value in evaluations.items() if is_trained}
        states = model_state(answers)
        weights = [self.client_weights[client] for client in states]
        load_average(model, list(states.values()), weights if any(weights) else None)


def adjusted(weights: Mapping[str, float], changes: Mapping[str, float], step: float) -> dict[str, float]:
    """Weights a_i + step / N change_i / max |change|, clipped to [0, 1] and normalised to sum 1.

    Args:
        weights: Of all N clients; their sum is 1.
        changes: By client, how much worse the global model is than its own on its held-out images; if centred, less the
            mean over clients. Others keep their weight.
        step: In (0, 1).
    """
    largest = max((abs(change) for change in changes.values()), default=0.0)
    if not largest:
        return dict(weights)
    moved = {c: min(1.0, max(0.0, a + step / len(weights) * changes.get(c, 0.0) / largest)) for c, a in weights.items()}
    total = sum(moved.values())
    return {client: weight / total for client, weight in moved.items()}


class FedDGGAClient(AveragingClient):
    """Answers ``fit`` with its model and two evaluations."""

    method: FedDGGA

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if not len(self.data.held_out_labels):
            raise ValueError(f"feddg_ga: want held-out images of every client, got none of {self.data.client}")

    def fit(self, message: Message) -> Message:
        """As in federated averaging, and the metric of the received and of the trained model."""
        state = received(message)
        state.load_into(self.model)
        before = self._evaluation(state.round, trained=False)
        answer = super().fit(message)
        return [*answer, before, self._evaluation(state.round, trained=True)]

    def _evaluation(self, round: int, trained: bool) -> ModelEvaluation:
        outputs, labels = logits(self.model, self.data.held_out_pixels), self.data.held_out_labels
        accuracy = (outputs.argmax(1) == labels).float().mean()
        value = nn.functional.cross_entropy(outputs, labels) if self.method.metric == "loss" else accuracy
        client, metric = self.data.client, self.method.metric
        return ModelEvaluation(client=client, round=round, value=value, metric=metric, trained=trained)
