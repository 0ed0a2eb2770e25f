"""Deep inversion: optimises images so that their batch statistics match those that a client's BatchNorm buffers reveal.

Reference: Yin et al., "Dreaming to distill: data-free knowledge transfer via DeepInversion", CVPR 2020; Hatamizadeh et
al., "Do gradient inversion attacks make federated learning unsafe?", TMI 2023 (first-layer multiplier). The number of
layers is swept because LSI claims that one layer's statistics do not suffice (hypothesis H-L1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.parameters import BatchNormStatistics, ModelState
from fdgpriv.attack import Attack
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.bn_statistics import StatisticsSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.images import Images, Labelled
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import Capability
from fdgpriv.utils.fields import PositiveFloat, PositiveInt, TwoOrMore

from ._batchnorm import moment_distance, shares_statistics, watched
from ._inversion import around, descend, total_variation
from ._updates import Uploads, recomputed_statistics, uploads

_BATCH_SIZE = 64
ALL = 0


@dataclass(frozen=True)
class DeepInversion(Attack):
    """Inverts the received model, normalised by the reconstructed batch's own statistics as clients do in training.

    Where clients recompute statistics under that model, these are statistics of their unaugmented images, and labels
    are inferred from them too. Where clients train, labels are inferred from the change of the last layer.

    Attributes:
        layers: Number k of BatchNorm layers whose statistics are matched: the first k for a positive k, the last for a
            negative k, all for 0.
        sweep: Further values of k that are evaluated on single images, where the artifact is a model.
        steps: Steps of Adam.
        lr: Of the first step, in pixel values.
        restarts: Random starts; the result with the smallest objective is used.
        logits: Weight of the cross-entropy with the inferred labels.
        bn: Weight of the statistics.
        first: Weight of the first layer among the statistics.
        tv: Weight of the total variation.
        prior: Weight of the squared distance from the prior image.
        coarse: The first half of the steps optimises at a resolution this many times lower.
        simulations: Updates of single public images that prior images of single images are learned from.
        most: At most so many images are reconstructed for one client.
    """

    also_called: ClassVar[tuple[str, ...]] = ("model_inversion",)

    reads = (ModelState, BatchNormStatistics)
    evaluates_models = True
    task = Images()
    group_sizes = (1, None)
    threats = ("server",)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"steps": 1, "simulations": 20, "most": 2, "sweep": ()},
        "thorough": {"steps": 100, "lr": 0.05, "simulations": 300, "most": 8},
        "paper": {"steps": 2000, "lr": 0.05, "sweep": (-1, 1, 2, 4, 8, 16, 32), "most": 32},
    }

    layers: int = ALL
    sweep: tuple[int, ...] = (-1, 1, 4)
    steps: PositiveInt = 3
    lr: PositiveFloat = 0.01
    restarts: PositiveInt = 1
    logits: float = 0.01
    bn: float = 1.0
    first: float = 1.0
    tv: float = 0.02
    prior: float = 100.0
    coarse: PositiveInt = 1
    simulations: TwoOrMore = 150
    most: PositiveInt = 4

    def variants(self, kind: str) -> dict[str, Attack]:
        swept = self.sweep if kind == ModelState.kind else ()
        return {_variant_name(k): replace(self, layers=k) for k in (*swept, ALL)} if swept else {}

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        if any(shares_statistics(artifact.tensors()) for artifact in series.wire.values()):
            return None
        return "no BatchNorm statistics are in the models that clients send"

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        layers = slice(self.layers, None) if self.layers < 0 else slice(self.layers or None)
        if isinstance(observations[0].artifact, BatchNormStatistics):
            model = adversary.simulator(StatisticsSimulator, Capability.HAS_BN).network().eval()
            upload_groups = recomputed_statistics(adversary, model, observations, self.most, layers)
        else:
            model = adversary.simulator(TrainingSimulator, Capability.HAS_BN).network().eval()
            adversary.threat.require(Capability.HAS_UPDATES)
            upload_groups = uploads(adversary, model, observations, self.most, layers, self.simulations)
        predictions: dict[int, Prediction] = {}
        for uploads_of_size in upload_groups:
            reconstructions = torch.cat(
                [
                    self.inverted(model, uploads_of_size, batch, rng)
                    for batch in torch.arange(len(uploads_of_size.indices)).split(
                        max(1, _BATCH_SIZE // uploads_of_size.labels.shape[1])
                    )
                ]
            )
            for i, images, shares in zip(uploads_of_size.indices, reconstructions, uploads_of_size.shares, strict=True):
                predictions[i] = Labelled.of(images, shares)
        return Predictions([predictions[i] for i in range(len(observations))], set_size=self.most)

    def inverted(self, model: nn.Module, group: Uploads, selected: Tensor, rng: torch.Generator) -> Tensor:
        """Reconstructs images (G, m, 3, H, W) of the uploads at `selected` (G,); `model` holds the received model."""
        moments = {name: (mean[selected], variance[selected]) for name, (mean, variance) in group.moments.items()}
        labels, prior = group.labels[selected], group.prior[selected]
        groups, side = len(prior), prior.shape[-2:]

        def objective(images: Tensor) -> Tensor:
            batch = images.flatten(0, 1)
            batch = batch if batch.shape[-2:] == side else _resized(batch, side)
            loss = nn.functional.cross_entropy(model(batch), labels.flatten(), reduction="none")
            squared_distance = (batch - prior.flatten(0, 1)).square().mean(dim=(1, 2, 3))
            penalties = self.logits * loss + self.prior * squared_distance + self.tv * total_variation(batch)
            value = penalties.view(groups, -1).mean(1)
            if moments:
                value = value + self.bn * moment_distance(recorded, moments, self.first)
            return value

        starts = around(prior, self.restarts, rng)
        steps = self.steps
        with watched(model, groups, group.batch_statistics) as recorded:
            if self.coarse > 1:
                coarse_starts = [nn.functional.avg_pool3d(start, (1, self.coarse, self.coarse)) for start in starts]
                coarse_images = descend(objective, coarse_starts, -(-steps // 2), self.lr)
                starts, steps = [_resized(coarse_images.flatten(0, 1), side).unflatten(0, (groups, -1))], steps // 2
            return descend(objective, starts, steps, self.lr)


def _resized(images: Tensor, side: Sequence[int]) -> Tensor:
    return nn.functional.interpolate(images, list(side), mode="bilinear", align_corners=False)


def _variant_name(layers: int) -> str:
    if layers == ALL:
        return "k=all"
    return f"k={layers}" if layers > 0 else f"last={-layers}"
