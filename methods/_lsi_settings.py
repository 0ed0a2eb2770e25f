"""Hyperparameters of LSI: the paper's values, with options wherever paper and released code differ."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fdgpriv.artifacts.parameters import RepresentationTranslator
from fdgpriv.federation.setup import Setup
from fdgpriv.models.batchnorm import with_fresh_statistics
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt, TwoOrMore

from ._federation import Schedule
from ._importance import Output, Sign, importance, last_layer_gradients, pooled
from ._latent_classifier import LatentClassifier
from ._latent_inversion import Distance, HeadMode, Inversion
from ._translator import (
    Activation,
    Adversarial,
    DropoutPlacement,
    Minibatch,
    Mix,
    Pairing,
    Translator,
    TranslatorSettings,
)
from ._weights import WeightedSGD

_RELEASED: Mapping[str, Any] = {
    "stage1_start": "own",
    "stage4_start": "global",
    "keep_momentum": True,
    "bn_weight": 0.01,
    "norm_weight": 0.001,
    "inversion_distance": "norm",
    "inversion_mode": "train",
    "inversion_start": "carried",
    "out_act": "tanh",
    "minibatch": "mixed",
    "pairing": "permutation",
    "penalty_mix": "released",
    "translator_decay": False,
    "invariance": 10.0,
    "invariance_distance": "mean",
    "importance_statistics": "running",
    "select": "validation",
}
# What the paper says where this class's defaults are the released code's
_PRINTED: Mapping[str, Any] = {
    "inversion_labels": "marginal",
    "dropout": "all",
    "head_weight": 0.0,
    "importance_output": "paper",
}


@dataclass(frozen=True)
class LSISettings(WeightedSGD):
    """The preset `paper` is section IV-A.3, for PACS and Office-Home; `docs/methods.md` lists where it departs from the text.

    The defaults differ from it in `image_changes` and four options, which are the released code's: `inversion_labels`,
    `dropout`, `head_weight` and `importance_output`. Without `head_weight` the translator does not keep classes.

    Attributes:
        latent_dim: p.
        pretrain_epochs: E of stage 1.
        stage1_start: Clients start from a ``common`` model, or each with its ``own`` latent layer and head.
        stage4_start: Round 1 starts from a client's ``local`` stage-1 model, or from the initial ``global`` model.
        keep_momentum: Keep SGD's momentum across rounds.
        inversion_steps, inversion_lr, inversion_batch, inversion_batches: Adam steps and learning rate, batch size and
            batches per client.
        class_weight, bn_weight, norm_weight: Of Eq. 4, 5 and 6 in Eq. 7.
        inversion_labels: Classes drawn ``uniform``, or from the label ``marginal``, which clients then share (the paper).
        inversion_distance: ``squared`` L2 norm in Eq. 5 and 6, or ``norm``, not squared.
        inversion_mode: BatchNorm in ``eval``, or in ``train``, which makes Eq. 5 vacuous (the released code).
        inversion_start: Initial latents ``fresh`` for each client, or ``carried`` over from the last one with Adam's state.
        hidden, out_act, dropout: Of G and D (`_translator.TranslatorSettings`).
        translator_steps, translator_batch, translator_lr, critic_steps, translator_decay: Of their training.
        rec_weight, cls_weight, gp_weight, head_weight, adversarial, minibatch, pairing, penalty_mix: Of their losses.
        invariance: lambda_di of Eq. 16; 0 skips stages 2 and 3, and no head or translator is shared.
        invariance_distance: Eq. 15 as the ``sum`` of the p squared differences (the paper), or their ``mean`` (the released
            code, with invariance=10).
        aggregation: By ``importance`` with weights that sum to 1; ``literal``, Eq. 18, which also divides by m; or the
            plain ``mean``, without sharing importances.
        importance_output, importance_sign: Output and sign (`_importance.importance`).
        importance_per: Absolute values of gradients summed over a ``batch`` (the released code) or per ``sample`` (MAS).
        importance_statistics: BatchNorm statistics for the importances: ``fresh``, recomputed on the client's images, or
            ``running``, those of training, which lag unless a round has many epochs (the released code has 20). With
            frozen `buffers`, those of the model.
        normaliser: Who normalises importances: the ``server``, or the ``clients``, who are then sent their sum and,
            as a defense may have changed them, their own.
        weights: Of clients in averages of BatchNorm statistics, and of models where aggregation=mean: ``samples`` n_d, or
            ``uniform``.
        recalibrate_bn: Clients recompute BatchNorm statistics for each aggregated model.
        select: Return the model best in ``validation``, for which clients share accuracies, or the ``last``.
        code_compat: Options at their defaults, or at the four values of the preset `paper`, take the released code's values,
            except numbers of epochs, steps and batches (there local_epochs=20, translator_steps=10000).
    """

    rounds: PositiveInt = 20
    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 10
    schedule: Schedule = "constant"
    latent_dim: PositiveInt = 512
    pretrain_epochs: PositiveInt = 10
    stage1_start: Literal["common", "own"] = "common"
    stage4_start: Literal["local", "global"] = "local"
    keep_momentum: bool = False
    inversion_steps: PositiveInt = 10_000
    inversion_lr: PositiveFloat = 1e-4
    inversion_batch: PositiveInt = 32
    inversion_batches: PositiveInt = 200
    class_weight: NonNegativeFloat = 1.0
    bn_weight: NonNegativeFloat = 1e-3
    norm_weight: NonNegativeFloat = 1e-4
    inversion_labels: Literal["uniform", "marginal"] = "uniform"
    inversion_distance: Distance = "squared"
    inversion_mode: HeadMode = "eval"
    inversion_start: Literal["fresh", "carried"] = "fresh"
    hidden: TwoOrMore = 1024
    out_act: Activation = "none"
    dropout: DropoutPlacement = "first"
    translator_steps: PositiveInt = 200_000
    translator_batch: PositiveInt = 16
    translator_lr: PositiveFloat = 1e-4
    critic_steps: PositiveInt = 5
    translator_decay: bool = True
    rec_weight: NonNegativeFloat = 10.0
    cls_weight: NonNegativeFloat = 1.0
    gp_weight: NonNegativeFloat = 10.0
    head_weight: NonNegativeFloat = 0.1
    adversarial: Adversarial = "wgan_gp"
    minibatch: Minibatch = "single"
    pairing: Pairing = "uniform"
    penalty_mix: Mix = "sample"
    invariance: NonNegativeFloat = 1.0
    invariance_distance: Literal["mean", "sum"] = "sum"
    aggregation: Literal["importance", "literal", "mean"] = "importance"
    importance_output: Output = "logits"
    importance_sign: Sign = "absolute"
    importance_per: Literal["batch", "sample"] = "batch"
    importance_statistics: Literal["fresh", "running"] = "fresh"
    normaliser: Literal["server", "clients"] = "server"
    recalibrate_bn: bool = False
    select: Literal["validation", "last"] = "validation"
    code_compat: bool = False

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {
            **WeightedSGD.presets["quick"],
            "latent_dim": 32,
            "pretrain_epochs": 1,
            "inversion_steps": 30,
            "inversion_lr": 0.05,
            "inversion_batches": 4,
            "hidden": 64,
            "translator_steps": 60,
            "translator_batch": 32,
            "translator_lr": 1e-3,
            "recalibrate_bn": True,
        },
        "default": {
            **WeightedSGD.presets["default"],
            "lr": 0.02,
            "latent_dim": 64,
            "pretrain_epochs": 20,
            "inversion_steps": 300,
            "inversion_lr": 0.05,
            "inversion_batches": 8,
            "hidden": 128,
            "translator_steps": 2000,
            "translator_batch": 64,
            "translator_lr": 3e-3,
            "recalibrate_bn": True,
        },
        "paper": {"image_changes": "crop_colour", **_PRINTED},
    }
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet50", image_size=256)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.code_compat:
            for field in fields(self):
                unset = (field.default, _PRINTED.get(field.name, field.default))
                if field.name in {*_RELEASED, *_PRINTED} and getattr(self, field.name) in unset:
                    object.__setattr__(self, field.name, _RELEASED.get(field.name, field.default))
        if self.recalibrate_bn and self.buffers != "share":
            raise ValueError(
                f"lsi.recalibrate_bn: want buffers=share, got buffers={self.buffers}; or set recalibrate_bn=false"
            )
        if self.aggregation == "mean" and self.normaliser == "clients":
            raise ValueError("lsi.normaliser: want server where aggregation=mean weighs by nothing, got clients")

    @property
    def coupling(self) -> str:
        return "its head normalises by mini-batch, and clients share importances computed from all images"

    def received(self, sent: RepresentationTranslator, clients: int, rng: torch.Generator) -> Translator:
        """The translator received by each of `clients` clients, frozen; `rng` only draws parameters that are overwritten."""
        translator = Translator(self.latent_dim, clients, self.translator_settings, rng)
        sent.load_into(translator)
        return translator.eval().requires_grad_(False)

    def importances(self, model: LatentClassifier, images: Tensor) -> dict[str, Tensor]:
        """Importances that a client with these images (N, 3, H, W) shares in stage 5, for its trained model."""
        model = self._for_importances(model, images)
        return importance(model, images, self.importance_batch, self.importance_output, self.importance_sign)

    def last_layer_gradients(self, model: LatentClassifier, images: Tensor, like: Tensor) -> Tensor:
        """Per-image gradients (N, K (p + 1)) by the last layer: see `_importance.last_layer_gradients`.

        Args:
            model: The client's trained model.
            images: (N, 3, H, W).
            like: The client's images (M, 3, H, W) or substitutes, for fresh BatchNorm statistics.
        """
        return last_layer_gradients(self._for_importances(model, like), images, self.importance_output)

    def _for_importances(self, model: LatentClassifier, images: Tensor) -> LatentClassifier:
        return with_fresh_statistics(model, images, self.batch_size) if self.fresh_importances else model

    @property
    def fresh_importances(self) -> bool:
        """Whether BatchNorm statistics are recomputed for the importances."""
        return self.importance_statistics == "fresh" and not self.frozen

    def pooled(self, gradients: Tensor) -> Tensor:
        """The last layer's importances (..., D) for a client with these per-image gradients (..., n, D)."""
        return pooled(gradients, self.importance_batch, self.importance_sign)

    @property
    def importance_batch(self) -> int:
        """Images over which gradients are summed before taking the absolute value."""
        return self.batch_size if self.importance_per == "batch" else 1

    @property
    def inversion(self) -> Inversion:
        """Settings of stage 2."""
        return Inversion(
            steps=self.inversion_steps,
            lr=self.inversion_lr,
            batches=self.inversion_batches,
            batch_size=self.inversion_batch,
            class_weight=self.class_weight,
            bn_weight=self.bn_weight,
            norm_weight=self.norm_weight,
            distance=self.inversion_distance,
            mode=self.inversion_mode,
        )

    @property
    def translator_settings(self) -> TranslatorSettings:
        """Settings of stage 3."""
        return TranslatorSettings(
            hidden=self.hidden,
            activation=self.out_act,
            dropout=self.dropout,
            steps=self.translator_steps,
            batch_size=self.translator_batch,
            lr=self.translator_lr,
            critic_steps=self.critic_steps,
            decay=self.translator_decay,
            rec=self.rec_weight,
            cls=self.cls_weight,
            gp=self.gp_weight,
            head=self.head_weight,
            adversarial=self.adversarial,
            minibatch=self.minibatch,
            pairing=self.pairing,
            mix=self.penalty_mix,
        )
