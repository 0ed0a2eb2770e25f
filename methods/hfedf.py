"""hFedF: hypernetwork with gradient alignment (Bartholet et al., "Hypernetwork-Driven Model Fusion", 2024)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import AutoencoderState
from fdgpriv.artifacts.statistics import ClientEmbedding
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.utils.fields import NonNegativeFloat, NonNegativeInt, PositiveFraction, PositiveInt

from ._autoencoder import Autoencoder
from ._client_network import ClientNetwork
from ._federation import Batch, train
from ._hyper_client import HyperClient
from ._hyper_federation import DEFAULT, QUICK, TRAINED, EmbeddingInit, HyperFederation
from ._hypernetwork import Hypernetwork, Pullback
from ._moving_average import EMA, MovingAverage

Align = Literal["towards", "away", "off"]
SIGNS: dict[Align, float] = {"towards": 1.0, "away": -1.0}


@dataclass(frozen=True)
class HFedF(HyperFederation):
    """The defaults are the values in the paper for PACS: three clients of one to three domains each (--partition domains:D).

    Office-Home and VLCS have ema_decay=0.75, VLCS also server_weight_decay=1e-3. Where the paper gives no
    value or contradicts itself: the server descends along sent minus trained, so that its models move towards the
    clients'; both clips, initialisation and `warmup` are our choices. So are three values of the preset `paper`:
    `embedding_std`, as with 1 the clients' models diverge, where the paper reports nearly equal models; and
    `client_optimizer` and `image_changes`, with which FedAvg in the paper's setting reaches the paper's source accuracy.

    GradAlign hardly affects nu: each client's gradient of nu is in its own row, so weights only scale rows, and Adam is
    invariant to a constant scale.

    Attributes:
        align: Weights of clients by the softmax of their gradient's cosine with the mean (``towards``), of its negative
            (``away``, as section 4.2 writes), or equal (``off``). For theta and nu separately.
        ema: Use of the moving average (`_moving_average`): ``replace`` (the paper; only scales the step by `ema_decay`);
            ``evaluate`` (clients train models of the parameters; those of the average are sent once, after the last
            round, and are evaluated and attacked); ``shadow`` (clients train models of the average); or ``off``.
        ema_decay: alpha, the weight of the new parameters.
        ema_embedding: Average nu as well as theta.
        warmup: The last round without averaging.
        embedding: ``learned`` by the server; ``random``, redrawn after every step; or ``autoencoder``, computed once by
            each client from its validation images and shared with the server.
        autoencoder_images, autoencoder_epochs: Images and epochs of a client's autoencoder training. It goes on for as many
            epochs again, up to ten times, until the autoencoder reconstructs these images better than their mean does.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**QUICK, "warmup": 0},
        "default": {**DEFAULT, "warmup": 2},
        "paper": {**TRAINED, "embedding_std": 0.1},
    }

    rounds: PositiveInt = 200
    weight_decay: NonNegativeFloat = 1e-3
    align: Align = "towards"
    ema: EMA = "replace"
    ema_decay: PositiveFraction = 0.95
    ema_embedding: bool = True
    warmup: NonNegativeInt = 10
    embedding: Literal["learned", "random", "autoencoder"] = "learned"
    autoencoder_images: PositiveInt = 100
    autoencoder_epochs: PositiveInt = 100

    @property
    def coupling(self) -> str | None:
        if self.embedding == "autoencoder":
            return "with embedding=autoencoder clients also train an autoencoder on their images"
        return super().coupling

    def disclosure(self) -> Disclosure:
        common, embedded = super().disclosure(), self.embedding == "autoencoder"
        often = {**common.often, AutoencoderState.kind: int(embedded), ClientEmbedding.kind: int(embedded)}
        uploads = (*common.uploads, ClientEmbedding.kind) if embedded else common.uploads
        return replace(common, often=often, uploads=uploads, individual=uploads)

    def training_warning(self, log: Mapping[str, float]) -> str | None:
        explained = log.get("autoencoder_explained_min", 1.0)  # no figure without an autoencoder
        if explained > 0:
            return None
        return (
            f"a client's autoencoder reconstructs its images no better than their mean (explained variance {explained:.2f}); "
            "raise autoencoder_epochs"
        )

    def model(self, federation: Federation, rng: torch.Generator) -> ClientNetwork:
        if self.embedding == "autoencoder":
            Autoencoder(1, federation.image_size, torch.Generator())  # raises if the image size is unsupported
        return super().model(federation, rng)

    def embed(self, hypernetwork: Hypernetwork, federation: Federation, rng: torch.Generator) -> EmbeddingInit:
        if self.embedding == "learned":
            return
        hypernetwork.embeddings.requires_grad_(False)
        if self.embedding == "autoencoder":
            dim = hypernetwork.embeddings.shape[1]
            state = Autoencoder(dim, federation.image_size, rng).state_dict()
            initial = AutoencoderState(client=SERVER, round=0, state=state)
            expected = [ExpectedArtifact(ClientEmbedding(client=SERVER, round=0, vector=torch.zeros(dim)))]
            for _ in federation.stage("embed"):
                answers = yield Request("embed", {client: [initial] for client in federation.clients}, wanted=expected)
                vectors = [
                    artifact.vector
                    for client in federation.clients
                    for artifact in answers[client]
                    if isinstance(artifact, ClientEmbedding)
                ]
                hypernetwork.embeddings.copy_(torch.stack(vectors))

    def client_weights(self, pullback: Pullback) -> tuple[Tensor, Tensor]:
        return weights(pullback.gram_theta(), self.align), weights(pullback.gram_embeddings(), self.align)

    def moving_average(self, hypernetwork: Hypernetwork) -> MovingAverage:
        learned = self.ema_embedding and self.embedding == "learned"
        return MovingAverage(hypernetwork, self.ema, self.ema_decay, self.warmup, learned)

    def after_step(self, hypernetwork: Hypernetwork, rng: torch.Generator) -> None:
        if self.embedding == "random":
            embeddings = torch.randn(hypernetwork.embeddings.shape, generator=rng)
            hypernetwork.embeddings.copy_(self.embedding_std * embeddings)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "HFedFClient":
        return HFedFClient(self, federation, data, rng)


