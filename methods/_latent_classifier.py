"""LSI's network: an encoder to a latent of p numbers, and a head of BatchNorm without affine part and one linear layer."""

import torch
from torch import Tensor, nn

from fdgpriv.draws import drawing_from
from fdgpriv.models.backbone import After, Backbone


class Head(nn.Module):
    """h: logits (B, K) of latents (B, p).

    A batch of one has no variance: in training it is normalised by the running statistics, which it then leaves alone.
    """

    def __init__(self, latent_dim: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(latent_dim, affine=False)
        self.linear = nn.Linear(latent_dim, classes)

    def forward(self, latents: Tensor) -> Tensor:
        """Logits (B, K)."""
        if self.norm.training and len(latents) == 1:
            center, spread = self.norm.running_mean, self.norm.running_var
            latents = nn.functional.batch_norm(latents, center, spread, eps=self.norm.eps)
        else:
            latents = self.norm(latents)
        logits: Tensor = self.linear(latents)
        return logits


class LatentClassifier(nn.Module):
    """g and h: a backbone, the mean over the pixels of its last map, a linear layer to the latent, and the head."""

    def __init__(self, backbone: Backbone, latent_dim: int, classes: int, rng: torch.Generator) -> None:
        super().__init__()
        self.backbone = backbone
        self.latent_dim, self.classes = latent_dim, classes
        self.redraw(rng)

    def redraw(self, rng: torch.Generator) -> None:
        """Everything after the backbone drawn anew."""
        with drawing_from(rng):
            self.project = nn.Linear(self.backbone.out_channels, self.latent_dim)
            self.head = Head(self.latent_dim, self.classes)

    def embedding(self, images: Tensor, after: After | None = None) -> Tensor:
        """z = g(x), (B, p), unbounded, of images (B, 3, H, W) in [0, 1]; `after` as in `Backbone.forward`."""
        latents: Tensor = self.project(self.backbone(images, after).mean(dim=(2, 3)))
        return latents

    def forward(self, images: Tensor, after: After | None = None) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.head(self.embedding(images, after))
        return logits
