"""The rounds of FedAvg: clients train, the server averages; optionally the best model by validation is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount, ValidationMetrics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Ask, Server
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.upload import Wanted
from fdgpriv.models.backbone import Classifier
from fdgpriv.results.utility import logits

from . import _wanted
from ._federation import Batch, FederatedSGD, load_average, model_state, shared_state, train

Weighting = Literal["samples", "uniform"]
Selection = Literal["last", "validation"]


@dataclass(frozen=True)
class FederatedAveraging(FederatedSGD):
    """What FedAvg and the methods that end in it share.

    Attributes:
        weighting: ``samples`` weighs clients by n_k, which they then share; ``uniform`` does not.
        selection: The server returns the ``last`` global model, or that of the best mean accuracy on the clients'
            held-out images (``validation``). Clients then share the accuracy of each global model they are sent, and
            the last one is sent out once more, to be measured.
    """

    weighting: Weighting = "samples"
    selection: Selection = "last"

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return Classifier(federation.backbone(rng), federation.classes, rng)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        best = _Best()
        for round in range(self.rounds):
            clients = federation.sample(self.participants, rng)
            state = shared_state(model, SERVER, round, self)
            wanted = self._wanted_fit(state)
            answers = yield Ask("fit", {client: [state] for client in clients}, reduce="mean", wanted=wanted)
            best.see(state, answers)
            load_average(model, list(model_state(answers).values()), self._weights(answers))
        if self.selection == "validation":
            state = shared_state(model, SERVER, self.rounds - 1, self)
            clients = federation.sample(self.participants, rng)
            wanted = [_wanted.accuracy(torch.float32)]
            message: dict[str, Message] = {client: [state] for client in clients}
            best.see(state, (yield Ask("validate", message, reduce="mean", after=self.rounds, wanted=wanted)))
            best.state.load_into(model)
        return model

    def _wanted_fit(self, state: ModelState) -> list[Wanted]:
        """What a client that is sent this model to train answers with."""
        wanted = [Wanted(state)]
        if self.weighting == "samples":
            wanted.append(_wanted.sample_count())
        if self.selection == "validation" and state.round > 0:
            wanted.append(_wanted.accuracy(torch.float32))
        return wanted

    def _weights(self, answers: Mapping[str, Message]) -> list[float] | None:
        if self.weighting == "uniform":
            return None
        return [float(a.count) for message in answers.values() for a in message if isinstance(a, SampleCount)]

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "AveragingClient":
        return AveragingClient(self, federation, data, rng)


@dataclass
class _Best:
    """The global model of the highest mean accuracy so far, the earlier one of two that are level."""

    accuracy: float = -1.0
    states: list[ModelState] = field(default_factory=list)

    @property
    def state(self) -> ModelState:
        return self.states[0]

    def see(self, state: ModelState, answers: Mapping[str, Message]) -> None:
        """Compare the model that was sent with the best one, by what clients answer of it, if they do."""
        told = [float(a.accuracy) for m in answers.values() for a in m if isinstance(a, ValidationMetrics)]
        if told and (mean := sum(told) / len(told)) > self.accuracy:
            self.accuracy, self.states = mean, [state]


class AveragingClient:
    """Answers ``fit``: trains the global model on its own data; and ``validate``: its accuracy on held-out images."""

    def __init__(
        self, method: FederatedAveraging, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)
        if method.selection == "validation" and not len(data.held_out_labels):
            raise ValueError(
                f"{method.name()}.selection: want held-out images of every client to select by validation, "
                f"got none of {data.client}; use selection=last"
            )

    def fit(self, message: Message) -> Message:
        """The model after E local epochs, n_k where the average is weighted by it, and the accuracy it began with."""
        (state,) = (artifact for artifact in message if isinstance(artifact, ModelState))
        told = self.validate(message) if self.method.selection == "validation" and state.round > 0 else []
        state.load_into(self.model)
        train(self.model, self._loss, self.data, self.method, state.round, self.rng, self.device)
        answer: Message = [shared_state(self.model, self.data.client, state.round, self.method)]
        if self.method.weighting == "samples":
            count = torch.tensor(len(self.data))
            answer.append(SampleCount(client=self.data.client, round=state.round, count=count))
        return answer + told

    def validate(self, message: Message) -> Message:
        """The accuracy of the model it is sent on its held-out images."""
        (state,) = (artifact for artifact in message if isinstance(artifact, ModelState))
        state.load_into(self.model)
        found = logits(self.model, self.data.held_out_images, self.device).argmax(1)
        accuracy = (found == self.data.held_out_labels).float().mean()
        return [ValidationMetrics(client=self.data.client, round=state.round, accuracy=accuracy)]

    def _loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)
