"""GAN reconstruction: trains a generator to map styles to images, as in CCST's own privacy audit.

Reference: Chen et al., "Federated domain generalization for image recognition via cross-client style transfer"
(CCST), WACV 2023, App. A; `fastgan` is its generator. Model selection never uses private images.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.metrics.perceptual import FormulaLpips, Perceptual
from fdgpriv.models.cpu_io import with_cpu_io
from fdgpriv.models.early_stopping import EarlyStopping
from fdgpriv.models.generator import MIN_SIDE, Generator, SmallGenerator
from fdgpriv.models.style_codec import digits_codec
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.fields import PositiveFloat, PositiveInt, TwoOrMore

from ._inversion import ImageRegression

ReconstructionLoss = Literal["mse", "lpips", "mse+lpips"]
ImageDistance = Callable[[Tensor, Tensor], Tensor]
_BATCH_SIZE = 64  # images in one pass, which fit a CPU's cache
_N_CHECKS = 8  # during a training; another check follows at its end
_MIN_CHECK_INTERVAL = 5  # steps
_PATIENCE = 2  # checks without progress that end a training
_MAX_CHECKED = 128  # held-out artifacts


@dataclass(frozen=True)
class Gan(Attack):
    """Trains a generator on artifacts simulated from auxiliary images, defense included; maps observed artifacts to images.

    Attributes:
        steps: Largest number of training steps; training ends earlier when held-out artifacts no longer improve.
        batch_size: Artifacts in a step; half of them are of a single image.
        lr: Learning rate of Adam, decayed to 0 by a cosine.
        generator: ``fastgan`` as published, its widths times `width`; or ``small``, a plain generator that learns more in
            the same time on a CPU.
        width: Factor of ``fastgan``'s widths.
        loss: mse, lpips, or mse+lpips.
        regression: The regression that the generator corrects: ``linear``, or ``rbf``, kernel ridge regression.
    """

    reads = (StyleStatistics, InterpolationStyle)
    task = Images()
    threats = ("insider", "server", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"steps": 3},
        "thorough": {"steps": 800},
        "paper": {"steps": 20_000, "generator": "fastgan", "width": 1.0},
    }

    steps: PositiveInt = 15
    batch_size: TwoOrMore = 32
    lr: PositiveFloat = 2e-3
    generator: Literal["small", "fastgan"] = "small"
    width: PositiveFloat = 1 / 16
    loss: ReconstructionLoss = "mse"
    regression: Literal["linear", "rbf"] = "rbf"

    def check(self, image_size: int) -> None:
        if image_size < MIN_SIDE:
            raise ValueError(f"gan: draws images of at least {MIN_SIDE} px, got images of {image_size} px")

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        regression = ImageRegression.of(adversary, self.regression)
        network = self._trained(regression, adversary, rng)
        images = _images_of(network, regression.simulated.standardised(adversary.vectors(observations))).clamp(0, 1)
        index = torch.randint(len(regression.inputs), (3,), generator=rng)
        unconditional = list(_images_of(network, regression.inputs[index]).clamp(0, 1))
        return Predictions(list(images), {"unconditional": unconditional})

    def _trained(self, regression: ImageRegression, adversary: Adversary, rng: torch.Generator) -> nn.Module:
        """The regression with the correction, possibly 0, that is best on held-out simulated artifacts."""
        simulated, inputs, predicted = regression.simulated, regression.inputs, regression.left_out
        generator = self._generator(inputs.shape[1], adversary.image_size, rng)
        network = _WarmStarted(regression, with_cpu_io(generator.to(adversary.device)))
        optimizer = torch.optim.Adam(network.generator.parameters(), self.lr, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        loss = _distance(self.loss)
        held_out = _held_out(regression, rng)
        single, pooled = (
            (is_kind & ~held_out).nonzero().flatten() for is_kind in (simulated.sizes == 1, simulated.sizes > 1)
        )

        def truth(index: Tensor) -> Tensor:
            return simulated.images[torch.stack([_random_member(simulated.members[i], rng) for i in index.tolist()])]

        checked_index = held_out.nonzero().flatten()
        checked_index = checked_index[torch.randperm(len(checked_index), generator=rng)][:_MAX_CHECKED]
        vectors, predictions, true_images = inputs[checked_index], predicted[checked_index], truth(checked_index)
        stopping = EarlyStopping(
            network.generator,
            lambda: float(loss(predictions + _images_of(network.generator, vectors), true_images)),
            _PATIENCE,
        )
        check_interval = max(_MIN_CHECK_INTERVAL, self.steps // _N_CHECKS)
        for step in range(1, self.steps + 1):
            index = _half_single(single, pooled, self.batch_size, rng)
            optimizer.zero_grad()
            loss(predicted[index] + network.generator(inputs[index], rng), truth(index)).backward()
            optimizer.step()
            schedule.step()
            if (step % check_interval == 0 or step == self.steps) and stopping.is_due():
                break
        stopping.restore()
        return network.eval()

    def _generator(self, inputs: int, image_size: int, rng: torch.Generator) -> nn.Module:
        if self.generator == "fastgan":
            return Generator(inputs, image_size, rng=rng, width=self.width)
        network = SmallGenerator(inputs, image_size, rng=rng)
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]  # half the time


def _held_out(regression: ImageRegression, rng: torch.Generator) -> Tensor:
    """(M,) bool: a tenth of the simulated artifacts, or of their looks where observed artifacts have another look."""
    looks = regression.looks
    groups = torch.arange(len(regression.inputs)) if looks is None or len(looks.unique()) == 1 else looks
    order = groups.unique()
    order = order[torch.randperm(len(order), generator=rng)]
    return torch.isin(groups, order[: -(-len(order) // 10)])


def _half_single(single: Tensor, pooled: Tensor, size: int, rng: torch.Generator) -> Tensor:
    """Indices (size,) of simulated artifacts, half of them of one image where both kinds exist."""
    kinds = [kind for kind in (single, pooled) if len(kind)]
    share = size // len(kinds)
    return torch.cat([kind[torch.randint(len(kind), (share,), generator=rng)] for kind in kinds])


def _random_member(members: Tensor, rng: torch.Generator) -> Tensor:
    return members[torch.randint(len(members), (), generator=rng)]


class _WarmStarted(nn.Module):
    """A regression from style to image, plus a generator that learns a correction to it.

    A regression learns most of what a style reveals of its image in seconds on a CPU; the generator alone needs
    thousands of steps for that. It learns from the regression's errors on artifacts that are left out.

    Args:
        regression: Standardised vectors (B, D) to images (B, 3, H, W).
        generator: Standardised vectors to corrections of images; its last layer is set to 0, so that these start at 0.
    """

    def __init__(self, regression: ImageRegression, generator: nn.Module) -> None:
        super().__init__()
        self.regression, self.generator = regression, generator
        last_convolution = [module for module in generator.modules() if isinstance(module, nn.Conv2d)][-1]
        nn.init.zeros_(last_convolution.weight)
        if last_convolution.bias is not None:
            nn.init.zeros_(last_convolution.bias)

    def forward(self, z: Tensor) -> Tensor:
        correction: Tensor = self.generator(z, None)
        return self.regression(z) + correction


@torch.no_grad()
def _images_of(network: nn.Module, inputs: Tensor) -> Tensor:
    """Images (M, 3, H, W), or corrections of images, for standardised vectors (M, D)."""
    return torch.cat([network(part) for part in inputs.split(_BATCH_SIZE)])


def _distance(name: ReconstructionLoss) -> ImageDistance:
    """The loss called `name`: one number for images and truth (B, 3, H, W) near [0, 1].

    The perceptual part compares features of the shipped style encoder for digits, also for photographs, and never features of
    the network that scores reconstructions.
    """
    perceptual = None if name == "mse" else _style_encoder_distance()

    def loss(images: Tensor, truth: Tensor) -> Tensor:
        squared_error = nn.functional.mse_loss(images, truth)
        if perceptual is None:
            return squared_error
        perceptual_distance: Tensor = perceptual(2 * images - 1, 2 * truth - 1).mean()
        return perceptual_distance if name == "lpips" else squared_error + perceptual_distance

    return loss


def _style_encoder_distance() -> Perceptual:
    codec = digits_codec()
    for parameter in codec.parameters():
        parameter.requires_grad_(False)
    return FormulaLpips("style-encoder", codec.stages)
