"""Client of a hypernetwork federation: trains the model generated for it and shares the update."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.state import Resumable

from ._federation import Batch, LocalSGD, train


class HyperClient(Resumable):
    """Answers ``fit`` with its model update, and ``use`` (the final model) with an empty message."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model",)

    def __init__(self, method: LocalSGD, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)

    def fit(self, message: Message) -> Message:
        """The update Delta: received minus trained model."""
        received = self._load(message)
        train(self.model, self.loss, self.data, self.method, received.round, self.rng)
        return [ModelUpdate.between(received, ModelState.of(self.model, self.data.client, received.round))]

    def use(self, message: Message) -> Message:
        """Keeps the final model and shares nothing."""
        self._load(message)
        return []

    def _load(self, message: Message) -> ModelState:
        (received,) = (artifact for artifact in message if isinstance(artifact, ModelState))
        received.load_into(self.model)
        return received

    def loss(self, batch: Batch) -> Tensor:
        """Loss of one mini-batch."""
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)
