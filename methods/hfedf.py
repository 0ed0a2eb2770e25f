"""hFedF: a hypernetwork fuses models of aligned clients (Bartholet et al., "Hypernetwork-Driven Model Fusion", 2024)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import AutoencoderState
from fdgpriv.artifacts.statistics import ClientEmbedding
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Ask
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.upload import Wanted
from fdgpriv.utils.fields import NonNegativeFloat, NonNegativeInt, PositiveFraction, PositiveInt

from ._autoencoder import Autoencoder
from ._client_network import ClientNetwork
from ._federation import train
from ._hyper_client import HyperClient
from ._hyper_federation import DEFAULT, QUICK, HyperFederation, Settling
from ._hypernetwork import Hypernetwork, Pullback
from ._moving_average import EMA, MovingAverage

Align = Literal["towards", "away", "off"]
SIGNS: dict[Align, float] = {"towards": 1.0, "away": -1.0}


@dataclass(frozen=True)
class HFedF(HyperFederation):
    """The defaults are the paper's for PACS: three clients, each of one to three domains (--partition domains:D).

    Office-Home and VLCS have ema_decay=0.75, VLCS also server_weight_decay=1e-3. Where the paper is silent or
    contradicts itself: the server steps against sent minus trained, so that its models move towards the clients'; the
    client's momentum, both clips, the initialisation and `warmup` are ours.

    What GradAlign does to nu is nearly nothing: the clients' gradients of nu lie in rows of their own, so their weights
    only scale each row, and Adam undoes a constant scale.

    Attributes:
        align: Weights of clients by the softmax of their gradient's cosine with the mean (``towards``), of its negative
            (``away``, as section 4.2 writes), or equal (``off``). For theta and nu separately.
        ema: What the moving average is for: ``replace`` (the paper: scales the step by `ema_decay`, no more);
            ``evaluate`` (clients train models of the parameters; those of the average are sent once, after the last
            round, and are what is evaluated and attacked); ``shadow`` (clients train models of the average); or ``off``.
        ema_decay: alpha, the weight of the new parameters.
        ema_embedding: Average nu as well as theta.
        warmup: The last round without average.
        embedding: ``learned`` by the server; ``random``, drawn anew after every step; or ``autoencoder``, computed once by
            each client from its own validation images, and told to the server.
        autoencoder_images, autoencoder_epochs: On how many of its images, and for how long, a client trains it.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**QUICK, "warmup": 0},
        "default": {**DEFAULT, "warmup": 2},
        "paper": {"image_changes": "none"},
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
    autoencoder_epochs: PositiveInt = 50

    def disclosure(self) -> Disclosure:
        common, embedded = super().disclosure(), int(self.embedding == "autoencoder")
        return replace(common, often={**common.often, AutoencoderState.kind: embedded, ClientEmbedding.kind: embedded})

    def model(self, federation: Federation, rng: torch.Generator) -> ClientNetwork:
        if self.embedding == "autoencoder":
            Autoencoder(1, federation.image_size, torch.Generator())  # whether the images can be embedded at all
        return super().model(federation, rng)

    def embed(self, hypernetwork: Hypernetwork, federation: Federation, rng: torch.Generator) -> Settling:
        if self.embedding == "learned":
            return
        hypernetwork.embeddings.requires_grad_(False)
        if self.embedding == "autoencoder":
            dim = hypernetwork.embeddings.shape[1]
            whole = Autoencoder(dim, federation.image_size, rng).state_dict()
            start = AutoencoderState(client=SERVER, round=0, state=whole)
            wanted = [Wanted(ClientEmbedding(client=SERVER, round=0, vector=torch.zeros(dim)))]
            answers = yield Ask("embed", {client: [start] for client in federation.clients}, wanted=wanted)
            vectors = [a.vector for c in federation.clients for a in answers[c] if isinstance(a, ClientEmbedding)]
            hypernetwork.embeddings.copy_(torch.stack(vectors))

    def weigh(self, back: Pullback) -> tuple[Tensor, Tensor]:
        return weights(back.gram_theta(), self.align), weights(back.gram_embeddings(), self.align)

    def moving_average(self, hypernetwork: Hypernetwork) -> MovingAverage:
        learned = self.ema_embedding and self.embedding == "learned"
        return MovingAverage(hypernetwork, self.ema, self.ema_decay, self.warmup, learned)

    def after_step(self, hypernetwork: Hypernetwork, rng: torch.Generator) -> None:
        if self.embedding == "random":
            drawn = torch.randn(hypernetwork.embeddings.shape, generator=rng)
            hypernetwork.embeddings.copy_(drawn)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "HFedFClient":
        return HFedFClient(self, federation, data, rng)


class HFedFClient(HyperClient):
    """Answers ``fit``, and ``embed`` where embeddings are made of data."""

    method: HFedF

    def embed(self, message: Message) -> Message:
        """The mean latent (e,) of its validation images, by an autoencoder it trains on some of its training images."""
        (start,) = (artifact for artifact in message if isinstance(artifact, AutoencoderState))
        if not len(self.data.held_out_images):
            raise ValueError(f"hfedf.embedding: want validation images at {self.data.client}, got none")
        dim = len(start.state["encoder.7.bias"])
        autoencoder = Autoencoder(dim, self.data.images.shape[-1], self.rng).to(self.device)
        autoencoder.load_state_dict(start.state)
        some = torch.randperm(len(self.data), generator=self.rng)[: self.method.autoencoder_images]
        chosen = replace(self.data, images=self.data.images[some], labels=self.data.labels[some])
        epochs = self.method.autoencoder_epochs
        how = replace(self.method, local_epochs=epochs, local_steps=None, **_AUTOENCODER)
        train(
            autoencoder,
            lambda batch: nn.functional.mse_loss(autoencoder(batch.images), batch.images),
            chosen,
            how,
            start.round,
            self.rng,
            self.device,
        )
        with torch.no_grad():
            vector = autoencoder.encoder(self.data.held_out_images.to(self.device)).mean(0).cpu()
        return [ClientEmbedding(client=self.data.client, round=start.round, vector=vector)]


_AUTOENCODER: Mapping[str, Any] = {"client_optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0, "schedule": "constant"}


def cosines(gram: Tensor) -> Tensor:
    """Cosine (M,) in [-1, 1] of each gradient with the mean of all; 0 where either is 0.

    Args:
        gram: Inner products (M, M) of the gradients.
    """
    with_mean, squared = gram.mean(1), gram.diagonal()
    norms = (squared.clamp_min(0) * with_mean.mean().clamp_min(0)).sqrt()
    return torch.where(norms > 0, with_mean / torch.where(norms > 0, norms, 1.0), 0.0)


def weights(gram: Tensor, align: Align) -> Tensor:
    """GradAlign's weights (M,) of sum 1 (Alg. 3): clients whose gradient agrees with the average weigh more, or less.

    The softmax of the cosines (``towards``), of their negatives (``away``), or equal (``off``).
    """
    if align == "off":
        return gram.new_full((len(gram),), 1 / len(gram))
    return torch.softmax(SIGNS[align] * cosines(gram), dim=0)
