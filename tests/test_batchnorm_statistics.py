"""What BatchNorm's buffers reveal, against training itself; and deep inversion, which reads it."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.attack import Attack
from fdgpriv.models.backbone import Backbone, Classifier, backbone
from fdgpriv.simulation.artifact_series import ArtifactSeries

bn: Any = import_module("fdgpriv.attacks._batchnorm")


@pytest.fixture
def model(rng: torch.Generator) -> Classifier:
    network: Backbone = backbone("small_resnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng)
    found = Classifier(network, 10, rng)
    found.train()(torch.rand(8, 3, 32, 32, generator=rng))  # buffers that are not those of a new network
    return found


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return ModelState.of(model, "client", 0).state


def inputs_of_layers(model: nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """What reaches each BatchNorm layer when `model` trains on the images."""
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, name=name: seen.__setitem__(name, inputs[0].detach()))
        for name, layer in bn.bn_layers(model).items()
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("batches", [1, 4])
def test_the_statistics_of_equal_batches_are_revealed(model: Classifier, rng: torch.Generator, batches: int) -> None:
    images, sent = torch.rand(4, 3, 32, 32, generator=rng), state(model)
    assert bn.batches_seen(sent, sent) == 0
    assert bn.revealed(model, sent, sent, 0) == {}  # frozen buffers reveal nothing
    inputs = inputs_of_layers(model.train(), images)
    for _ in range(batches - 1):
        model(images)
    after = state(model)
    assert bn.batches_seen(after, sent) == batches
    found = bn.revealed(model, after, sent, batches)
    assert list(found) == list(inputs)
    for name, (mean, variance) in found.items():
        torch.testing.assert_close(mean, inputs[name].mean(dim=(0, 2, 3)), atol=1e-4, rtol=1e-3)
        if batches == 1:
            torch.testing.assert_close(variance, inputs[name].var(dim=(0, 2, 3)), atol=1e-4, rtol=1e-3)
    unsent = bn.revealed(model, after, None, 0)  # without what was sent the running values stand
    assert torch.equal(unsent["backbone.body.stem.1"][0], after["backbone.body.stem.1.running_mean"])


def test_groups_are_normalised_as_each_alone_in_training(model: Classifier, rng: torch.Generator) -> None:
    images = torch.rand(6, 3, 32, 32, generator=rng)
    alone = [inputs_of_layers(model.train(), part) for part in images.split(2)]
    expected = torch.cat([model(part) for part in images.split(2)])
    before = state(model)
    with bn.watched(model.eval(), 3, batch_statistics=True) as seen:
        found = model(images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    for name, (mean, variance) in seen.items():
        for group, inputs in enumerate(alone):
            torch.testing.assert_close(mean[group], inputs[name].mean(dim=(0, 2, 3)), atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(variance[group], inputs[name].var(dim=(0, 2, 3)), atol=1e-4, rtol=1e-3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())
    torch.testing.assert_close(model(images[:1]), model(images)[:1])  # the hooks are gone


@pytest.mark.parametrize("affine", [True, False])
def test_layers_normalise_by_given_moments(affine: bool, rng: torch.Generator) -> None:
    """A layer without weight and bias, as before LSI's head, has no parameters of its own."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=affine)).eval()
    mean, variance = torch.rand(4, generator=rng), 1 + torch.rand(4, generator=rng)
    inputs = torch.rand(5, 3, generator=rng)
    before = state(network)
    with torch.no_grad(), bn.normalised_by(network, {"1": (mean, variance)}):
        outputs = network(inputs)
    torch.testing.assert_close(outputs, (network[0](inputs) - mean) / (variance + 1e-5).sqrt())
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(network).items())


def test_statistics_agree_with_themselves_only(model: Classifier, rng: torch.Generator) -> None:
    images = torch.rand(2, 3, 32, 32, generator=rng)
    with bn.watched(model.eval(), 2, batch_statistics=True) as seen:
        model(images)
    asked = {name: (mean.detach(), variance.detach()) for name, (mean, variance) in seen.items()}
    swapped = {name: (mean.flip(0), variance.flip(0)) for name, (mean, variance) in asked.items()}
    assert bn.moment_distance(seen, asked).abs().max() < 1e-6
    assert bn.moment_distance(seen, swapped).min() > 1e-3


def test_each_number_of_layers_is_a_setting() -> None:
    attack = Attack.named("deep_inversion").configured({"sweep": (-1, 1, 3)})
    settings = attack.variants("model_state")
    assert list(settings) == ["last=1", "k=1", "k=3", "k=all"]
    assert settings["k=all"] == attack
    assert attack.variants("bn_statistics") == {}
    assert Attack.named("gan")().variants("style_statistics") == {}
    for layer, refused in ((nn.Linear(2, 2), True), (nn.BatchNorm1d(2), False)):
        target: Any = ArtifactSeries(None, "client", {"a": ModelState.of(layer, "a", 0)}, ("a",))
        assert ("no BatchNorm" in str(attack.inapplicable(target))) is refused


def test_statistics_of_one_batch_are_those_of_training(model: Classifier, rng: torch.Generator) -> None:
    """And hold no graph: a network that is given them for one model after another would keep all of theirs."""
    images = torch.rand(6, 3, 32, 32, generator=rng)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in layers:
        layer.momentum = 1.0
    model.train()(images)
    expected = [(layer.running_mean.clone(), layer.running_var.clone()) for layer in layers]  # type: ignore[union-attr]
    for layer in layers:
        layer.reset_running_stats()
    bn.normalise_as_one_batch(model.eval(), images)
    assert not any(buffer.requires_grad for buffer in model.buffers())
    for layer, (mean, _) in zip(layers, expected, strict=True):
        torch.testing.assert_close(layer.running_mean, mean, rtol=1e-4, atol=1e-4)
