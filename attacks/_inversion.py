"""Shared by all inversions: gradient descent on images, total variation, and regressions from vectors to images."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.moments import Moments
from fdgpriv.statistics.kernel_ridge import KernelRidge
from fdgpriv.statistics.ridge import ridge_regression
from fdgpriv.tasks.image_baselines import class_means
from fdgpriv.utils.file_memory import empty_in_file

from ._batchnorm import bn_layers, watched
from ._simulation import SimulatedArtifacts, center_and_spread, simulate

_BATCH_SIZE = 128
_GROUPS_PER_SIZE = 60  # simulated artifacts of each size above 1, from which image regressions are learned

Objective = Callable[[Tensor], Tensor]


def descend(objective: Objective, starts: Sequence[Tensor], steps: int, lr: float, signed: bool = False) -> Tensor:
    """Images in [0, 1] that minimise an objective: Adam with cosine decay to 0, clipped to [0, 1] after each step.

    Args:
        objective: Maps images (B, ..., 3, H, W) to a number (B,) for each of B independent reconstructions, which share
            the passes through a network.
        starts: Starting images (B, ..., 3, H, W) in [0, 1] of each restart.
        steps: Number of steps of each restart.
        lr: Learning rate of the first step: about how far a pixel moves in it.
        signed: Follow the sign of the gradient only, as Geiping et al. (NeurIPS 2020) do.

    Returns: (B, ..., 3, H, W): for each reconstruction the restart that ends with the least objective.
    """
    results = [_descended(objective, start, steps, lr, signed) for start in starts]
    if len(results) == 1:
        return results[0]
    with torch.enable_grad():  # an objective may itself contain gradients
        values = torch.stack([objective(images).detach() for images in results])
    best = values.nan_to_num(torch.inf).argmin(0)
    return torch.stack(results)[best, torch.arange(len(best))]


def _descended(objective: Objective, start: Tensor, steps: int, lr: float, signed: bool) -> Tensor:
    images = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([images], lr, fused=True)
    (parameter_group,) = optimizer.param_groups
    for step in range(steps):
        parameter_group["lr"] = lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(objective(images).sum(), images)
        images.grad = (slope.sign_() if signed else slope).nan_to_num_(0, 0, 0)
        optimizer.step()
        with torch.no_grad():
            images.clamp_(0, 1)
    return images.detach()


def around(images: Tensor, restarts: int, rng: torch.Generator) -> list[Tensor]:
    """Random starts near the images (B, ..., 3, H, W), one for each restart; equal images get different starts."""
    return list((images + 0.01 * torch.randn(restarts, *images.shape, generator=rng)).clamp(0, 1))


def total_variation(images: Tensor) -> Tensor:
    """Mean absolute difference (...) of neighbouring pixels of images (..., 3, H, W), vertical plus horizontal."""
    across, down = images.diff(dim=-1).abs(), images.diff(dim=-2).abs()
    return across.mean(dim=(-3, -2, -1)) + down.mean(dim=(-3, -2, -1))


@dataclass(frozen=True, eq=False)
class ImageRegression:
    """Predicts the mean of an artifact's images, by kernel ridge regression learned from artifacts that are simulated.

    Attributes:
        simulated: The simulated artifacts.
        inputs: (M, D) standardised vectors of these artifacts.
        targets: (M, 3, H, W) the mean of each artifact's images, which minimises the squared error.
        ridge: Regression from `inputs` to flattened `targets`.
        looks: (M,) the look of each artifact, if the observed artifacts have another look than any of these; else None.
    """

    simulated: SimulatedArtifacts
    inputs: Tensor
    targets: Tensor
    ridge: KernelRidge
    looks: Tensor | None

    @classmethod
    def of(cls, adversary: Adversary, kernel: Literal["linear", "rbf"]) -> "ImageRegression":
        """Learned from every practice image's artifact and some groups of each larger size; cached for all attacks."""

        def learned() -> ImageRegression:
            simulated = simulate(adversary, _GROUPS_PER_SIZE)
            inputs = simulated.standardised(simulated.inputs)
            targets = empty_in_file(len(inputs), *simulated.images.shape[1:])
            for target, members in zip(targets, simulated.members, strict=True):
                target.copy_(simulated.images[members].mean(0))
            looks = simulated.of_artifacts if adversary.expects_other_looks else None
            ridge = KernelRidge(inputs, targets.flatten(1), kernel, looks)
            return cls(simulated, inputs, targets, ridge, looks)

        regression: ImageRegression = adversary.cache.get((cls, kernel), learned)
        return regression

    def __call__(self, inputs: Tensor) -> Tensor:
        """Images (N, 3, H, W), not yet clipped to [0, 1], of standardised vectors (N, D)."""
        return self.ridge(inputs).view(-1, *self.targets.shape[1:])

    @property
    def left_out(self) -> Tensor:
        """(M, 3, H, W): the image predicted for each simulated artifact by the regression on the others."""
        return self.ridge.left_out.view_as(self.targets)


