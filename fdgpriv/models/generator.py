"""Image generators of the reconstruction attack, with a style vector as input: that of a lightweight GAN, and a small one.

Liu et al., "Towards faster and stabilized GAN training for high-fidelity few-shot image synthesis" (FastGAN), ICLR 2021,
in the lighter variant used by CCST's reconstruction attack.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from fdgpriv.utils.global_rng import drawing_from

_SMALL_CHANNELS = (64, 48, 32, 16)  # of the small generator after 0 to 3 doublings; later maps have 8

MIN_SIDE = 16  # px
_FIRST_CHANNELS = 1024  # channels of the first map at width 1
_MAX_CHANNELS = 512  # maximum number of channels of all later maps
_EXCITED = {5: 2, 6: 3}  # skip-layer excitation: number of the scaled map: number of the earlier map; the first is 0


class NoiseLayer(nn.Module):
    """Adds Gaussian noise, shared by all channels, times a learned scale initialised to 0."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """Features (B, C, H, W) with noise from `rng`; unchanged if `rng` is None."""
        if rng is None:
            return features
        shape = (len(features), 1, *features.shape[2:])
        noise = torch.randn(shape, generator=rng, device=rng.device).to(features)
        return features + self.scale * noise


class UpBlock(nn.Module):
    """Doubles the side: nearest neighbour, 3x3 blur, 4x4 convolution, noise, batch norm, gated linear unit.

    Nearest neighbour and then the blur (1, 2, 1) / 4 each way, reflected at the border, is bilinear interpolation.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, 2 * outputs, 4)
        self.noise = NoiseLayer()
        self.norm = nn.BatchNorm2d(2 * outputs)

    def forward(self, features: Tensor, rng: torch.Generator | None) -> Tensor:
        """Maps (B, inputs, H, W) to (B, outputs, 2H, 2W)."""
        features = functional.interpolate(features, scale_factor=2, mode="bilinear")
        features = self.conv(functional.pad(features, (2, 1, 2, 1)))
        return functional.glu(self.norm(self.noise(features, rng)), dim=1)


class GlobalContext(nn.Module):
    """Attention-pools a map over its pixels and predicts scales of a later map's channels (skip-layer excitation)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        hidden = max(3, outputs // 2)
        self.attention = nn.Conv2d(inputs, 1, 1)
        self.scales = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1), nn.LeakyReLU(0.1), nn.Conv2d(hidden, outputs, 1), nn.Sigmoid()
        )

    def forward(self, features: Tensor) -> Tensor:
        """Scales (B, outputs, 1, 1) in (0, 1) from features (B, inputs, H, W)."""
        weights = self.attention(features).flatten(2).softmax(dim=2)
        pooled = torch.einsum("bcp,bp->bc", features.flatten(2), weights[:, 0])
        scales: Tensor = self.scales(pooled[..., None, None])
        return scales


class Generator(nn.Module):
    """Maps a vector to an image: a first map, normalised over its channels, then one `UpBlock` per doubling.

    At width 1 the maps of 4, 8, ..., 256 px have 1024, 512, 512, 256, 128, 64 and 32 channels. The channels of the maps
    of 128 and 256 px are scaled by functions of the maps of 16 and 32 px (skip-layer excitation). With latent_dim 1024
    and width 1 it has 64,330,811 parameters at 256 px, 64,261,033 at 128 px and 63,981,191 at 64 px.

    For a side S that is no power of two the first map has 5, 6, 7 or 8 px instead of 4, the least with which doublings
    reach S, and the last map is cropped to S: images of 96 px come from maps of 6, 12, 24, 48 and 96 px.

    Args:
        latent_dim: Length of the vector: twice the channels for a style's mean and std. Inputs should be standardised:
            the first layer is linear and followed by batch norm.
        image_size: Side of the images, at least 16 px.
        rng: For the initial weights.
        width: Multiplies every channel count.
    """

    def __init__(self, latent_dim: int, image_size: int, *, rng: torch.Generator, width: float = 1.0) -> None:
        super().__init__()
        if latent_dim < 1 or width <= 0:
            raise ValueError(f"want latent_dim and width above 0, got {latent_dim} and {width}")
        self.latent_dim = latent_dim
        self.image_size = image_size
        doublings, side = doublings_to(image_size)
        channels = channels_of_maps(doublings, width)
        with drawing_from(rng):
            self.start = nn.ConvTranspose2d(latent_dim, 2 * channels[0], side)
            self.start_norm = nn.BatchNorm2d(2 * channels[0])
            self.blocks = nn.ModuleList(UpBlock(inputs, outputs) for inputs, outputs in pairwise(channels))
            self.excitations = nn.ModuleDict(
                {
                    str(later): GlobalContext(channels[earlier], channels[later])
                    for later, earlier in _EXCITED.items()
                    if later <= doublings
                }
            )
            self.colours = nn.Conv2d(channels[-1], 3, 3, padding=1)
            for module in self.modules():
                if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                    nn.init.kaiming_normal_(module.weight, nonlinearity="leaky_relu")

    def forward(self, z: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Images (B, 3, S, S), not clamped to [0, 1], from vectors z (B, latent_dim).

        Args:
            z: The vectors.
            rng: For the noise, in training and evaluation; None adds no noise.
        """
        if z.ndim != 2 or z.shape[1] != self.latent_dim:
            raise ValueError(f"want z (B, {self.latent_dim}), got {tuple(z.shape)}")
        features = functional.glu(self.start_norm(self.start(z[:, :, None, None])), dim=1)
        features = functional.normalize(features, dim=1)
        seen: dict[int, Tensor] = {}
        for number, block in enumerate(self.blocks, start=1):
            features = block(features, rng)
            if str(number) in self.excitations:
                features = features * self.excitations[str(number)](seen.pop(_EXCITED[number]))
            if number in _EXCITED.values():
                seen[number] = features
        images: Tensor = self.colours(middle(features, self.image_size))
        return images