class HFedFClient(HyperClient):
    """Answers ``fit``, and ``embed`` if embeddings are computed from data."""

    checkpointed: ClassVar[tuple[str, ...]] = (*HyperClient.checkpointed, "log")

    method: HFedF

    def __init__(self, method: HFedF, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.log: dict[str, tuple[float, int]] = {}

    def embed(self, message: Message) -> Message:
        """Mean latent (e,) of the validation images, by an autoencoder trained on some of the client's training images."""
        (start,) = (artifact for artifact in message if isinstance(artifact, AutoencoderState))
        if not len(self.data.held_out_pixels):
            raise ValueError(f"hfedf.embedding: want validation images at {self.data.client}, got none")
        dim = len(start.state["encoder.7.bias"])
        autoencoder = Autoencoder(dim, self.data.pixels.shape[-1], self.rng).to(self.device)
        autoencoder.load_state_dict(start.state)
        explained = self._fit_autoencoder(autoencoder, start.round)
        self.log |= {"autoencoder_explained": (explained, 1), "autoencoder_explained_min": (explained, 1)}
        with torch.no_grad():
            vector = autoencoder.encoder(as_images(self.data.held_out_pixels).to(self.device)).mean(0).cpu()
        return [ClientEmbedding(client=self.data.client, round=start.round, vector=vector)]

    def _fit_autoencoder(self, autoencoder: Autoencoder, round: int) -> float:
        """Trains until images are reconstructed better than by their mean; returns the share of their variance explained."""
        index = torch.randperm(len(self.data), generator=self.rng)[: self.method.autoencoder_images]
        chosen = replace(self.data, pixels=self.data.pixels[index], labels=self.data.labels[index])
        images = as_images(chosen.pixels).to(self.device)
        settings = replace(
            self.method, local_epochs=self.method.autoencoder_epochs, local_steps=None, **_AUTOENCODER_TRAINING
        )
        optimizer = settings.new_optimizer(autoencoder, round)

        def loss(batch: Batch) -> Tensor:
            return nn.functional.mse_loss(autoencoder(batch.images), batch.images)

        explained = 0.0
        for _ in range(_AUTOENCODER_REPEATS):
            train(autoencoder, loss, chosen, settings, round, self.rng, optimizer=optimizer)
            explained = explained_variance(autoencoder, images)
            if explained > 0:
                break
        return explained


_AUTOENCODER_TRAINING: Mapping[str, Any] = {
    "batch_size": 16,
    "client_optimizer": "adam",
    "lr": 3e-3,
    "weight_decay": 0.0,
    "schedule": "constant",
    "image_changes": "none",
}
_AUTOENCODER_REPEATS = 10


@torch.no_grad()
def explained_variance(autoencoder: nn.Module, images: Tensor) -> float:
    """1 - squared error of the reconstructed images (N, 3, H, W) over that of their mean image; at most 1.

    0 for a reconstruction by the mean image; 1 for images that are all equal, which have nothing to explain.
    """
    variance = (images - images.mean(0)).square().mean()
    error = (autoencoder(images) - images).square().mean()
    return float(1 - error / variance) if variance > 0 else 1.0


def cosines(gram: Tensor) -> Tensor:
    """Cosine similarity (M,) in [-1, 1] of each gradient with their mean; 0 where either is 0.

    Args:
        gram: Inner products (M, M) of the gradients.
    """
    with_mean, squared = gram.mean(1), gram.diagonal()
    norms = (squared.clamp_min(0) * with_mean.mean().clamp_min(0)).sqrt()
    return torch.where(norms > 0, with_mean / torch.where(norms > 0, norms, 1.0), 0.0)


def weights(gram: Tensor, align: Align) -> Tensor:
    """GradAlign's client weights (M,) with sum 1 (Alg. 3), from inner products (M, M) of the gradients.

    Softmax of the cosines (``towards``), of their negatives (``away``), or equal weights (``off``).
    """
    if align == "off":
        return gram.new_full((len(gram),), 1 / len(gram))
    return torch.softmax(SIGNS[align] * cosines(gram), dim=0)
