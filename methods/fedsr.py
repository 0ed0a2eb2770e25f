"""FedSR: probabilistic representations with two regularisers; clients exchange models (Nguyen et al., NeurIPS 2022)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.local_tensors import LocalModule, tensors_of
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.weights import Weights
from fdgpriv.models.backbone import Backbone, drawing_from
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from fdgpriv.utils.seeds import generator

from ._averaging import Aggregation, FederatedAveraging, StatefulClient
from ._federation import Batch, LocalSGD, Schedule, answered, drawn_batches


@dataclass(frozen=True)
class FedSR(FederatedAveraging):
    """The server relays each client's model to every other client, as the released code's collective exchange does.

    There each client averages them itself; here the server sends the mean beside them. A client's optimiser keeps its
    momentum from round to round, as in the released code: the five steps of a round are too few to build it up.
    `reference.scale` is the code's. ``paper`` has the code's crops and colours.

    The L2 term is the paper's, the mean of squared norms ||z||^2; the released code has the mean of norms ||z||, without
    the square, under the same weight.

    Attributes:
        latent_dim: Length of a representation.
        norm_weight: Weight of the mean squared norm of representations.
        information_weight: Weight of the mean divergence of a representation's distribution from its class's reference;
            the paper's, 5e-4 in the released code.
        test_samples: Representations whose class probabilities are averaged in evaluation; their noise is the same for all
            images, so that a model's answer depends on the image alone.
        local_steps: Mini-batches per round, each drawn independently; none for `local_epochs` passes.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**LocalSGD.presets["quick"], "local_steps": None},
        "default": {**LocalSGD.presets["default"], "local_steps": None},
        "paper": {"image_changes": "crop_colour"},
    }
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet18", image_size=224)
    uses_final: ClassVar[bool] = True

    rounds: PositiveInt = 1000
    participants: PositiveInt | None = None
    batch_size: PositiveInt = 64
    lr: PositiveFloat = 0.01
    schedule: Schedule = "constant"
    weights: Weights = "uniform"
    latent_dim: PositiveInt = 512
    norm_weight: NonNegativeFloat = 0.01
    information_weight: NonNegativeFloat = 1e-3
    test_samples: PositiveInt = 20
    local_steps: PositiveInt | None = 5

    @property
    def coupling(self) -> str:
        return "it draws representations, and clients train class references that stay with them, on the same images"

    def disclosure(self) -> Disclosure:
        common = super().disclosure()
        return replace(common, individual=common.uploads, named=(ModelState.kind,))

    def withheld(self, model: nn.Module, sender: str) -> frozenset[str]:
        return super().withheld(model, sender) | tensors_of(model, ClassReferences)

    def passes(self, n: int, rng: torch.Generator) -> Iterator[Tensor]:
        if self.local_steps is None:
            return super().passes(n, rng)
        return drawn_batches(n, self.batch_size, self.local_steps, rng)

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        classifier = ProbabilisticClassifier(
            federation.backbone(rng), self.latent_dim, federation.classes, self.test_samples, rng
        )
        return self.local_training.network(classifier)

    def aggregation(self, federation: Federation) -> "PeerExchange":
        return PeerExchange(self)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> StatefulClient:
        return StatefulClient(self, federation, data, rng)

    def loss(self, model: nn.Module, batch: Batch, rng: torch.Generator) -> Tensor:
        """Cross-entropy of drawn representations, and both regularisers."""
        assert isinstance(model, ProbabilisticClassifier)
        mean, std = model.distribution(batch.images)
        latents = model.drawn(mean, std)
        loss = nn.functional.cross_entropy(model.head(latents), batch.labels)
        norms, divergences = latents.square().sum(1), model.reference(mean, std, batch.labels)
        total: Tensor = loss + self.norm_weight * norms.mean() + self.information_weight * divergences.mean()
        return total


class PeerExchange(Aggregation):
    """The uniform mean; every client's model of the last round goes to every other client."""

    checkpointed: ClassVar[tuple[str, ...]] = ("models",)

    def __init__(self, method: FederatedAveraging) -> None:
        super().__init__(method)
        self.models: list[ModelState] = []

    def relayed(self, client: str) -> Message:
        return [model for model in self.models if model.client != client]

    def merge(self, model: nn.Module, answers: Answers, round: int) -> None:
        super().merge(model, answers, round)
        self.models = list(answered(answers, ModelState).values())


class ClassReferences(LocalModule):
    """A Gaussian of representations for each class, which a client learns and keeps."""

    def __init__(self, classes: int, latent_dim: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(classes, latent_dim))
        self.spread = nn.Parameter(torch.ones(classes, latent_dim))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, mean: Tensor, std: Tensor, labels: Tensor) -> Tensor:
        """Divergences KL(p || r) (B,) of N(scale mean, (scale std)^2), (B, d), from the references of the labels (B,)."""
        center, spread = self.mean[labels], nn.functional.softplus(self.spread)[labels]
        mean, std = self.scale * mean, self.scale * std
        ratio = (std.square() + (mean - center).square()) / (2 * spread.square())
        return (spread.log() - std.log() + ratio - 0.5).sum(1)


class ProbabilisticClassifier(nn.Module):
    """A backbone whose pooled features give the mean and std of a Gaussian representation, and a linear head on it.

    Args:
        backbone: Of the classifier.
        latent_dim: d, length of a representation.
        classes: K.
        test_samples: As in `FedSR`.
        rng: For the initialisation, and for the representations drawn in training.
    """

    draws: Tensor

    def __init__(
        self, backbone: Backbone, latent_dim: int, classes: int, test_samples: int, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.backbone, self.rng = backbone, rng
        with drawing_from(rng):
            self.encoder = nn.Linear(backbone.out_channels, 2 * latent_dim)
            self.head = nn.Linear(latent_dim, classes)
        self.reference = ClassReferences(classes, latent_dim)
        draws = torch.randn(test_samples, latent_dim, generator=generator(0))
        self.register_buffer("draws", draws, persistent=False)

    def distribution(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std (B, d) of the representations of images (B, 3, H, W) in [0, 1]."""
        mean, spread = self.encoder(self.backbone(images).mean(dim=(2, 3))).chunk(2, dim=1)
        return mean, nn.functional.softplus(spread)

    def embedding(self, images: Tensor) -> Tensor:
        """The mean representation (B, d), in the head's space."""
        return self.distribution(images)[0]

    def drawn(self, mean: Tensor, std: Tensor) -> Tensor:
        """One representation (B, d) of each image."""
        return mean + std * torch.randn(mean.shape, generator=self.rng).to(mean.device)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K): of a drawn representation in training, else log probabilities averaged over `test_samples`."""
        mean, std = self.distribution(images)
        if self.training:
            logits: Tensor = self.head(self.drawn(mean, std))
            return logits
        of_draws = torch.stack([self.head(mean + std * draw).log_softmax(1) for draw in self.draws])
        return of_draws.logsumexp(0) - math.log(len(self.draws))
