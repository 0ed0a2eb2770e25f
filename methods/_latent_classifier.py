"""LSI's network: an encoder to a p-dimensional latent, and a head of non-affine BatchNorm and one linear layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.models.backbone import After, Backbone
from fdgpriv.utils.global_rng import drawing_from


class Head(nn.Module):
    """h: logits (B, K) of latents (B, p).

    A training batch of one image has no variance: it is normalised by the running statistics and does not update them.
    """

    def __init__(self, latent_dim: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(latent_dim, affine=False)
        self.linear = nn.Linear(latent_dim, classes)

    def forward(self, latents: Tensor) -> Tensor:
        """Logits (B, K)."""
        if self.norm.training and len(latents) == 1:
            mean, variance = self.norm.running_mean, self.norm.running_var
            latents = nn.functional.batch_norm(latents, mean, variance, eps=self.norm.eps)
        else:
            latents = self.norm(latents)
        logits: Tensor = self.linear(latents)
        return logits

    def running(self) -> tuple[Tensor, Tensor]:
        """Running mean and variance (p,); ValueError if there are none."""
        if self.norm.running_mean is None or self.norm.running_var is None:
            raise ValueError("want a BatchNorm with running statistics, got one without")
        return self.norm.running_mean, self.norm.running_var


@dataclass(frozen=True, eq=False)
class FrozenHeads:
    """Heads of C clients in evaluation mode, without gradients by their parameters.

    Attributes:
        mean, variance: Running statistics (C, 1, p).
        weight, bias: Of the linear layers (C, K, p) and (C, K) equal to each head's normalisation and linear layer.
    """

    mean: Tensor
    variance: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, heads: Sequence[Head]) -> "FrozenHeads":
        """Raises ValueError if a head's BatchNorm has no running statistics."""
        means, variances, weights, biases = [], [], [], []
        for head in heads:
            mean, variance = head.running()
            weight = head.linear.weight * (variance + head.norm.eps).rsqrt()
            means.append(mean[None])
            variances.append(variance[None])
            weights.append(weight)
            biases.append(head.linear.bias - weight @ mean)
        return cls(*map(torch.stack, (means, variances, weights, biases)))

    def each(self, latents: Tensor) -> Tensor:
        """Logits (C, S, B, K) of each head for its own client's latents (C, S, B, p)."""
        logits: Tensor = torch.baddbmm(self.bias[:, None], latents.flatten(1, 2), self.weight.transpose(1, 2))
        return logits.view(*latents.shape[:-1], -1)

    def all(self, latents: Tensor) -> Tensor:
        """Logits (B, C, K) of all heads for the same latents (B, p)."""
        logits = nn.functional.linear(latents, self.weight.flatten(0, 1), self.bias.flatten())
        return logits.view(len(latents), *self.bias.shape)


class LatentClassifier(nn.Module):
    """Encoder g and head h: backbone, global average pooling, a linear layer to the latent, and the head.

    If the published network has hidden fully connected layers (AlexNet's fc6 and fc7), these replace the pooling, and the
    latent is the last one's output before its activation. A last layer whose width is not `latent_dim` is replaced.
    """

    def __init__(self, backbone: Backbone, latent_dim: int, classes: int, rng: torch.Generator) -> None:
        super().__init__()
        self.backbone = backbone
        self.latent_dim, self.classes = latent_dim, classes
        self.reinitialise(rng)

    def reinitialise(self, rng: torch.Generator) -> None:
        """Initialises all layers after the backbone; published fully connected layers keep their published weights."""
        with drawing_from(rng):
            layers = self.backbone.fully_connected()
            hidden, project = (nn.Identity(), None) if layers is None else layers
            if project is None or project.out_features != self.latent_dim:
                inputs = self.backbone.out_channels if project is None else project.in_features
                project = nn.Linear(inputs, self.latent_dim)
            self.hidden, self.project = hidden, project
            self.head = Head(self.latent_dim, self.classes)

    def embedding(self, images: Tensor, after: After | None = None) -> Tensor:
        """Latents z = g(x), (B, p), unbounded, of images (B, 3, H, W) in [0, 1]; `after` as in `Backbone.forward`."""
        maps = self.backbone(images, after)
        pooled = maps.mean(dim=(2, 3)) if isinstance(self.hidden, nn.Identity) else self.hidden(maps)
        latents: Tensor = self.project(pooled)
        return latents

    def forward(self, images: Tensor, after: After | None = None) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.head(self.embedding(images, after))
        return logits
