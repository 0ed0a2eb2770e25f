"""GAN reconstruction: a generator learns to draw the image behind a style, as CCST's own audit tried.

Reference: Chen et al., "Federated domain generalization for image recognition via cross-client style transfer"
(CCST), WACV 2023, App. A; the generator is FastGAN's (METHODS 3.7). Selection never sees private images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.finding import Measured
from fdgpriv.models.generator import Generator
from fdgpriv.roles import Attack

from ._images import identified, lpips, psnr, realism, ssim
from ._perceptual import LOSSES, distance
from ._reading import Practice, practise, vector


@dataclass(frozen=True)
class Gan(Attack):
    """Trains on artifacts it made itself from images it holds, through the defense, then draws what it is shown.

    Attributes:
        steps: Training steps of one generator.
        batch_size: Artifacts in a step; half of them stand for a single image.
        lr: Of Adam, decayed to 0 by a cosine.
        width: Of the generator, times the published widths.
        loss: mse, lpips, or mse+lpips.
    """

    family: ClassVar[str] = "reconstruction"
    reads: ClassVar[str] = StyleStatistics.kind
    headline: ClassVar[str] = "psnr"
    higher_leaks: ClassVar[bool] = True
    threats: ClassVar[tuple[str, ...]] = ("insider", "client", "third_party")

    steps: int = 300
    batch_size: int = 48
    lr: float = 3e-3
    width: float = 1 / 24
    loss: str = "mse"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"gan.loss: want one of {', '.join(LOSSES)}; got {self.loss!r}")
        for name in ("steps", "lr", "width"):
            if getattr(self, name) <= 0:
                raise ValueError(f"gan.{name}: want more than 0, got {getattr(self, name)}")
        if self.batch_size < 2:
            raise ValueError(f"gan.batch_size: want at least 2, got {self.batch_size}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        practice = practise(view, 60, rng, single_repeats=2)
        network = self._trained(practice, view.image_size, rng)
        asked = torch.stack([vector(question.artifact) for question in questions])
        drawn = _draw(network, practice.standardised(asked))
        return list(drawn), self._blind(view, practice, network, rng)

    def _trained(self, practice: Practice, image_size: int, rng: torch.Generator) -> Generator:
        inputs = practice.standardised(practice.inputs)
        network = Generator(inputs.shape[1], image_size, rng=rng, width=self.width)
        optimizer = torch.optim.Adam(network.parameters(), self.lr, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        loss = distance(self.loss)
        single = (practice.sizes == 1).nonzero().flatten()
        pooled = (practice.sizes > 1).nonzero().flatten()
        for _ in range(self.steps):
            index = _half_single(single, pooled, self.batch_size, rng)
            truth = torch.stack([practice.images[_one_of(practice.members[i], rng)] for i in index.tolist()])
            optimizer.zero_grad()
            loss(network(inputs[index], rng), truth).backward()
            optimizer.step()
            schedule.step()
        return network.eval()

    def _blind(
        self, view: View, practice: Practice, network: Generator, rng: torch.Generator
    ) -> dict[str, list[Guess]]:
        """What the same adversary draws without the artifact: noise, public means, and the generator's own samples."""
        side = view.image_size
        some = torch.randint(len(practice.inputs), (3,), generator=rng)
        blind = {
            "noise": list(torch.rand(3, 3, side, side, generator=rng)),
            "mean_image": [practice.images.mean(0)],
            "unconditional": list(_draw(network, practice.standardised(practice.inputs[some]))),
        }
        for domain in view.auxiliary:
            blind[f"domain_mean:{domain.name}"] = [domain.images.mean(0)]
        for label in practice.labels.unique().tolist():
            blind[f"class_mean:{label}"] = [practice.images[practice.labels == label].mean(0)]
        return blind

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return psnr(guesses, truths)

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        name, distances = lpips(guesses, truths)
        return {"ssim": ssim(guesses, truths), name: distances, "identified": identified(guesses, truths)}

    def realism(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
        return realism(guesses, truths)


def _half_single(single: Tensor, pooled: Tensor, size: int, rng: torch.Generator) -> Tensor:
    """Indices (size,) of practice artifacts, half of them of one image where both kinds exist."""
    kinds = [kind for kind in (single, pooled) if len(kind)]
    share = size // len(kinds)
    return torch.cat([kind[torch.randint(len(kind), (share,), generator=rng)] for kind in kinds])


def _one_of(members: Tensor, rng: torch.Generator) -> int:
    return int(members[torch.randint(len(members), (), generator=rng)])


@torch.no_grad()
def _draw(network: Generator, inputs: Tensor) -> Tensor:
    """Images (M, 3, H, W) in [0, 1]."""
    return torch.cat([network(part) for part in inputs.split(256)]).clamp(0, 1)
