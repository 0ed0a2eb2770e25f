"""PARDON: clients learn style-invariant embeddings by contrast with one interpolation style of all clients.

Reference: Nguyen, Johnson and Leach, "PARDON: Privacy-Aware and Robust Federated Domain Generalization" (earlier called
FISC, arXiv 2410.22622).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.moments import POOLED, StyleRule, clustered, styles_and_maps_of
from fdgpriv.artifacts.style import ClientReply, InterpolationStyle, StyleDraft, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.models.backbone import Backbone
from fdgpriv.models.cpu_io import device_of
from fdgpriv.utils.fields import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt

from . import _expected_answers
from ._augmentation import augmented
from ._averaging import AveragingClient, ClientOptimizer, FederatedAveraging
from ._codec import LEAST_SIDE, Codec, EncodedStyles, codec_on
from ._contrastive import EmbeddingClassifier, contrast, embedding_penalty
from ._federation import Batch, Buffers, LocalSGD, Schedule, answered
from ._interpolation import interpolation_style
from ._style_transfer import StyleTransfer, layer_names

_FROM_SCRATCH = {"optimizer": "sgd", "buffers": "share"}  # the paper's settings assume a pre-trained network


@dataclass(frozen=True)
class Pardon(FederatedAveraging):
    """The preset ``paper`` is the paper's text and, where it gives no value, the released code: Adam at 3e-5, frozen
    BatchNorm, gamma_1 and gamma_2 (on PACS), margin, transfer strength, crops and colours. The class's defaults differ from
    it in `codec` and `image_changes`.

    Where text and released code contradict each other, `cluster_by`, `client_style` and `regulariser` follow the code, which
    produced the paper's figures; the text is the other value of each. Both weigh clients by samples.

    Attributes:
        contrastive_weight, regulariser_weight: gamma_1 and gamma_2 of Eq. 9; the released code has 0.1 for the latter on
            Office-Home.
        margin: Margin of the triplet loss (Eq. 7).
        alpha: Style transfer strength in [0, 1].
        contrastive: False omits the triplet loss (Table V, v3).
        style_transfer: False stylises no images and shares no styles (the text on v4).
        cluster_by: A client clusters its images by whole feature ``maps`` (code) or by their ``styles`` (text).
        local_clustering, local_partition: False uses one cluster of all images (v1); FINCH's ``last``, coarsest partition,
            or the ``first``.
        client_style: Std of an equally weighted ``mixture`` of the clusters (code), or ``mean_of_std`` (text).
        server_clustering, server_partition: False uses the mean of all clients' styles (v2); the ``first``, finest
            partition, or the ``last``.
        median: For an even number of clusters the ``lower`` middle value, or the ``midpoint``.
        positives: An anchor's positive is its ``own`` stylised copy, or any other sample of its ``class`` in either style.
        regulariser: Eq. 8 as ``mean`` over samples and dimensions (code), or as the printed ``sum``.
        codec: Style encoder and decoder: ``digits`` and ``photo``, for photographs, are included in fdgpriv; ``adain_vgg`` is
            the paper's. An audit of a dataset other than ``digits`` uses ``photo`` by default.
        codec_weights: Folder of ``adain_vgg``'s files, as in --weights; none uses torch's checkpoint folder.
        code_compat: As in the released code: styles of augmented, normalised images from before the last activation,
            content statistics from after it, and stylised images not normalised for the classifier.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**LocalSGD.presets["quick"], **_FROM_SCRATCH},
        "default": {**LocalSGD.presets["default"], **_FROM_SCRATCH},
        "paper": {"codec": "adain_vgg", "image_changes": "crop_colour"},
    }
    paper_setup: ClassVar[Setup] = Setup(
        clients=100, partition="heterogeneity:0.1", backbone="resnet50", image_size=224
    )

    participants: PositiveInt | None = 20
    local_epochs: PositiveInt = 1
    lr: PositiveFloat = 3e-5
    weight_decay: NonNegativeFloat = 0.0
    schedule: Schedule = "constant"
    buffers: Buffers = "freeze"
    optimizer: ClientOptimizer = "adam"
    contrastive_weight: NonNegativeFloat = 0.75
    regulariser_weight: NonNegativeFloat = 0.2
    margin: PositiveFloat = 0.3
    alpha: Fraction = 0.5
    contrastive: bool = True
    style_transfer: bool = True
    cluster_by: Literal["maps", "styles"] = "maps"
    local_clustering: bool = True
    local_partition: Literal["last", "first"] = "last"
    client_style: Literal["mixture", "mean_of_std"] = "mixture"
    server_clustering: bool = True
    server_partition: Literal["first", "last"] = "first"
    median: Literal["lower", "midpoint"] = "lower"
    positives: Literal["own", "class"] = "own"
    regulariser: Literal["mean", "sum"] = "mean"
    codec: Codec = "digits"
    codec_weights: Path | None = None
    code_compat: bool = False

    @property
    def coupling(self) -> str | None:
        if self.style_transfer and self.contrastive:
            return "its triplet loss compares the images of a mini-batch"
        if self.style_transfer:
            return "each image and its stylised copy are in one mini-batch"
        return "with regulariser=sum its penalty is no mean over images" if self.regulariser == "sum" else None

    def style_rule(self) -> StyleRule | None:
        """How styles are computed and pooled; None if none are shared."""
        if not self.style_transfer:
            return None
        if not self.local_clustering:
            return POOLED
        mixture = self.client_style == "mixture"
        return clustered(self.cluster_by == "maps", self.local_partition == "last", mixture)

    def disclosure(self) -> Disclosure:
        styles, common = (StyleStatistics.kind,) if self.style_transfer else (), super().disclosure()
        return replace(
            common,
            uploads=(*styles, *common.uploads),
            individual=styles,
            often={StyleStatistics.kind: int(self.style_transfer)},
            style_rule=self.style_rule(),
            styles=EncodedStyles(self.transfer),
            interpolation=self.interpolation,
        )

    def model(self, federation: Federation, rng: torch.Generator) -> EmbeddingClassifier:
        min_side = LEAST_SIDE[self.codec]
        if self.style_transfer and federation.image_size < min_side:
            raise ValueError(
                f"pardon.codec: want images of at least {min_side} px for {self.codec}, got {federation.image_size}"
            )
        return EmbeddingClassifier(federation.backbone(rng), federation.classes, rng)

    def check(self, model: nn.Module) -> None:
        if self.style_transfer:
            self.transfer(model)

    def transfer(self, model: nn.Module) -> StyleTransfer:
        """Style transfer for this classifier."""
        backbone = model.backbone
        assert isinstance(backbone, Backbone)
        codec = codec_on(device_of(model), self.codec, self.codec_weights)
        return StyleTransfer(codec, self.alpha, (backbone.mean, backbone.std), self.code_compat)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        if self.style_transfer:
            expected = [self._expected_style()]
            for _ in federation.stage("styles"):
                answers = yield Request("style", {client: [] for client in federation.clients}, wanted=expected)
                style = self.interpolation(list(answered(answers, StyleStatistics).values()))
                yield Request("adopt", {client: [style] for client in federation.clients}, wanted=())
        return (yield from super().server(federation, rng))

    def _expected_style(self) -> ExpectedArtifact:
        """Template of the style in a client's answer."""
        rule = self.style_rule()
        assert rule is not None
        codec = codec_on(torch.device("cpu"), self.codec, self.codec_weights)
        return _expected_answers.style(codec.channels, layer_names(codec, self.code_compat)[-1], rule.name)

    def interpolation(self, styles: Sequence[StyleStatistics]) -> InterpolationStyle:
        """The interpolation style of the clients' styles (Eq. 3-5)."""
        coarsest, midpoint = self.server_partition == "last", self.median == "midpoint"
        return interpolation_style(styles, self.server_clustering, coarsest, midpoint)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "PardonClient":
        return PardonClient(self, federation, data, rng)


