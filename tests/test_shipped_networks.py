"""examples/shipped_networks: the shipped networks are what it trains, and it makes the images that it says."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from factories import seeded
from torch import Tensor, nn

from fdgpriv.models.extractor import DIGITS_EXTRACTOR, small_extractor
from fdgpriv.models.shipped import HERE, load_shipped, sha256
from fdgpriv.models.style_codec import DIGITS_CODEC, PHOTO_CODEC, photo_codec, photo_network, small_codec
from shipped_networks import photographs
from shipped_networks.__main__ import RECIPES, fingerprint, train
from shipped_networks.codec import CodecRecipe, normalise
from shipped_networks.extractor import ExtractorRecipe
from shipped_networks.images import LOOKS, synthetic_digits
from shipped_networks.photo_codec import PhotoCodecRecipe, pass_pixels, photo_loss
from shipped_networks.photographs import HELD_OUT, photo_crops, training_images
from shipped_networks.recipe import Recipe

UNTRAINED: dict[str, Callable[[], nn.Module]] = {
    DIGITS_CODEC: lambda: small_codec(DIGITS_CODEC),
    DIGITS_EXTRACTOR: small_extractor,
    PHOTO_CODEC: lambda: photo_network(PHOTO_CODEC),
}


@pytest.fixture(scope="module")
def unseen() -> Tensor:
    """96-px crops of the two photographs that are not trained on, coffee and rocket."""
    return photo_crops(HELD_OUT, 8, 96, seeded(7))


@pytest.mark.parametrize(("name", "limit"), [(DIGITS_CODEC, 2e6), (DIGITS_EXTRACTOR, 2e6), (PHOTO_CODEC, 4e6)])
def test_shipped_weights_carry_their_hashes(name: str, limit: float) -> None:
    weights = HERE / f"{name.replace('-', '_')}.safetensors"
    card = json.loads(weights.with_suffix(".json").read_text())
    assert weights.stat().st_size < limit
    assert card["weights"] == sha256(weights)
    assert card["recipe"] == fingerprint(RECIPES[name], UNTRAINED[name]()), (
        "the training changed: python -m shipped_networks, in examples/"
    )


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        (DIGITS_EXTRACTOR, ExtractorRecipe(images=80, held_out=40, steps=2, batch=8)),
        (DIGITS_CODEC, CodecRecipe(images=80, held_out=40, redraw_steps=2, style_steps=2, batch=4)),
        (PHOTO_CODEC, PhotoCodecRecipe(images=80, held_out=8, side=16, steps=2, batch=4)),
    ],
)
def test_training_makes_what_is_loaded(name: str, recipe: Recipe, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    first, again = train(name, recipe, tmp_path), train(name, recipe, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)
    network = UNTRAINED[name]()
    assert first == again == load_shipped(network, name, tmp_path)
    assert first.recipe != fingerprint(RECIPES[name], network)


def test_synthetic_digits_are_repeatable_and_in_range() -> None:
    first, second, other = (synthetic_digits(80, seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first.images, second.images)
    assert not torch.equal(first.images, other.images)
    assert first.images.shape == (80, 3, 32, 32)
    assert first.images.min() >= 0
    assert first.images.max() <= 1
    assert first.labels.bincount().tolist() == [8] * 10
    assert first.looks.bincount().tolist() == [20] * len(LOOKS)


def test_scaling_the_encoder_keeps_the_round_trip(rng: torch.Generator) -> None:
    fresh = small_codec("fresh").requires_grad_(False)
    noise = torch.rand(16, 3, 32, 32, generator=rng)
    before = fresh(noise)
    normalise(fresh, noise)
    assert torch.allclose(fresh(noise), before, atol=1e-5)
    stds = torch.cat([stage.std(dim=(0, 2, 3)) for stage in fresh.stages(noise)])
    assert torch.allclose(stds, torch.ones(112), atol=1e-3)


def test_training_starts_from_a_copy_of_the_pixels(unseen: Tensor) -> None:
    fresh = photo_network("fresh")
    pass_pixels(fresh)
    assert torch.equal(fresh(unseen), unseen)


def test_scaling_the_features_does_not_lower_the_loss(unseen: Tensor) -> None:
    """Half the features, from twice as large weights of the decoder, are the same round trip and the same transfer."""
    scaled = photo_codec()
    for layer, factor in ((scaled.encoder[10], 0.5), (scaled.decoder[1], 2.0)):
        assert isinstance(layer, nn.Conv2d)
        layer.weight.mul_(factor)
    last = scaled.encoder[10]
    assert isinstance(last, nn.Conv2d)
    assert last.bias is not None
    last.bias.mul_(0.5)
    recipe = PhotoCodecRecipe(content=0.0)  # its normalisation has a floor
    ours, theirs = (float(photo_loss(c, unseen[:4], unseen[4:8], False, recipe)) for c in (scaled, photo_codec()))
    assert ours == pytest.approx(theirs, rel=1e-2)


def test_training_images_are_repeatable() -> None:
    (first, looks), (second, _), (other, _) = (training_images(40, 16, seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert first.shape == (40, 3, 16, 16)
    assert first.min() >= 0
    assert first.max() <= 1
    assert looks.bincount().tolist() == [10] * len(photographs.LOOKS)


def test_lines_are_where_a_step_is() -> None:
    step = torch.zeros(1, 3, 8, 8)
    step[..., 4:] = 1
    ink = photographs.lines(step, seeded(0))
    ground = ink[..., :2]
    assert torch.equal(ground, ground[..., :1, :1].expand_as(ground))
    assert (ink[..., 3:5] - ink[..., :1]).abs().min() > 0.05


def test_a_missing_photograph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(FileNotFoundError, match=r"coffee\.png.*pip install scikit-image"):
        photographs.photograph("coffee.png")
