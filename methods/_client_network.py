"""Client network of hFedF: Inception modules for 32 px images, without BatchNorm (Bartholet et al., 2024, Table 9)."""

import torch
from torch import Tensor, nn

from fdgpriv.models.backbone import Backbone
from fdgpriv.utils.global_rng import drawing_from

_CHANNELS = {"stem": 32, "layer1": 32, "layer2": 64, "layer3": 176, "layer4": 288}
_SIDE, _HIDDEN, _DROPOUT = 3, 256, 0.2
_SMALLEST = 4  # px; two poolings reduce this side to one pixel


class Inception(nn.Module):
    """Parallel 1x1, 3x3 and 5x5 convolutions and 3x3 max pooling: (B, C, H, W) to (B, C + 112, H, W)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inputs, 32, 1)
        self.three = nn.Conv2d(inputs, 64, 3, padding=1)
        self.five = nn.Conv2d(inputs, 16, 5, padding=2)
        self.highest = nn.MaxPool2d(3, stride=1, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        """ReLU of the concatenated branch outputs."""
        branches = [self.one(features), self.three(features), self.five(features), self.highest(features)]
        return torch.relu(torch.cat(branches, dim=1))


class Dropout(nn.Module):
    """Dropout with its own random generator, so that clients trained in parallel are reproducible."""

    def __init__(self, rate: float, rng: torch.Generator) -> None:
        super().__init__()
        self.rate, self.rng = rate, rng

    def forward(self, features: Tensor) -> Tensor:
        """Inverted dropout with probability `rate`; the identity in evaluation mode."""
        if not self.training:
            return features
        mask = torch.rand(features.shape, generator=self.rng) >= self.rate
        return features * mask.to(features.device) / (1 - self.rate)


class ClientNetwork(nn.Module):
    """Classifier with 928,199 parameters for 7 classes and no buffers; images in [0, 1] are first scaled to [-1, 1].

    Args:
        classes: K.
        image_size: H = W of the images, at least 4; 32 in the paper.
        rng: For the initialisation, and for dropout in each training step.
    """

    def __init__(self, classes: int, image_size: int, rng: torch.Generator) -> None:
        super().__init__()
        if image_size < _SMALLEST:
            raise ValueError(f"want images of at least {_SMALLEST} px, got {image_size}")
        with drawing_from(rng):
            stages: dict[str, nn.Module] = {
                "stem": nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
                "layer1": nn.Conv2d(32, 32, 1),
                "layer2": nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
                "layer3": Inception(64),
                "layer4": Inception(176),
            }
            self.backbone = Backbone(stages, _CHANNELS, (0.5,) * 3, (0.5,) * 3)
            self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(_SIDE), nn.Flatten(), Dropout(_DROPOUT, rng))
            self.hidden = nn.Linear(self.backbone.out_channels * _SIDE**2, _HIDDEN)
            self.head = nn.Linear(_HIDDEN, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.head(self.hidden(self.pool(self.backbone(images))))
        return logits
