"""LSI's client: pretrains and shares its head, then trains with the translator and shares its model and importances."""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    ModelState,
    RepresentationTranslator,
)
from fdgpriv.artifacts.statistics import LabelMarginal, ValidationMetrics
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.state import Resumable
from fdgpriv.models.batchnorm import recalibrate
from fdgpriv.results.utility import logits

from ._federation import Batch, batches, shared_state, train
from ._importance import share, weighted
from ._latent_classifier import LatentClassifier
from ._lsi_settings import LSISettings
from ._translator import Translator
from ._translator_quality import relative_error


class LSIClient(Resumable):
    """Answers ``pretrain``, ``adopt``, ``fit``, ``weigh``, ``recalibrate`` and ``validate``."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "round", "start", "optimizer", "translator", "log")

    def __init__(
        self,
        method: LSISettings,
        model: LatentClassifier,
        federation: Federation,
        data: ClientData,
        rng: torch.Generator,
    ) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = model.to(self.device)
        self.clients = len(federation.clients)
        self.client_index = federation.clients.index(data.client)
        self.round = 0
        self.start: ModelState | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.translator: Translator | None = None
        self.log: dict[str, tuple[float, int]] = {}

    def blank(self, name: str) -> object:
        if name == "optimizer":
            return self.method.new_optimizer(self.model, self.round)
        if name == "translator":
            translator = Translator(self.method.latent_dim, self.clients, self.method.translator_settings, self.rng)
            return translator.requires_grad_(False).to(self.device)
        return super().blank(name)

    def pretrain(self, message: Message) -> Message:
        """Stage 1: trains on local data; returns the head, and label shares and sample count if the settings need them."""
        self._receive(message)
        if self.method.stage4_start == "global":
            self.start = ModelState.of(self.model, self.data.client, 0)
        if self.method.stage1_start == "own":
            self.model.reinitialise(self.rng)
            self.model.to(self.device)
        settings = replace(self.method, local_epochs=self.method.pretrain_epochs)
        train(self.model, self._cross_entropy, self.data, settings, 0, self.rng)
        self._log_stage1()
        name, answer = self.data.client, Message()
        if self.method.invariance:
            answer.append(ClassifierHead.of(self.model.head, name, 0))
            if self.method.inversion_labels == "marginal":
                counts = self.data.labels.bincount(minlength=self.data.classes)
                answer.append(LabelMarginal(client=name, round=0, share=counts / len(self.data)))
        return [*answer, *self.method.counted(self.data, 0)]

    def adopt(self, message: Message) -> Message:
        """End of stage 3: keeps the translator and shares nothing."""
        (artifact,) = (artifact for artifact in message if isinstance(artifact, RepresentationTranslator))
        self.translator = self.method.received(artifact, self.clients, self.rng).to(self.device)
        self._log_identity_error(self.translator)
        return []

    def fit(self, message: Message) -> Message:
        """Stage 4: the model after E epochs of Eq. 16, its importances, and the validation accuracy of the received model."""
        answer = Message()
        if message:
            self._receive(message)
            answer += self._validation_answer()
        elif self.start is not None:
            self.start.load_into(self.model)
        if self.optimizer is None or not self.method.keep_momentum:
            self.optimizer = self.method.new_optimizer(self.model, self.round)
        train(self.model, self.loss, self.data, self.method, self.round, self.rng, optimizer=self.optimizer)
        if self.method.aggregation != "mean":
            importances = self.method.importances(self.model, as_images(self.data.pixels))
            answer.append(ImportanceWeights(client=self.data.client, round=self.round, state=importances))
        if self.method.normaliser == "server":
            answer.append(self._shared_state())
        return answer

    def weigh(self, message: Message) -> Message:
        """Stage 5 if clients normalise: the model, with parameters multiplied by their importance weights.

        The client's own importances are sent back with the sum, as its defense released them, so that the weights sum to 1.
        """
        (total,) = (
            artifact for artifact in message if isinstance(artifact, ImportanceWeights) and artifact.client == SERVER
        )
        (own_importances,) = (
            artifact for artifact in message if isinstance(artifact, ImportanceWeights) and artifact.client != SERVER
        )
        state = self._shared_state()
        participants = min(self.method.participants or self.clients, self.clients)
        weighted_parameters = weighted(state.state, share(own_importances.state, total.state, participants))
        return [
            replace(state, state=state.state | {name: tensor.float() for name, tensor in weighted_parameters.items()})
        ]

    def recalibrate(self, message: Message) -> Message:
        """BatchNorm statistics of the aggregated model, recomputed on local data."""
        self._receive(message)
        index = batches(len(self.data), self.method.batch_size, self.rng)
        statistics = recalibrate(self.model, [self.data.pixels[i] for i in index])
        return [BatchNormStatistics(client=self.data.client, round=self.round, state=statistics)]

    def validate(self, message: Message) -> Message:
        """Accuracy of the received model on held-out images."""
        self._receive(message)
        return self._validation_answer()

    def _receive(self, message: Message) -> None:
        for artifact in message:
            if isinstance(artifact, ModelState):
                artifact.load_into(self.model)
                self.round = artifact.round

    def _shared_state(self) -> ModelState:
        return shared_state(self.model, self.data.client, self.round, self.method)

    def _validation_answer(self) -> Message:
        images, labels = self.data.held_out_pixels, self.data.held_out_labels
        if self.method.select != "validation" or not len(labels):
            return []
        accuracy = (logits(self.model, images).argmax(1) == labels).double().mean()
        return [ValidationMetrics(client=self.data.client, round=self.round, accuracy=accuracy)]

    def _log_stage1(self) -> None:
        """Logs the accuracy of the stage-1 model on the client's own training images, in evaluation mode."""
        correct = logits(self.model, self.data.pixels).argmax(1) == self.data.labels
        accuracy = float(correct.float().mean())
        self.log |= {"stage1_accuracy": (accuracy, 1), "stage1_accuracy_min": (accuracy, 1)}

    @torch.no_grad()
    def _log_identity_error(self, translator: Translator) -> None:
        """Logs the relative error of translating real latents to the client's own domain."""
        self.model.eval()
        batches = (as_images(batch).to(self.device) for batch in self.data.pixels.split(64))
        latents = torch.cat([self.model.embedding(batch) for batch in batches])
        own_index = torch.full((len(latents),), self.client_index, device=self.device)
        self.log["identity_error_real"] = (relative_error(translator(latents, own_index, own_index), latents), 1)

    def _cross_entropy(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch.images), batch.labels)

    def loss(self, batch: Batch) -> Tensor:
        """Eq. 16: cross-entropy, and the distance of each latent to its translation to a randomly drawn client."""
        latents = self.model.embedding(batch.images)
        loss = nn.functional.cross_entropy(self.model.head(latents), batch.labels)
        if self.translator is None:
            return loss
        other = torch.randint(self.clients, (len(latents),), generator=self.rng).to(self.device)
        squared = (latents - self.translator(latents, torch.full_like(other, self.client_index), other)).square()
        distance = squared.mean() if self.method.invariance_distance == "mean" else squared.sum(1).mean()
        total, count = self.log.get("invariance_loss", (0.0, 0))
        self.log["invariance_loss"] = (total + float(distance.detach()), count + 1)
        combined: Tensor = loss + self.method.invariance * distance
        return combined
