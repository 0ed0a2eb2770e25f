"""LPIPS, a perceptual distance between two images from network features.

Reference: Zhang et al., "The unreasonable effectiveness of deep features as a perceptual metric", CVPR 2018.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from fdgpriv.models.checkpoints import check_tensors, find_weights
from fdgpriv.models.extractor import Extractor
from fdgpriv.models.state_dicts import read_tensors
from fdgpriv.utils.torchvision_import import lpips
from fdgpriv.utils.warnings_filter import warnings_ignored

_SOURCE = "comes from https://download.pytorch.org/models/"
FILES = {"alex": "alexnet-owt-7be5be79.pth", "vgg": "vgg16-397923af.pth"}
LEAST_SIDE = {"alex": 31, "vgg": 16}  # pixels; of smaller images the networks' pooling leaves nothing


class Perceptual(nn.Module, ABC):
    """A named, differentiable perceptual distance; usable as a loss.

    Do not score an attack with the network that it optimised.

    Attributes:
        name: ``"lpips[alex]"``, ``"lpips[digits-extractor-1]"``, ...
    """

    name: str

    @abstractmethod
    def forward(self, images: Tensor, truth: Tensor) -> Tensor:
        """Distances (N,) of images (N, 3, H, W) **in [-1, 1]**, the range of the lpips package."""


class FormulaLpips(Perceptual):
    """The LPIPS formula without learned weights, on the feature maps of any network.

    At each pixel of each map, the features are scaled to length 1; their squared difference is summed over the
    channels, averaged over the pixels, and summed over the maps: at most 4 per map, 2 for non-negative features.

    Args:
        network: Its name.
        stages: Gives the maps (N, C, h, w) of images (N, 3, H, W) in [0, 1].
    """

    def __init__(self, network: str, stages: Callable[[Tensor], list[Tensor]]) -> None:
        super().__init__()
        self.name = f"lpips[{network}]"
        self.stages = stages

    def forward(self, images: Tensor, truth: Tensor) -> Tensor:
        """Distances (N,) of images (N, 3, H, W) in [-1, 1]."""
        total = images.new_zeros(len(images))
        for map_a, map_b in zip(self.stages((images + 1) / 2), self.stages((truth + 1) / 2), strict=True):
            total = total + (_directions(map_a) - _directions(map_b)).square().sum(dim=1).mean(dim=(1, 2))
        return total


class PublishedLpips(Perceptual):
    """LPIPS 0.1 as published: ImageNet features from a local checkpoint, linear heads of the lpips package.

    Args:
        network: ``"alex"``, the usual choice for scoring, or ``"vgg"``.
        weights: torchvision's checkpoint of AlexNet or VGG-16, or its folder; None searches torch's checkpoints.
    """

    def __init__(self, network: str, weights: Path | None = None) -> None:
        super().__init__()
        if network not in FILES:
            raise ValueError(f"want a network of {', '.join(FILES)}; got {network!r}")
        file = FILES[network]
        path = find_weights([file], _SOURCE + file, weights)
        tensors = read_tensors(path, ("features.0.weight", "features.0.bias"))
        features = {name: tensor for name, tensor in tensors.items() if name.startswith("features.")}
        heads = Path(lpips.__path__[0]) / "weights" / "v0.1"
        # built without weights, which come from the two files; lpips uses deprecated arguments of torchvision
        with torch.device("meta"), warnings_ignored(UserWarning):
            distance = lpips.LPIPS(net=network, pretrained=False, pnet_rand=True, verbose=False)
        distance.scaling_layer = lpips.ScalingLayer()
        slots = {name.split(".", 1)[1]: name for name in distance.net.state_dict()}  # "slice2.3.weight" as "3.weight"
        state = {slots.get(name.removeprefix("features."), name): tensor.float() for name, tensor in features.items()}
        check_tensors(distance.net, state, file, path)
        distance.net.load_state_dict(state, assign=True)
        distance.load_state_dict(read_tensors(heads / f"{network}.pth"), strict=False, assign=True)
        empty = [name for name, tensor in distance.state_dict().items() if tensor.is_meta]
        if empty:
            raise ValueError(f"want the heads of lpips 0.1 for {network} in {heads}, got none for {', '.join(empty)}")
        self.name = f"lpips[{network}]"
        self.distance = distance.eval().requires_grad_(False)

    def forward(self, images: Tensor, truth: Tensor) -> Tensor:
        """Distances (N,) of images (N, 3, H, W) in [-1, 1]."""
        distances: Tensor = self.distance(images, truth)
        return distances[:, 0, 0, 0]


def _directions(features: Tensor) -> Tensor:
    """Features (N, C, h, w) scaled to length 1 at each pixel as in lpips, but differentiable at 0."""
    lengths: Tensor = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    return features / (lengths + 1e-10)


def extractor_lpips(extractor: Extractor) -> FormulaLpips:
    """The LPIPS formula on the features of an extractor, which works offline: ``lpips[digits-extractor-1]``."""
    return FormulaLpips(extractor.name, extractor.stages)