class ImagePrior:
    """Predicts a single image from its statistics and label by ridge regression; several images by their classes' means.

    Args:
        adversary: The adversary with its public images.
        model: The network whose statistics are used, with the received model's parameters, in evaluation mode.
        moments: By layer, the moments (N, C) of each public image as a client would share them; None to compute them.
    """

    def __init__(self, adversary: Adversary, model: nn.Module, moments: Mapping[str, Moments] | None = None) -> None:
        self.images, self.labels = adversary.public_images
        self.means = class_means(self.images, self.labels)
        self.classes = adversary.classes
        if moments is not None:
            self.moments = dict(moments)
            return
        parts: dict[str, list[Moments]] = {}
        with torch.no_grad():
            for batch in self.images.split(_BATCH_SIZE) if bn_layers(model) else ():
                with watched(model, len(batch), batch_statistics=True) as recorded:
                    model(batch)
                for name, batch_moments in recorded.items():
                    parts.setdefault(name, []).append(batch_moments)
        self.moments = {
            name: (torch.cat([mean for mean, _ in layer_parts]), torch.cat([variance for _, variance in layer_parts]))
            for name, layer_parts in parts.items()
        }

    def __call__(self, target: Mapping[str, Moments], labels: Tensor) -> Tensor:
        """Predicted images (G, m, 3, H, W) in [0, 1].

        Args:
            target: By layer, moments (G, C) of the inputs of G groups; {} where none are known.
            labels: (G, m) of the groups' images.
        """
        if labels.shape[1] > 1 or not target:
            return self.of_class(labels)
        public_rows, target_rows = self._standardised_rows(target)
        regression = KernelRidge(self._inputs(public_rows, self.labels), self.images.flatten(1), "rbf")
        images = regression(self._inputs(target_rows, labels[:, 0]))
        return images.view(-1, 1, *self.images.shape[1:]).clamp(0, 1)

    def shares(self, target: Mapping[str, Moments]) -> Tensor:
        """(G, K): label shares that ridge regression, fitted on single images, predicts from moments (G, C)."""
        public_rows, target_rows = self._standardised_rows(target)
        weight, bias = ridge_regression(public_rows, one_hot(self.labels, self.classes))
        shares = (target_rows.clamp(-10, 10) @ weight.T + bias).clamp_min(0)
        return shares / shares.sum(1, keepdim=True).clamp_min(1e-9)

    def of_class(self, labels: Tensor) -> Tensor:
        """The mean public images (G, m, 3, H, W) of these labels (G, m); of all images for a class without any."""
        overall = self.images.mean(0)
        return torch.stack([torch.stack([self.means.get(k, overall) for k in group]) for group in labels.tolist()])

    def _standardised_rows(self, target: Mapping[str, Moments]) -> tuple[Tensor, Tensor]:
        """Moments of the public images (N, D) and the target moments (G, D), in units of the public images' spread."""
        public_rows = moment_rows({name: self.moments[name] for name in target})
        center, spread = center_and_spread(public_rows)
        return (public_rows - center) / spread, (moment_rows(target) - center) / spread

    def _inputs(self, rows: Tensor, labels: Tensor) -> Tensor:
        one_hot_labels = one_hot(labels, self.classes) * self.classes**0.5
        return torch.cat([rows.clamp(-10, 10), one_hot_labels], dim=1)


def moment_rows(moments: Mapping[str, Moments]) -> Tensor:
    """(G, D): means and standard deviations of all layers, from moments (G, C) by layer."""
    return torch.cat([torch.cat([mean, variance.sqrt()], dim=1) for mean, variance in moments.values()], dim=1)


class RowRegression:
    """Kernel ridge regression from rows (N, D) to flattened images (N, P); rows of the same image share their `groups` (N,)."""

    def __init__(self, rows: Tensor, images: Tensor, groups: Tensor | None = None) -> None:
        self.center, self.spread = center_and_spread(rows)
        self.ridge = KernelRidge((rows - self.center) / self.spread, images.flatten(1), "rbf", groups)
        self.left_out_error = float((self.ridge.left_out - images.flatten(1)).square().mean())

    def __call__(self, rows: Tensor) -> Tensor:
        return self.ridge(((rows - self.center) / self.spread).clamp(-10, 10))

    def error(self, rows: Tensor, images: Tensor) -> float:
        """Mean square error of the images predicted from these rows."""
        return float((self(rows) - images.flatten(1)).square().mean())


def row_of_single_image(weight: Tensor, bias: Tensor) -> Tensor:
    """(D + K,): latent and one-hot class of the only image that a last layer was trained on; arguments as `row_of_class`.

    Only the label's entry of `bias` is negative.
    """
    return row_of_class(weight, bias, bias.argmin())


def row_of_class(weight: Tensor, bias: Tensor, label: Tensor) -> Tensor:
    """(D + K,): mean latent of the images of a class that a last layer was trained on, and the class as one-hot.

    A step changes the layer's weight (K, D) by the mean over images of the outer product of the bias's change and the
    latent.

    Args:
        weight, bias: Received minus trained, (K, D) and (K,).
        label: ().
    """
    bias_of_label = bias[label]
    latent = weight[label] / torch.where(
        bias_of_label < 0, bias_of_label.clamp_max(-1e-12), bias_of_label.clamp_min(1e-12)
    )
    return torch.cat([latent, one_hot(label, len(bias))])


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """(..., K): float32 indicators of labels (...)."""
    return nn.functional.one_hot(labels, classes).float()


def bias_change(change: Mapping[str, Tensor], layer: Sequence[str]) -> Tensor:
    """(K,): received minus trained bias of this layer; where it has no bias, its weights' change summed by class."""
    parameter = change[layer[-1]]
    return parameter if parameter.ndim == 1 else parameter.flatten(1).sum(1)
