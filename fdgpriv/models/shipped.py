"""Saves and loads the networks shipped with fdgpriv: safetensors weights with a JSON card."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
from torch import nn

from fdgpriv.models.state_dicts import read_tensors

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Card:
    """Metadata of a shipped network.

    Attributes:
        name: Name in reports, with a version that changes with the weights.
        recipe: SHA-256 of the training source files, the settings and the network's layout.
        weights: SHA-256 of the weights file.
        trained_on: Description of the training data.
        figures: Results of the training script on held-out images, by name.
    """

    name: str
    recipe: str
    weights: str
    trained_on: str
    figures: dict[str, float]


def save_shipped(
    network: nn.Module, name: str, recipe: str, trained_on: str, figures: dict[str, float], directory: Path
) -> Card:
    """Writes the weights and the card of `network` into `directory`."""
    path = _path(name, directory)
    tensors = {key: value.detach().contiguous() for key, value in network.state_dict().items()}
    path.write_bytes(safetensors.torch.save(tensors))  # keeps the default permissions, unlike save_file
    card = Card(name, recipe, sha256(path), trained_on, figures)
    path.with_suffix(".json").write_text(json.dumps(asdict(card), indent=2) + "\n", encoding="utf-8")
    return card


def load_shipped(network: nn.Module, name: str, directory: Path | None = None) -> Card:
    """Loads the weights called `name` into `network`, freezes it and returns its card.

    Args:
        network: A network with the layout that was trained.
        name: As on the card.
        directory: Folder of the two files; this module's folder by default.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The SHA-256 of the weights differs from the card.
    """
    path = _path(name, directory or HERE)
    for file in (path, path.with_suffix(".json")):
        if not file.is_file():
            raise FileNotFoundError(
                f"want {file.name}, which comes with fdgpriv (made by examples/shipped_networks); looked in {file.parent}"
            )
    card = Card(**json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
    actual = sha256(path)
    if actual != card.weights:
        raise ValueError(f"want {path.name} with SHA-256 {card.weights}, as on its card; got {actual}")
    network.load_state_dict(read_tensors(path))
    network.eval().requires_grad_(False)
    return card


def _path(name: str, directory: Path) -> Path:
    return directory / f"{name.replace('-', '_')}.safetensors"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
