"""StableFDG's hyperparameters, disclosure and network."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

from fdgpriv.artifacts.moments import DASSL, PAPER_EPS, StyleRule
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure, StyleSource
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.models.backbone import Backbone
from fdgpriv.utils.fields import Fraction, NonNegativeInt, PositiveFraction, PositiveInt

from ._highlighter import Attention, HighlightedClassifier
from ._style_pass import BatchStyles
from ._weights import WeightedSGD, Weights

RELEASED_SHIFTS = 16  # samples per batch shifted by the released code; the rest get their cluster's style
_FROM_SCRATCH = {"exploration": 1.0, "lr": 0.05}


@dataclass(frozen=True)
class StableSettings(WeightedSGD):
    """The defaults are the paper's (section 4.1, App. G).

    The presets quick and default use exploration=1 and lr=0.05: the paper's exploration of 3 assumes a pre-trained network
    and slows training from scratch.

    Attributes:
        exploration: alpha of Eq. 4-5.
        p: Probability of shifting, and of exploring at each layer (App. E.5).
        received: Number of other clients' styles sent to a client (App. E.2); 0 shares none.
        sharing: ``random`` derangement, or the ``farthest`` styles (App. E.1).
        shift_select: The half of a batch that keeps its style: chosen by k-means++ seeding, or random (App. E.3).
        oversample, oversample_size: Class-balanced or random, and how many; none for the batch size (App. E.4).
        style_mode: BatchNorm's mode while a client computes its style. ``train``: batch statistics, as in training; in the
            first round styles are shared but not applied, as in the released code. ``eval``: running statistics, and
            styles are applied from the first round on; when training from scratch these lag behind the batches, and
            shifted features shrink.
        resend_styles: Whether clients share their style in every round, as in the paper, or only in their first.
        style_layer: The stage after which styles are computed and shifted, by name or by stride (`Backbone`).
        explore_layers: The stages after which styles are explored and mixed (App. E.6), likewise.
        attention, attention_dim, qk_norm: Kind, d and normalisation of the highlighter (App. F; `_highlighter.Highlighter`).
        style_learning: False keeps attention only (Table 3); then only models are shared.
        mixing: Parameter of Beta(mixing, mixing) in style mixing.
        literal_shift: Step 2 as in its text: noise with the client's own variance, times the received variance.
        center: Extrapolate around the styles of the ``batch`` (Eq. 4-5) or of ``concat``, batch and oversampled (text).
        clamp_sigma: Clamp extrapolated stds at 0; Eq. 5 and the released code do not (`_stable_style` explains negative
            stds).
        code_compat: As in the released code: styles of all clients every round, from augmented, shuffled whole batches;
            cluster centres replace styles of samples; exploration at the first active layer only, in one AdaIN with
            mixing, so that negative stds keep their signs; unbiased variances in every AdaIN; the attention partner is
            the next image of the class in the batch; a constant learning rate; the attention's unused branch is shared.
            Not reproduced: the additional class-balanced batch, which doubles BatchNorm counters, provides attention
            partners for images that are the only ones of their class (here another local image of the class) and, on
            Office-Home, supplemental rows of such classes for oversampling and the centre of Eq. 4-5; that clients share
            the standard deviation over images of a style's entries where Eq. 2 has the variance (as many bytes); the
            gradient norm clipped at 2.5 on Digits-DG; at least 70 images for each client where domains are mixed; and the
            faulty derangement, which gives a client its own style in 7.6 % of rounds.
    """

    single_image_settings: ClassVar[tuple[str, ...]] = ("style_mode=eval",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**WeightedSGD.presets["quick"], **_FROM_SCRATCH},
        "default": {**WeightedSGD.presets["default"], **_FROM_SCRATCH},
        "paper": {},
    }
    paper_setup: ClassVar[Setup] = Setup(clients=30, partition="single", backbone="resnet18", image_size=224)

    weights: Weights = "uniform"
    exploration: float = 3.0
    p: Fraction = 0.5
    received: NonNegativeInt = 1
    sharing: Literal["random", "farthest"] = "random"
    shift_select: Literal["kmeans++", "random"] = "kmeans++"
    oversample: Literal["balanced", "random"] = "balanced"
    oversample_size: NonNegativeInt | None = None
    style_mode: Literal["train", "eval"] = "train"
    resend_styles: bool = True
    style_layer: str = "layer1"
    explore_layers: tuple[str, ...] = ("layer1", "layer2", "layer3")
    attention: Attention = "mix"
    attention_dim: PositiveInt = 30
    qk_norm: bool = True
    style_learning: bool = True
    mixing: PositiveFraction = 0.1
    literal_shift: bool = False
    center: Literal["batch", "concat"] = "batch"
    clamp_sigma: bool = False
    code_compat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.style_mode == "eval" and self.local_statistics and self.shares_styles:
            raise ValueError(
                f"{self.name()}.style_mode: want train with buffers=keep_local, where running statistics are of the "
                "client's own images of all rounds; got eval"
            )

    @property
    def coupling(self) -> str:
        return "style exploration, mixing and attention combine the images of a mini-batch"

    @property
    def shares_styles(self) -> bool:
        """Whether clients share styles."""
        return self.style_learning and self.received > 0

    @property
    def rule(self) -> StyleRule:
        """How means and stds of features are computed."""
        return DASSL if self.code_compat else PAPER_EPS

    def at_stages_of(self, backbone: Backbone) -> Self:
        """These settings with layers given as stages of this backbone; without style learning none is explored."""
        explored = tuple(map(backbone.stage, self.explore_layers)) if self.style_learning else ()
        return replace(self, style_layer=backbone.stage(self.style_layer), explore_layers=explored)

    def styles(self) -> StyleSource:
        """How styles are computed: with batch statistics unless BatchNorm is frozen or ``style_mode`` is eval."""
        in_batches = self.style_mode == "train" and not self.frozen
        return BatchStyles(self) if in_batches else StyleSource()

    def disclosure(self) -> Disclosure:
        styles, common = (StyleStatistics.kind,) if self.shares_styles else (), super().disclosure()
        often = {StyleStatistics.kind: (self.rounds if self.resend_styles else 1) * self.shares_styles}
        return replace(common, uploads=(*styles, *common.uploads), individual=styles, often=often, styles=self.styles())

    def lr_at(self, round: int) -> float:
        return self.lr if self.code_compat else super().lr_at(round)

    def model(self, federation: Federation, rng: torch.Generator) -> HighlightedClassifier:
        backbone = federation.backbone(rng)
        if self.code_compat:
            self._check_positions(backbone, federation.image_size)
        return HighlightedClassifier(
            backbone,
            federation.classes,
            federation.image_size,
            rng,
            dim=self.attention_dim,
            kind=self.attention,
            qk_norm=self.qk_norm,
            released=self.code_compat,
        )

    def _check_positions(self, backbone: Backbone, image_size: int) -> None:
        """Raises ValueError where a style would have the unbiased variance of one position."""
        for layer in {self.style_layer, *self.explore_layers} & {*backbone.stages}:
            with torch.no_grad():
                images = torch.zeros(1, 3, image_size, image_size)
                side = deepcopy(backbone).to(images.device).eval().features(images, layer).shape[-1]
            if self.style_learning and side == 1:
                raise ValueError(
                    f"stablefdg.style_layer: with code_compat want maps of more than one position, got 1 x 1 at {layer} of "
                    f"images of {image_size} px; use larger images or an earlier layer"
                )

    def check(self, model: nn.Module) -> None:
        assert isinstance(model, HighlightedClassifier)
        for field, layers in (("style_layer", (self.style_layer,)), ("explore_layers", self.explore_layers)):
            try:
                stages = [model.backbone.stage(layer) for layer in layers]
            except ValueError as error:
                raise ValueError(f"stablefdg.{field}: {error}") from error
            if len(set(stages)) < len(stages):
                raise ValueError(f"stablefdg.{field}: want each layer once, got {', '.join(layers)}")

    def check_data(self, data: ClientData) -> None:
        super().check_data(data)
        size = min(self.batch_size, len(data))
        if self.code_compat and self.shares_styles and self.p > 0 and size <= RELEASED_SHIFTS:
            smallest = RELEASED_SHIFTS + 1
            raise ValueError(f"stablefdg.code_compat: want batches of at least {smallest}, got {size} at {data.client}")
