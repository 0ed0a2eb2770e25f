"""GAN reconstruction: a generator learns to draw the image behind a style, as CCST's own audit tried.

Reference: Chen et al., "Federated domain generalization for image recognition via cross-client style transfer"
(CCST), WACV 2023, App. A; the generator is FastGAN's (METHODS 3.7). Selection never sees private images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, View
from fdgpriv.kinds import InterpolationStyle
from fdgpriv.models.generator import Generator, SmallGenerator

from ._blind import blind
from ._linear import linear_reader
from ._perceptual import LOSSES, distance
from ._reading import Practice, practise, vectors
from ._reconstruction import Reconstruction

_TOGETHER = 64  # images drawn at once, which a CPU's cache holds


@dataclass(frozen=True)
class Gan(Reconstruction):
    """Trains on artifacts it made itself from images it holds, through the defense, then draws what it is shown.

    Attributes:
        steps: Training steps of one generator.
        batch_size: Artifacts in a step; half of them stand for a single image.
        lr: Of Adam, decayed to 0 by a cosine.
        generator: ``fastgan`` as published, its widths times `width`; ``small``, plain and for 32 px, which learns more
            in the same time on a CPU; ``auto`` is small at 32 px.
        width: Of ``fastgan``.
        loss: mse, lpips, or mse+lpips.
    """

    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind, InterpolationStyle.kind)
    threats: ClassVar[tuple[str, ...]] = ("insider", "client", "third_party")

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"steps": 3}, "paper": {"steps": 20_000}}

    steps: int = 15
    batch_size: int = 32
    lr: float = 2e-3
    generator: str = "auto"
    width: float = 1 / 16
    loss: str = "mse"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"gan.loss: want one of {', '.join(LOSSES)}; got {self.loss!r}")
        if self.generator not in ("auto", "small", "fastgan"):
            raise ValueError(f"gan.generator: want auto, small or fastgan; got {self.generator!r}")
        for name in ("steps", "lr", "width"):
            if getattr(self, name) <= 0:
                raise ValueError(f"gan.{name}: want more than 0, got {getattr(self, name)}")
        if self.batch_size < 2:
            raise ValueError(f"gan.batch_size: want at least 2, got {self.batch_size}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        practice = practise(view, 60)
        network = self._trained(practice, view.image_size, rng)
        asked = vectors(view, questions)
        drawn = _draw(network, practice.standardised(asked))
        return list(drawn), self._blind(view, practice, network, rng)

    def _trained(self, practice: Practice, image_size: int, rng: torch.Generator) -> nn.Module:
        inputs = practice.standardised(practice.inputs)
        network = _WarmStarted(inputs, _targets(practice), self._generator(inputs.shape[1], image_size, rng))
        optimizer = torch.optim.Adam(network.generator.parameters(), self.lr, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        loss = distance(self.loss)
        single = (practice.sizes == 1).nonzero().flatten()
        pooled = (practice.sizes > 1).nonzero().flatten()
        for _ in range(self.steps):
            index = _half_single(single, pooled, self.batch_size, rng)
            truth = practice.images[torch.stack([_one_of(practice.members[i], rng) for i in index.tolist()])]
            optimizer.zero_grad()
            loss(network(inputs[index], rng), truth).backward()
            optimizer.step()
            schedule.step()
        return network.eval()

    def _generator(self, inputs: int, image_size: int, rng: torch.Generator) -> nn.Module:
        if self.generator == "fastgan" or (self.generator == "auto" and image_size != SmallGenerator.image_size):
            return Generator(inputs, image_size, rng=rng, width=self.width)
        if image_size != SmallGenerator.image_size:
            raise ValueError(
                f"gan.generator: small draws {SmallGenerator.image_size} px, got images of {image_size} px"
            )
        small = SmallGenerator(inputs, rng=rng)
        return small.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]  # half the time

    def _blind(
        self, view: View, practice: Practice, network: nn.Module, rng: torch.Generator
    ) -> dict[str, list[Guess]]:
        """What the same adversary draws without the artifact: noise, public means, and the generator's own samples."""
        some = torch.randint(len(practice.inputs), (3,), generator=rng)
        own = list(_draw(network, practice.standardised(practice.inputs[some])))
        return {**blind(view, rng), "unconditional": own}


def _half_single(single: Tensor, pooled: Tensor, size: int, rng: torch.Generator) -> Tensor:
    """Indices (size,) of practice artifacts, half of them of one image where both kinds exist."""
    kinds = [kind for kind in (single, pooled) if len(kind)]
    share = size // len(kinds)
    return torch.cat([kind[torch.randint(len(kind), (share,), generator=rng)] for kind in kinds])


def _one_of(members: Tensor, rng: torch.Generator) -> Tensor:
    return members[torch.randint(len(members), (), generator=rng)]


def _targets(practice: Practice) -> Tensor:
    """(M, 3, H, W): the mean of the images behind each practice artifact, which squared error would have drawn."""
    return torch.stack([practice.images[members].mean(0) for members in practice.members])


class _WarmStarted(nn.Module):
    """Draws what ridge regression sees in a style, and what the generator learned to add to it.

    Most of what a style tells of its image is linear; starting there, a few hundred steps on a CPU reach what the
    generator alone needs many thousands for.

    Args:
        inputs: (M, D) standardised vectors of practice artifacts.
        targets: (M, 3, H, W) what stands behind them.
        generator: Vectors (B, D) to images; its last layer is set to 0, so that it begins by adding nothing.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, generator: nn.Module) -> None:
        super().__init__()
        weight, bias = linear_reader(inputs, targets)
        self.shape = targets.shape[1:]
        self.linear = nn.utils.skip_init(nn.Linear, inputs.shape[1], targets[0].numel()).requires_grad_(False)
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)
        self.generator = generator
        last = [module for module in generator.modules() if isinstance(module, nn.Conv2d)][-1]
        nn.init.zeros_(last.weight)
        if last.bias is not None:
            nn.init.zeros_(last.bias)

    def forward(self, z: Tensor, rng: torch.Generator | None = None) -> Tensor:
        drawn: Tensor = self.linear(z).unflatten(1, self.shape) + self.generator(z, rng)
        return drawn


@torch.no_grad()
def _draw(network: nn.Module, inputs: Tensor) -> Tensor:
    """Images (M, 3, H, W) in [0, 1]."""
    return torch.cat([network(part) for part in inputs.split(_TOGETHER)]).clamp(0, 1)
