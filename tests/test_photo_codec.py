"""The style codec for photographs: what is shipped is what was trained, and it does what it says on unseen photographs."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import seeded
from torch import Tensor, nn

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, pooled_style
from fdgpriv.config import AuditConfig
from fdgpriv.metrics.pixels import psnr_per_image
from fdgpriv.models.shipped import HERE, load_shipped, sha256
from fdgpriv.models.style_codec import PHOTO_CODEC, StyleCodec, photo_codec, photo_network
from fdgpriv.models.training import photographs
from fdgpriv.models.training.__main__ import RECIPES, fingerprint, train
from fdgpriv.models.training.photo_codec import PhotoCodecRecipe, pass_pixels, photo_loss, style_left
from fdgpriv.models.training.photographs import HELD_OUT, LOOKS, PHOTOGRAPHS, photo_crops, training_images


@pytest.fixture(scope="module")
def codec() -> StyleCodec:
    return photo_codec()


@pytest.fixture(scope="module")
def unseen() -> Tensor:
    """96-px crops of the two photographs that are not trained on, coffee and rocket."""
    return photo_crops(HELD_OUT, 24, 96, seeded(7))


@pytest.fixture(scope="module")
def looks() -> dict[str, Tensor]:
    """Synthetic images by look, of another random stream than the training's."""
    images, index = training_images(96, 48, seeded(8))
    return {name: images[index == look] for look, name in enumerate(LOOKS)}


def test_shipped_weights_are_small_and_carry_their_hashes() -> None:
    weights = HERE / f"{PHOTO_CODEC.replace('-', '_')}.safetensors"
    card = json.loads(weights.with_suffix(".json").read_text())
    assert weights.stat().st_size < 4_000_000
    assert card["weights"] == sha256(weights)
    assert card["recipe"] == fingerprint(RECIPES[PHOTO_CODEC], photo_network(PHOTO_CODEC)), (
        "the training script changed: python -m fdgpriv.models.training photo-codec-1"
    )


def test_the_training_script_makes_what_is_loaded(tmp_path: Path) -> None:
    recipe = PhotoCodecRecipe(images=80, held_out=8, side=16, steps=2, batch=4)
    state = torch.random.get_rng_state()
    first, again = train(PHOTO_CODEC, recipe, tmp_path), train(PHOTO_CODEC, recipe, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)
    network = photo_network(PHOTO_CODEC)
    assert first == again == load_shipped(network, PHOTO_CODEC, tmp_path)
    assert first.recipe != fingerprint(RECIPES[PHOTO_CODEC], network)


def test_loading_is_deterministic_and_frozen(codec: StyleCodec, unseen: Tensor) -> None:
    state = torch.random.get_rng_state()
    again = photo_codec()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(again(unseen[:2]), codec(unseen[:2]))
    assert not codec.training
    assert not any(parameter.requires_grad for parameter in codec.parameters())


def test_shapes_and_stages(codec: StyleCodec) -> None:
    images = torch.rand(2, 3, 32, 32, generator=seeded(0))
    assert codec.channels == 96
    assert [tuple(map_.shape) for map_ in codec.stages(images)] == [(2, 64, 16, 16), (2, 96, 8, 8)]
    assert torch.equal(codec.stages(images)[-1], codec.encode(images))
    assert codec(images[..., :8, :8]).shape == (2, 3, 8, 8)


# What it does


def test_the_round_trip_keeps_22_dB_of_photographs_it_has_not_seen(codec: StyleCodec, unseen: Tensor) -> None:
    assert not set(HELD_OUT) & set(PHOTOGRAPHS)
    for shot in range(len(HELD_OUT)):
        shown = unseen[shot :: len(HELD_OUT)]
        assert float(psnr_per_image(codec(shown).clamp(0, 1), shown).mean()) >= 22


@pytest.mark.parametrize("look", LOOKS)
def test_adain_moves_the_style_most_of_the_way(
    codec: StyleCodec, unseen: Tensor, looks: dict[str, Tensor], look: str
) -> None:
    style = pooled_style(codec.encode(looks[look]))
    assert float(style_left(codec, unseen, style).mean()) < 0.35


def test_the_share_of_style_left_is_one_without_transfer(codec: StyleCodec, unseen: Tensor) -> None:
    class Unmoved(StyleCodec):
        def stylise(self, images: Tensor, mean: Tensor, std: Tensor, alpha: float = 1.0) -> Tensor:
            return images

    unmoved = Unmoved("unmoved", codec.encoder, codec.decoder, codec.ends)
    left = style_left(unmoved, unseen, pooled_style(codec.encode(unseen[:1])))
    assert torch.allclose(left[1:], torch.ones(len(unseen) - 1))


def test_its_own_style_changes_nothing(codec: StyleCodec, unseen: Tensor) -> None:
    mean, std = PER_IMAGE_UNBIASED(codec.encode(unseen))
    assert torch.allclose(codec.stylise(unseen, mean, std), codec(unseen).clamp(0, 1), atol=1e-4)


# Its training


def test_training_starts_from_an_exact_copy_of_the_pixels(unseen: Tensor) -> None:
    fresh = photo_network("fresh")
    pass_pixels(fresh)
    assert torch.equal(fresh(unseen), unseen)


def test_scaling_the_features_does_not_lower_the_loss(codec: StyleCodec, unseen: Tensor) -> None:
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
    ours, theirs = (float(photo_loss(c, unseen[:4], unseen[4:8], False, recipe)) for c in (scaled, codec))
    assert ours == pytest.approx(theirs, rel=1e-2)


# The images it is trained on


def test_training_images_are_repeatable_and_in_range() -> None:
    (first, looks), (second, _), (other, _) = (training_images(40, 16, seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert first.shape == (40, 3, 16, 16)
    assert first.min() >= 0
    assert first.max() <= 1
    assert looks.bincount().tolist() == [10] * len(LOOKS)


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


# Who uses it


@pytest.mark.parametrize("method", ["ccst", "pardon"])
def test_audits_use_it_on_all_data_but_digits(method: str) -> None:
    def codec_of(dataset: str, spec: str = method, **options: Any) -> str:
        part: Any = AuditConfig(methods=(spec,), dataset=dataset, **options).method(spec)
        return str(part.codec)

    assert codec_of("digits") == "digits"
    assert codec_of("pacs") == "photo"
    assert codec_of("pacs", f"{method}:codec=digits") == "digits"
    assert codec_of("pacs", settings={"codec": "digits"}) == "digits"
    assert codec_of("pacs", preset="paper") == "adain_vgg"
