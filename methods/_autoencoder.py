"""Convolutional autoencoder that computes client embeddings (Bartholet et al., 2024, App. C.2, Table 6)."""

import torch
from torch import Tensor, nn

from fdgpriv.utils.global_rng import drawing_from

_SHRINKS, _MAPS = 4, 32


class Autoencoder(nn.Module):
    """Images (B, 3, H, W) in [0, 1] to latents (B, e) and back: 4,097 e + 9,395 parameters at 32 px.

    Args:
        dim: e.
        image_size: H = W, divisible by 4; the paper's is 32.
        rng: For the initialisation.
    """

    def __init__(self, dim: int, image_size: int, rng: torch.Generator) -> None:
        super().__init__()
        if image_size < _SHRINKS or image_size % _SHRINKS:
            raise ValueError(f"want images of a side divisible by {_SHRINKS} for an autoencoder, got {image_size} px")
        side = image_size // _SHRINKS
        with drawing_from(rng):
            self.encoder = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, _MAPS, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(_MAPS * side**2, dim),
            )
            self.decoder = nn.Sequential(
                nn.Linear(dim, _MAPS * side**2),
                nn.Unflatten(1, (_MAPS, side, side)),
                nn.ConvTranspose2d(_MAPS, 16, 2, stride=2),
                nn.ReLU(),
                nn.ConvTranspose2d(16, 3, 2, stride=2),
                nn.Sigmoid(),
            )

    def forward(self, images: Tensor) -> Tensor:
        """Reconstructed images (B, 3, H, W) in [0, 1]."""
        reconstructed: Tensor = self.decoder(self.encoder(images))
        return reconstructed
