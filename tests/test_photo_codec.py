"""The style codec for photographs: what is shipped is what was trained, and it does what it says on unseen photographs."""

from typing import Any

import pytest
import torch
from conftest import mostly_slow
from factories import seeded
from torch import Tensor

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, pooled_style
from fdgpriv.config import AuditConfig
from fdgpriv.metrics.pixels import psnr_per_image
from fdgpriv.models.style_codec import StyleCodec, photo_codec
from shipped_networks.photo_codec import style_left
from shipped_networks.photographs import HELD_OUT, LOOKS, PHOTOGRAPHS, photo_crops, training_images


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


def test_the_round_trip_keeps_22_dB_of_photographs(codec: StyleCodec, unseen: Tensor) -> None:
    assert not set(HELD_OUT) & set(PHOTOGRAPHS)
    for shot in range(len(HELD_OUT)):
        shown = unseen[shot :: len(HELD_OUT)]
        assert float(psnr_per_image(codec(shown).clamp(0, 1), shown).mean()) >= 22


@pytest.mark.parametrize("look", mostly_slow(LOOKS, LOOKS[:1]))
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
