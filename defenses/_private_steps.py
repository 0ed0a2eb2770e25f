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

_noise_multiplier = cache(poisson_noise_multiplier)  # takes up to seconds, and is needed in every step
_MAX_GRADIENT_BYTES = 2**28  # of gradients of single images in one pass


@dataclass(frozen=True)
class SamplingPlan:
    """Sampling and noise of one client's training, as the accountant counts them.

    Attributes:
        rate: q, the probability with which each image is in a mini-batch.
        steps: Number of steps of all rounds.
        expected_images: Expected number of images in a mini-batch; the noised sum is divided by it.
        multiplier: z, noise standard deviation over the clipping norm.
    """

    rate: float
    steps: int
    expected_images: float
    multiplier: float


@dataclass(frozen=True, eq=False)
class GradientCanaries:
    """Artificial records whose gradients are along one coordinate of the parameter vector each.

    Before clipping their gradients have 10 times the clipping norm, so that a wrong clip is seen as well.

    Attributes:
        positions: (m,) different coordinates.
        signs: (m,) 1 or -1.
        included: (m,) whether each is among the client's data.
    """

    positions: Tensor
    signs: Tensor
    included: Tensor

    length: ClassVar[float] = 10.0

    def clipped(self, rate: float, clip: float, dim: int, rng: torch.Generator) -> Tensor:
        """Sum (dim,) of the clipped gradients of the canaries in one mini-batch."""
        included_canaries = self.included.nonzero().flatten()
        sampled = included_canaries[poisson(len(included_canaries), rate, rng)]
        norms = torch.full((len(sampled),), self.length * clip)
        total = torch.zeros(dim)
        total[self.positions[sampled]] = self.signs[sampled] * norms * clip_factors(norms, clip)
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
        noise: Share of the calibrated noise that is added; below 1 only to test that measured epsilons show the lack.
        canaries: Added to each step when the guarantee is measured.
    """

    elementwise: ClassVar[bool] = False

    epsilon: float
    delta: float
    clip: float
    accountant: Accountant
    noise: float = 1.0
    canaries: GradientCanaries | None = None

    def check(self, workload: Workload) -> None:
        try:
            self.plan(workload)
        except ValueError as error:
            raise ValueError(f"dpsgd: {error}") from error

    def plan(self, workload: Workload) -> SamplingPlan:
        """The sampling of this client's images, and the noise calibrated to it."""
        rate, steps = min(1.0, workload.batch_size / workload.rows), workload.rounds * workload.steps
        return SamplingPlan(rate, steps, rate * workload.images, self.multiplier(rate, steps))

    def multiplier(self, rate: float, steps: int) -> float:
        """The least z for this budget."""
        return _noise_multiplier(self.epsilon, self.delta, steps, rate, self.accountant)

    def undefended(self) -> LocalTraining:
        return PlainOnTwin()

    def batches(self, workload: Workload, rng: torch.Generator) -> Iterator[Tensor]:
        """As many mini-batches as plain SGD; each contains an image, with all its copies, independently with probability q."""
        rate, copies = self.plan(workload).rate, torch.arange(workload.copies)
        for _ in range(workload.steps):
            yield (poisson(workload.images, rate, rng)[:, None] * workload.copies + copies).flatten()

    def backward(self, model: nn.Module, loss: Loss, batch: Batch, workload: Workload, rng: torch.Generator) -> None:
        plan, parameters = self.plan(workload), trained_parameters(model)
        total = self.clipped_sum(model, loss, batch, workload.copies)
        if self.canaries is not None:
            total += self.canaries.clipped(plan.rate, self.clip, len(total), rng).to(total.device)
        noise = torch.randn(len(total), generator=rng).to(total.device)
        noised = (total + self.noise * plan.multiplier * self.clip * noise) / plan.expected_images
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, gradient in zip(parameters, noised.split(sizes), strict=True):
            parameter.grad = gradient.view_as(parameter)

    def clipped_sum(self, model: nn.Module, loss: Loss, batch: Batch, copies: int) -> Tensor:
        """Sum (D,) over images of the clipped mean gradient of an image's copies."""
        parameters = trained_parameters(model)
        dim = sum(parameter.numel() for parameter in parameters)
        total = parameters[0].new_zeros(dim)
        batch_size = max(1, _MAX_GRADIENT_BYTES // (4 * dim * copies)) * copies
        for start in range(0, len(batch), batch_size):
            batch_part = batch.part(start, start + batch_size)
            gradients = per_image_gradients(model, partial(loss, batch_part), len(batch_part))
            image_gradients = gradients.view(-1, copies, dim).mean(1)
            total += clip_factors(image_gradients.norm(dim=1), self.clip) @ image_gradients
        return total


def poisson(count: int, rate: float, rng: torch.Generator) -> Tensor:
    """Indices below `count`, each included independently with probability `rate`."""
    return (torch.rand(count, generator=rng) < rate).nonzero().flatten()


def clip_factors(norms: Tensor, clip: float) -> Tensor:
    """Factors (n,) that scale vectors of these norms to at most `clip`."""
    return (clip / norms.clamp_min(1e-12)).clamp_max(1)
