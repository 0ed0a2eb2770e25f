"""An update of one image tells the input of the first fully connected layer: exactly, under weight decay and dropout."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.utils.global_rng import drawing_from
from fdgpriv.utils.seeds import generator

latent_prior: Any = import_module("fdgpriv.attacks._latent_prior")

_RATE = 0.25
_CLASSES = 4


class Network(nn.Module):
    """Features with ReLU, a hidden and a last layer; what of the features is dropped is given."""

    def __init__(self) -> None:
        super().__init__()
        with drawing_from(generator(0)):
            self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten())
            self.hidden, self.head = nn.Linear(8 * 8 * 8, 16), nn.Linear(16, _CLASSES)

    def forward(self, images: Tensor, kept: Tensor | float = 1.0) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.hidden(self.features(images) * kept)))
        return logits


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(60, 3, 16, 16, generator=generator(1))


def _change(network: Network, image: Tensor, label: int, kept: Tensor | float, decay: float) -> dict[str, Tensor]:
    """Received minus trained parameters for one step of SGD on one image."""
    loss = nn.functional.cross_entropy(network(image[None], kept), torch.tensor([label]))
    slopes = torch.autograd.grad(loss, list(network.parameters()))
    named = network.named_parameters()
    return {name: 0.1 * (slope + decay * p.detach()) for (name, p), slope in zip(named, slopes, strict=True)}


def _read(network: Network, images: Tensor, change: dict[str, Tensor], label: int) -> Tensor:
    """(D,): the layer's input as it is read."""
    adversary = SimpleNamespace(public_images=(images, torch.arange(len(images)) % _CLASSES), classes=_CLASSES)
    layer, last = ("hidden.weight", "hidden.bias"), ("head.weight", "head.bias")
    reader, _ = latent_prior._reader(layer, last, network, adversary)
    row = reader.row(change, torch.tensor(label))
    assert row[-_CLASSES:].tolist() == [float(k == label) for k in range(_CLASSES)]
    found: Tensor = row[:-_CLASSES]
    return found


@pytest.mark.parametrize("decay", [0.0, 1e-3, 0.1])
def test_the_input_is_exact_under_any_weight_decay(network: Network, images: Tensor, decay: float) -> None:
    truth = network.features(images[:1])[0].detach()
    assert 0.1 < float((truth == 0).float().mean()) < 0.9  # ReLU cuts some
    found = _read(network, images, _change(network, images[0], 2, 1.0, decay), 2)
    assert torch.allclose(found, truth, atol=5e-4)


def test_the_decay_must_be_removed(network: Network, images: Tensor) -> None:
    change, truth = _change(network, images[0], 2, 1.0, 1.0), network.features(images[:1])[0].detach()
    weight, bias = change["hidden.weight"], change["hidden.bias"]
    plain = bias @ weight / bias.square().sum()
    assert (plain - truth).abs().max() > 0.1 * truth.max()
    assert (_read(network, images, change, 2) - truth).abs().max() < 5e-4


def test_what_was_dropped_is_expected_instead(network: Network, images: Tensor) -> None:
    kept = (torch.rand(512, generator=generator(2)) >= _RATE) / (1 - _RATE)
    inputs = network.features(images).detach()
    found = _read(network, images, _change(network, images[0], 1, kept, 1e-3), 1)
    truth, sent = inputs[0], inputs[0] * kept
    seen = (kept > 0) & (truth > 0.01)
    assert torch.allclose(found[seen], truth[seen], rtol=0.1, atol=1e-3)  # undone but for the estimate of the rate
    never_cut = (kept == 0) & (inputs > 0.01).all(0)
    assert int(never_cut.sum()) > 5
    assert torch.allclose(found[never_cut], inputs.mean(0)[never_cut], rtol=0.05)
    assert (found - truth).square().mean() < 0.5 * (sent - truth).square().mean()


def test_the_first_layer_is_read_of_one_image_only(network: Network, images: Tensor) -> None:
    adversary = SimpleNamespace(public_images=(images, torch.arange(len(images)) % _CLASSES), classes=_CLASSES)
    received = ModelState(client="server", round=0, state=network.state_dict())
    first, last = latent_prior._first_linear(network, received, images), ("head.weight", "head.bias")
    assert first == ("hidden.weight", "hidden.bias")
    of_first, known = latent_prior._reader(first, last, network, adversary)
    of_last, latents = latent_prior._reader(last, last, network, adversary)
    assert (type(of_first), type(of_last)) == (latent_prior._FirstLayerReader, latent_prior._LastLayerReader)
    assert (known.shape, latents.shape) == ((60, 512 + _CLASSES), (60, 16 + _CLASSES))


class Tokens(nn.Module):
    """Patches of the images as tokens, a linear layer of each, an unused linear layer, and a head of one input an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.unused = nn.Linear(3 * 16, 6), nn.Linear(5, 5)
        self.hidden, self.head = nn.Linear(6, 8), nn.Linear(8, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(nn.functional.unfold(images, 4, stride=4).transpose(1, 2)).relu()
        return self.head(self.hidden(tokens.mean(1)).relu())


def test_layers_of_tokens_are_not_the_first_layer(images: Tensor) -> None:
    network = Tokens().eval()
    state = dict(network.state_dict())
    received = ModelState(client="server", round=0, state=state)
    assert latent_prior._first_linear(network, received, images) == ("hidden.weight", "hidden.bias")
    del state["hidden.bias"]
    assert latent_prior._first_linear(network, received, images) == ("head.weight", "head.bias")
    del state["head.bias"]
    assert latent_prior._first_linear(network, received, images) is None


def test_tokens_are_read_by_their_mean(images: Tensor) -> None:
    network = nn.Sequential(nn.Flatten(2), nn.Linear(images.shape[2] * images.shape[3], 4)).eval()
    adversary = SimpleNamespace(public_images=(images, torch.arange(len(images)) % _CLASSES), classes=_CLASSES)
    last = ("1.weight", "1.bias")
    _, rows = latent_prior._reader(last, last, network, adversary)
    assert torch.allclose(rows[:, :-_CLASSES], images.flatten(2).mean(1))
