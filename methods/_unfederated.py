"""Training without a federation: a participant trains its own model for some rounds, and sends it only if it is released."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.state import Resumable
from fdgpriv.models.backbone import Classifier
from fdgpriv.utils.fields import PositiveInt

from ._federation import Batch, LocalSGD, shared_state, train


@dataclass(frozen=True)
class UnfederatedSGD(LocalSGD):
    """Local SGD on cross-entropy, as FedAvg's clients train, in which all take part in every round."""

    federated: ClassVar[bool] = False

    participants: PositiveInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.participants is not None:
            raise ValueError(
                f"{self.name()}.participants: want none, since nobody takes turns; got {self.participants}"
            )

    @property
    def coupling(self) -> None:
        return None

    def disclosure(self) -> Disclosure:
        return replace(super().disclosure(), otherwise=0)

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return self.local_training.network(Classifier(federation.backbone(rng), federation.classes, rng))

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "SolitaryTrainer":
        return SolitaryTrainer(self, federation, data, rng)


class SolitaryTrainer(Resumable):
    """Answers ``train`` with nothing, and ``release`` with the model that it has trained in all rounds."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "rounds")

    def __init__(self, method: LocalSGD, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng = method, data, rng
        self.model = method.model(federation, rng).to(federation.device)
        self.rounds = 0  # that it has trained

    def train(self, message: Message) -> Message:
        """Trains the model further for one round, from the one in the message if there is one."""
        for state in message:
            assert isinstance(state, ModelState)
            state.load_into(self.model)
        train(self.model, self.loss, self.data, self.method, self.rounds, self.rng)
        self.rounds += 1
        return []

    def release(self, message: Message) -> Message:
        """The model after the last round."""
        return [shared_state(self.model, self.data.client, self.rounds - 1, self.method)]

    def publish(self, message: Message) -> Message:
        """Receives the released model, as everybody does, and answers with nothing."""
        return []

    def loss(self, batch: Batch) -> Tensor:
        """Loss of one mini-batch."""
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)
