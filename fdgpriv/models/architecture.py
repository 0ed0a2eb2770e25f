"""The role Architecture: a network that is cut into named layers, with published weights."""

from abc import ABC, abstractmethod
from pathlib import Path

from torch import nn

from fdgpriv.models.checkpoints import find_weights, load_backbone
from fdgpriv.utils.checksum import digest

Stages = tuple[dict[str, nn.Module], dict[str, int]]
Colours = tuple[tuple[float, float, float], tuple[float, float, float]]

RANDOM = "random initialisation"


class Architecture(ABC):
    """A network, its layers, and where its published weights are found.

    Attributes:
        files: Accepted file names, the preferred one first.
        source: The origin of the file, as a clause for error messages.
    """

    files: tuple[str, ...]
    source: str

    @abstractmethod
    def build(self) -> nn.Module:
        """The network with its default initialisation and without its head."""

    @abstractmethod
    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        """Its layers and their numbers of channels; with `small_input` the stem has stride 1 and no pooling."""

    @property
    def colours(self) -> Colours | None:
        """Mean and std of the colour channels that the network wants, for images in [0, 1]; None for the dataset's."""
        return None

    def fully_connected(self, weights: Path | None) -> tuple[nn.Module, nn.Linear] | None:
        """The hidden fully connected layers between the last map and the classifier; None if there are none.

        Args:
            weights: File or folder of the published weights; None for torch's default initialisation.

        Returns: All layers from the map (B, C, H, W) up to the last hidden layer's input, and that last layer.
        """
        return None

    def find(self, weights: Path | None) -> Path | None:
        """The file of weights that is loaded; None for random initialisation.

        Args:
            weights: The user's file, or a folder that is searched before torch's checkpoints; None if not given.

        Raises:
            FileNotFoundError: Neither folder has the file.
        """
        return None if weights is None else find_weights(self.files, self.source, weights)

    def load(self, network: nn.Module, path: Path) -> None:
        """Loads the weights of this file into a network made by `build`."""
        load_backbone(network, self.files[0], path)

    def place(self, path: Path, weights: Path | None) -> str:
        """The kind of folder that has the file at `path`, without local paths."""
        is_users = weights is not None and (path == weights or path.parent == weights)
        return "the user's files" if is_users else "torch's checkpoint folder"

    def origin(self, weights: Path | None) -> str:
        """The loaded file and its origin: file name, first eight digits of its SHA-256, and kind of folder."""
        path = self.find(weights)
        return RANDOM if path is None else f"{path.name} (sha256 {digest(path)[:8]}), from {self.place(path, weights)}"


def stem(layers: list[nn.Module], small_input: bool) -> nn.Module:
    """The stem from convolution to pooling; for small inputs with stride 1 and without pooling."""
    if not small_input:
        return nn.Sequential(*layers)
    convolution = next((layer for layer in layers if isinstance(layer, nn.Conv2d)), None)
    if convolution is None:
        raise TypeError(f"want a convolution in the stem, got {', '.join(type(layer).__name__ for layer in layers)}")
    convolution.stride = (1, 1)
    return nn.Sequential(*(layer for layer in layers if not isinstance(layer, nn.MaxPool2d)))


def published(file: str) -> tuple[tuple[str, ...], str]:
    """The accepted names of a file published by torchvision, and its source as a clause."""
    name = file.removesuffix(".pth")
    return (file, f"{name}.safetensors"), f"comes from https://download.pytorch.org/models/{file}"
