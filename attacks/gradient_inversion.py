"""Gradient inversion: optimises images so that training on them changes the model as the client's training did.

Reference: Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", NeurIPS 2020
(cosine objective, total variation); Yin et al., "See through gradients", CVPR 2021 (BatchNorm prior, labels first).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.moments import Moments
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.attack import Attack
from fdgpriv.metrics.matching import pairs
from fdgpriv.metrics.pixels import psnr_per_image
from fdgpriv.models.cpu_io import device_of
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.images import Images, Labelled
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import Capability
from fdgpriv.utils.fields import NonNegativeInt, PositiveFloat, PositiveInt, TwoOrMore
from fdgpriv.utils.seeds import generator

from ._batch_labels import held_back_updates
from ._batchnorm import moment_distance, watched
from ._inversion import around, descend, total_variation
from ._updates import Uploads, by_model_and_size, uploads

State = Mapping[str, Tensor]
PRIORS = (inf, 100.0, 30.0)


@dataclass(frozen=True)
class GradientInversion(Attack):
    """Treats the update as the gradient of one batch at the received model, or as a few steps of plain SGD from it.

    Attributes:
        steps: Steps of Adam.
        lr: Of the first step, in pixel values.
        restarts: Random starts; the result with the smallest objective is used.
        tv: Weight of the total variation.
        prior: Weight of the squared distance from the prior image; by default the weight of `PRIORS` that reconstructs
            held-back images best from simulated updates of equally many images; infinity returns the prior image itself.
        bn: Weight of the batch statistics that the buffers reveal; 0 if they are unknown.
        signed: Follow the gradient's sign only, as Geiping et al. do: better without `prior` and BatchNorm.
        unrolled: Steps of SGD on the whole batch that are differentiated through; 0 treats the update as one gradient.
        unrolled_lr: Of these steps.
        simulations: Updates of single public images that prior images of single images are learned from.
        most: At most so many images are reconstructed for one update.
    """

    also_called: ClassVar[tuple[str, ...]] = (
        "dlg",
        "idlg",
        "deep_leakage",
        "gradient_leakage",
        "inverting_gradients",
        "geiping",
    )

    reads = (ModelUpdate, ModelState)
    evaluates_models = True
    task = Images()
    group_sizes = (1, None)
    threats = ("server",)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"steps": 1, "simulations": 20, "most": 2},
        "thorough": {"steps": 50, "lr": 0.05, "simulations": 300, "most": 8},
        "paper": {"steps": 24_000, "lr": 0.1, "signed": True, "prior": 0.0, "tv": 0.2, "most": 100},
    }

    steps: PositiveInt = 5
    lr: PositiveFloat = 0.05
    restarts: PositiveInt = 1
    tv: float = 0.02
    prior: float | None = None
    bn: float = 1.0
    signed: bool = False
    unrolled: NonNegativeInt = 0
    unrolled_lr: PositiveFloat = 0.1
    simulations: TwoOrMore = 150
    most: PositiveInt = 4

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        if self.bn:
            adversary.threat.require(Capability.HAS_BN)
        model = adversary.simulator(TrainingSimulator, Capability.HAS_UPDATES).network().eval()
        priors: dict[int, float] = {}  # by number of images, chosen at the first received model
        for n, _, received_model in by_model_and_size(observations):
            if n not in priors:
                weight = self.prior
                priors[n] = self._best_prior_weight(adversary, model, received_model, n) if weight is None else weight
        predictions: dict[int, Tensor] = {}
        for group in self._uploads(adversary, model, observations):
            reconstructions = self._reconstructed(model, group, priors[observations[group.indices[0]].n_images], rng)
            for i, images, shares in zip(group.indices, reconstructions, group.shares, strict=True):
                predictions[i] = Labelled.of(images, shares)
        return Predictions([predictions[i] for i in range(len(observations))], set_size=self.most)

    def _uploads(
        self, adversary: Adversary, model: nn.Module, observations: Sequence[Observation]
    ) -> Iterator[Uploads]:
        layers = slice(None) if self.bn else slice(0)
        return uploads(adversary, model, observations, self.most, layers, self.simulations)

    def _reconstructed(self, model: nn.Module, group: Uploads, prior: float, rng: torch.Generator) -> list[Tensor]:
        """The images of each upload, at this weight of the prior images."""
        if prior == inf:
            return list(group.prior)
        reconstructions = []
        for i, change in enumerate(group.changes):
            moments = {name: (mean[i], variance[i]) for name, (mean, variance) in group.moments.items()}
            update = change, group.labels[i], moments, group.prior[i]
            reconstructions.append(self.inverted(model, *update, prior, group.batch_statistics, rng))
        return reconstructions

    def _best_prior_weight(self, adversary: Adversary, model: nn.Module, received_model: ModelState, n: int) -> float:
        """The prior weight with the largest PSNR on held-back images, n in each update; infinity where none are held back.

        The weights are tried in order, as long as the PSNR rises.
        """

        def choose() -> float:
            no_candidates = torch.zeros(0, dtype=torch.int64)
            held_back = held_back_updates(adversary, received_model, n)
            observations = [
                Observation(update, n, no_candidates[None], no_candidates, received_model) for update, _, _ in held_back
            ]
            truth = [images for _, images, _ in held_back]
            (group,) = self._uploads(adversary, model, observations)
            best, best_psnr = inf, -inf
            for prior in PRIORS:
                reconstructions = self._reconstructed(model, group, prior, generator(adversary.seed, 55))
                matched = [
                    pairs(images, true_images) for images, true_images in zip(reconstructions, truth, strict=True)
                ]
                psnr = float(torch.cat([psnr_per_image(*pair) for pair in matched]).mean())
                if psnr <= best_psnr:
                    break
                best, best_psnr = prior, psnr
            return best

        return adversary.cache.get((self, received_model, n), choose) if adversary.held_back else inf

    def inverted(
        self,
        model: nn.Module,
        change: State,
        labels: Tensor,
        moments: Mapping[str, Moments],
        prior_images: Tensor,
        prior: float,
        batch_statistics: bool,
        rng: torch.Generator,
    ) -> Tensor:
        """Reconstructs images (n, 3, H, W) with labels (n,) whose training step changes the model by `change`.

        Args:
            model: The received model, in evaluation mode.
            change: By shared parameter, received minus trained, in any unit.
            labels: Of the batch.
            moments: By layer, the batch statistics that were shared, if any.
            prior_images: (n, 3, H, W) images to start near, the distance from which is penalised.
            prior: The penalty's weight.
            batch_statistics: Whether BatchNorm layers normalise by the batch's statistics; else by their buffers.
            rng: Of the starts.
        """
        names = [name for name, _ in model.named_parameters() if name in change]
        target = _flattened([change[name] for name in names]).to(device_of(model))
        length = target.norm().clamp_min(1e-12)

        def objective(images: Tensor) -> Tensor:
            (batch,) = images
            gradient = _flattened(self._change(model, names, batch, labels))
            cosine = gradient @ target / (length * (gradient @ gradient + 1e-12).sqrt())
            value: Tensor = 1 - cosine.cpu() + self.tv * total_variation(batch).mean()
            if prior:
                value = value + prior * (batch - prior_images).square().mean()
            if moments:
                value = value + self.bn * moment_distance(recorded, moments)[0]
            return value[None]

        starts = around(prior_images[None], self.restarts, rng)
        with watched(model, 1, batch_statistics) as recorded:
            return descend(objective, starts, self.steps, self.lr, self.signed)[0]

    def _change(self, model: nn.Module, names: Sequence[str], images: Tensor, labels: Tensor) -> list[Tensor]:
        """Initial minus trained parameters of these names for a training on the images, in any unit, differentiable."""
        initial: dict[str, Tensor] = {name: model.get_parameter(name) for name in names}
        parameters = initial
        for _ in range(max(1, self.unrolled)):
            loss = nn.functional.cross_entropy(functional_call(model, parameters, (images,)), labels)
            # zeros for layers that this loss does not use, as a second head
            gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True, materialize_grads=True)
            if not self.unrolled:
                return list(gradients)
            parameters = {
                name: parameters[name] - self.unrolled_lr * gradient
                for name, gradient in zip(parameters, gradients, strict=True)
            }
        return [initial[name] - parameters[name] for name in parameters]


def _flattened(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of the tensors in one vector (P,)."""
    return torch.cat([tensor.flatten() for tensor in tensors])
