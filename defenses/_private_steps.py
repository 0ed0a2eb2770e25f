"""DP-SGD's local training: Poisson mini-batches, and the noised sum of each image's clipped gradient.

Reference: Abadi et al., "Deep learning with differential privacy", CCS 2016.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.federation.local_training import Batch, LocalTraining, Loss, Workload
from fdgpriv.privacy.poisson import Accountant, poisson_noise_multiplier

from ._per_image import group_norm_twin, per_image_gradients, trained_parameters

_noise_multiplier = cache(poisson_noise_multiplier)  # takes up to seconds, and is asked for in every step
_MEMORY = 2**28  # bytes of gradients of single images at once


@dataclass(frozen=True)
class Plan:
    """What the accountant counts of one client's training.

    Attributes:
        rate: q, the probability with which each image is in a mini-batch.
        steps: Of all rounds.
        expected: Expected number of images in a mini-batch; the noised sum is divided by it.
        multiplier: z, noise standard deviation over the clipping norm.
    """

    rate: float
    steps: int
    expected: float
    multiplier: float


@dataclass(frozen=True, eq=False)
class GradientCanaries:
    """Artificial records whose gradients are along one coordinate of the parameter vector each.

    Before clipping their gradients have 10 times the clipping norm, so that a wrong clip is seen as well.

    Attributes:
        places: (m,) different coordinates.
        signs: (m,) 1 or -1.
        included: (m,) whether each is among the client's data.
    """

    places: Tensor
    signs: Tensor
    included: Tensor

    length: ClassVar[float] = 10.0

    def clipped(self, rate: float, clip: float, dim: int, rng: torch.Generator) -> Tensor:
        """Sum (dim,) of the clipped gradients of those in one mini-batch."""
        held = self.included.nonzero().flatten()
        drawn = held[poisson(len(held), rate, rng)]
        norms = torch.full((len(drawn),), self.length * clip)
        total = torch.zeros(dim)
        total[self.places[drawn]] = self.signs[drawn] * norms * clip_factors(norms, clip)
        return total


@dataclass(frozen=True)
class PlainOnTwin(LocalTraining):
    """Plain SGD on the network that DP-SGD trains."""

    def network(self, model: nn.Module) -> nn.Module:
        return group_norm_twin(model)


@dataclass(frozen=True)
class PrivateSGD(PlainOnTwin):
    """DP-SGD; the noise is calibrated to each client's number of images, which is public.

    Attributes:
        epsilon, delta: The budget of all rounds.
        clip: C, the largest norm of an image's gradient.
        accountant: Opacus' Renyi accountant, or the tighter and slower one by numerical composition.
        noise: Share of the calibrated noise that is added: below 1 only to test that measured epsilons show it.
        canaries: Added to each step when the guarantee is measured.
    """

    elementwise: ClassVar[bool] = False

    epsilon: float
    delta: float
    clip: float
    accountant: Accountant
    noise: float = 1.0
    canaries: GradientCanaries | None = None

    def check(self, work: Workload) -> None:
        try:
            self.plan(work)
        except ValueError as error:
            raise ValueError(f"dpsgd: {error}") from error

    def plan(self, work: Workload) -> Plan:
        """How often images of this client are used, and the noise for it."""
        rate, steps = min(1.0, work.batch_size / work.rows), work.rounds * work.steps
        return Plan(rate, steps, rate * work.images, self.multiplier(rate, steps))

    def multiplier(self, rate: float, steps: int) -> float:
        """The least z for this budget."""
        return _noise_multiplier(self.epsilon, self.delta, steps, rate, self.accountant)

    def undefended(self) -> LocalTraining:
        return PlainOnTwin()

    def batches(self, work: Workload, rng: torch.Generator) -> Iterator[Tensor]:
        """As many as of plain SGD; in each, every image is independently with probability q, with all its copies."""
        rate, copies = self.plan(work).rate, torch.arange(work.copies)
        for _ in range(work.steps):
            yield (poisson(work.images, rate, rng)[:, None] * work.copies + copies).flatten()

    def backward(self, model: nn.Module, loss: Loss, batch: Batch, work: Workload, rng: torch.Generator) -> None:
        plan, parameters = self.plan(work), trained_parameters(model)
        total = self.clipped_sum(model, loss, batch, work.copies)
        if self.canaries is not None:
            total += self.canaries.clipped(plan.rate, self.clip, len(total), rng).to(total.device)
        noise = torch.randn(len(total), generator=rng).to(total.device)
        noised = (total + self.noise * plan.multiplier * self.clip * noise) / plan.expected
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, gradient in zip(parameters, noised.split(sizes), strict=True):
            parameter.grad = gradient.view_as(parameter)

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, copies: int) -> Tensor:
        """Sum (D,) over images of the clipped mean gradient of an image's copies."""
        parameters = trained_parameters(model)
        dim = sum(parameter.numel() for parameter in parameters)
        total = parameters[0].new_zeros(dim)
        at_once = max(1, _MEMORY // (4 * dim * copies)) * copies
        for start in range(0, len(batch), at_once):
            part = batch.part(start, start + at_once)
            gradients = per_image_gradients(model, partial(loss, part), len(part))
            of_images = gradients.view(-1, copies, dim).mean(1)
            total += clip_factors(of_images.norm(dim=1), self.clip) @ of_images
        return total


def poisson(count: int, rate: float, rng: torch.Generator) -> Tensor:
    """Indices below `count`, each included independently with probability `rate`."""
    return (torch.rand(count, generator=rng) < rate).nonzero().flatten()


def clip_factors(norms: Tensor, clip: float) -> Tensor:
    """Factors (n,) that scale vectors of these norms to at most `clip`."""
    return (clip / norms.clamp_min(1e-12)).clamp_max(1)
