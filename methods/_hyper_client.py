"""A client of a federation with a hypernetwork: it trains the model that was made for it and answers with the change."""

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation

from ._federation import Batch, FederatedSGD, train


class HyperClient:
    """Answers ``fit`` with how training changed the model it was sent, and ``use``, the final model, with nothing."""

    def __init__(self, method: FederatedSGD, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)

    def fit(self, message: Message) -> Message:
        """Delta: the model it was sent minus the one it trained."""
        sent = self._load(message)
        train(self.model, self._loss, self.data, self.method, sent.round, self.rng, self.device)
        return [ModelUpdate.between(sent, ModelState.of(self.model, self.data.client, sent.round))]

    def use(self, message: Message) -> Message:
        """Keeps the final model; the server is told nothing."""
        self._load(message)
        return []

    def _load(self, message: Message) -> ModelState:
        (sent,) = (artifact for artifact in message if isinstance(artifact, ModelState))
        sent.load_into(self.model)
        return sent

    def _loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)
