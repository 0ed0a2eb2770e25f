"""FedAvg: clients train, the server averages (McMahan et al., AISTATS 2017). The reference of every audit."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, Message, ModelState, SampleCount
from fdgpriv.federation import Federation, LocalData
from fdgpriv.models.backbone import Classifier
from fdgpriv.roles import Ask, Server

from ._federation import Batch, FederatedSGD, load_average, model_state, shared_state, train


@dataclass(frozen=True)
class FedAvg(FederatedSGD):
    """Federated averaging; the defaults are the baseline's settings in StableFDG's experiments.

    Attributes:
        weighting: ``samples`` weighs clients by n_k, which they then share; ``uniform`` does not.
    """

    weighting: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting not in ("samples", "uniform"):
            raise ValueError(f"fedavg.weighting: want samples or uniform, got {self.weighting!r}")

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return Classifier(federation.backbone(rng), federation.classes, rng)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        for round in range(self.rounds):
            clients = federation.sample(self.participants, rng)
            state = shared_state(model, SERVER, round, self)
            answers = yield Ask("fit", {client: [state] for client in clients}, reduce="mean")
            load_average(model, list(model_state(answers).values()), self._weights(answers))
        return model

    def _weights(self, answers: Mapping[str, Message]) -> list[float] | None:
        if self.weighting == "uniform":
            return None
        return [float(a.count) for message in answers.values() for a in message if isinstance(a, SampleCount)]

    def client(self, federation: Federation, data: LocalData, rng: torch.Generator) -> "FedAvgClient":
        return FedAvgClient(self, federation, data, rng)


class FedAvgClient:
    """Answers ``fit``: trains the global model on its own data."""

    def __init__(self, method: FedAvg, federation: Federation, data: LocalData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)

    def fit(self, message: Message) -> Message:
        """The model after E local epochs, and n_k where the average is weighted by it."""
        (state,) = (artifact for artifact in message if isinstance(artifact, ModelState))
        state.load_into(self.model)
        train(self.model, self._loss, self.data, self.method, state.round, self.rng, self.device)
        answer: Message = [shared_state(self.model, self.data.client, state.round, self.method)]
        if self.method.weighting == "samples":
            count = torch.tensor(len(self.data))
            answer.append(SampleCount(client=self.data.client, round=state.round, count=count))
        return answer

    def _loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)