class PardonClient(AveragingClient):
    """Answers ``style`` with its style, ``adopt`` with nothing, and ``fit`` with its trained model and n_k."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "target", "log")

    method: Pardon
    model: EmbeddingClassifier

    def __init__(self, method: Pardon, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.transfer = method.transfer(self.model) if method.style_transfer else None
        self.target: tuple[Tensor, Tensor] | None = None
        self.log: dict[str, tuple[float, int]] = {}

    def style(self, message: Message) -> ClientReply:
        """The client's style: the clusters of its images have equal weight (Eq. 1-2)."""
        rule, transfer = self.method.style_rule(), self.transfer
        assert rule is not None
        assert transfer is not None
        layer, images = transfer.layers[-1], as_images(self.data.pixels)
        if self.method.code_compat:
            images = augmented(images, self.data, self.method.image_changes, self.rng)
        mean, std, maps = styles_and_maps_of(images, lambda part: transfer.features(part.to(self.device), layer), rule)
        draft = StyleDraft(
            client=self.data.client,
            round=0,
            mean=mean.cpu(),
            std=std.cpu(),
            maps=maps.cpu(),
            variances=False,
            granularity="client",
            at=layer,
            rule=rule.name,
        )
        return [draft]

    def adopt(self, message: Message) -> Message:
        """Keeps the interpolation style for all rounds."""
        (style,) = (artifact for artifact in message if isinstance(artifact, InterpolationStyle))
        self.target = style.mean.to(self.device), style.std.to(self.device)
        return []

    def loss(self, batch: Batch) -> Tensor:
        """Loss of one mini-batch."""
        method, images = self.method, batch.images
        if self.transfer is not None:
            assert self.target is not None
            with torch.no_grad():
                images = torch.cat([images, self.transfer.stylise(images, self.target)])
        original, *styled = self.model.embedding(images).split(len(batch.labels))
        loss = nn.functional.cross_entropy(self.model.head(original), batch.labels)
        for embeddings in (original, *styled):
            loss = loss + method.regulariser_weight * embedding_penalty(embeddings, method.regulariser == "sum")
        if self.transfer is not None and method.contrastive:
            same_class = method.positives == "class"
            triplets, skipped = contrast(original, styled[0], batch.labels, method.margin, self.rng, same_class)
            loss = loss + method.contrastive_weight * triplets
            self._log_mean("anchors_without_negative", skipped, len(original))
        return loss

    def _log_mean(self, name: str, total: float, count: int) -> None:
        previous, previous_count = self.log.get(name, (0.0, 0))
        self.log[name] = previous + total, previous_count + count