def doublings_to(image_size: int) -> tuple[int, int]:
    """How often a map's side is doubled, and the side of the first map, 4 to 8 px, from which that reaches `image_size`.

    Raises:
        ValueError: Images are too small.
    """
    if image_size < MIN_SIDE:
        raise ValueError(f"want image_size of at least {MIN_SIDE}, got {image_size}")
    doublings = image_size.bit_length() - 3
    return doublings, -(-image_size // 2**doublings)


def middle(maps: Tensor, side: int) -> Tensor:
    """The middle (..., side, side) of maps that are at least as large."""
    first = (maps.shape[-1] - side) // 2
    return maps[..., first : first + side, first : first + side]


def channels_of_maps(doublings: int, width: float) -> list[int]:
    """Number of channels, at least 4, of the first map and of the map after each doubling."""
    later = [min(_MAX_CHANNELS, 2**11 >> doubling) for doubling in range(1, doublings + 1)]
    return [max(4, round(width * count)) for count in (_FIRST_CHANNELS, *later)]


class SmallGenerator(nn.Module):
    """Generator for a CPU: upsampling and 3x3 convolutions, maps of 64, 48, 32, 16 and then 8 channels.

    Without blur, noise and gates it takes twice the steps in the same time: trained for 25 s on one core on styles of 64
    channels of scanned digits, it reaches 20.5 dB, and `Generator` with width 1/16 or 1/24 reaches 15.9 dB. A step on
    images of 96 px takes a third of that generator's time.

    Args:
        latent_dim: Length of the vector; inputs should be standardised.
        image_size: Side of the images, at least 16 px; the maps' sides are those of `Generator`.
        rng: For the initial weights.
    """

    def __init__(self, latent_dim: int, image_size: int = 32, *, rng: torch.Generator) -> None:
        super().__init__()
        if latent_dim < 1:
            raise ValueError(f"want latent_dim above 0, got {latent_dim}")
        self.latent_dim = latent_dim
        self.image_size = image_size
        doublings, side = doublings_to(image_size)
        channels = [*_SMALL_CHANNELS, *[_SMALL_CHANNELS[-1] // 2] * doublings][: doublings + 1]
        with drawing_from(rng):
            layers = [
                nn.Linear(latent_dim, channels[0] * side**2),
                nn.Unflatten(1, (channels[0], side, side)),
                nn.BatchNorm2d(channels[0]),
                nn.ReLU(),
            ]
            for inputs, outputs in pairwise(channels):
                layers += [nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, padding=1)]
                layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
            self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], 3, 3, padding=1))

    def forward(self, z: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Images (B, 3, S, S), not clamped to [0, 1], from vectors z (B, latent_dim); `rng` is unused."""
        if z.ndim != 2 or z.shape[1] != self.latent_dim:
            raise ValueError(f"want z (B, {self.latent_dim}), got {tuple(z.shape)}")
        return middle(self.layers(z), self.image_size)
