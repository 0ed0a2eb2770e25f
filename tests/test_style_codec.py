"""The style codecs and the offline extractor: what is shipped is what was trained, and it does what it says."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from conftest import mostly_slow
from torch import Tensor

from fdgpriv.artifacts.moments import PER_IMAGE_UNBIASED, pooled_style
from fdgpriv.data.dataset import Domain
from fdgpriv.data.digits import digits
from fdgpriv.metrics.pixels import psnr_per_image
from fdgpriv.models.adain_vgg import adain_vgg, decoder_layers, encoder_layers
from fdgpriv.models.extractor import digits_extractor, inception_extractor
from fdgpriv.models.shipped import load_shipped, save_shipped
from fdgpriv.models.style_codec import DIGITS_CODEC, StyleCodec, digits_codec, small_codec

DOMAINS = {domain.name: domain for domain in digits().domains}


@pytest.fixture(scope="module")
def codec() -> StyleCodec:
    return digits_codec()


# What is shipped


def test_weights_that_are_not_the_cards_are_refused(tmp_path: Path) -> None:
    save_shipped(small_codec(DIGITS_CODEC), DIGITS_CODEC, "recipe", "nothing", {}, tmp_path)
    assert load_shipped(small_codec(DIGITS_CODEC), DIGITS_CODEC, tmp_path).recipe == "recipe"
    save_shipped(small_codec(DIGITS_CODEC), "other", "recipe", "nothing", {}, tmp_path)
    (tmp_path / "other.safetensors").rename(tmp_path / "digits_codec_1.safetensors")
    with pytest.raises(ValueError, match="SHA-256"):
        digits_codec(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"digits_extractor_1\.safetensors.*examples/shipped_networks"):
        digits_extractor(tmp_path)


# The offline networks on `digits`, of which they have seen no image


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_the_round_trip_keeps_20_dB(codec: StyleCodec, domain: Domain) -> None:
    back = codec(domain.images[:200]).clamp(0, 1)
    mean = float(psnr_per_image(back, domain.images[:200]).mean())
    flat = domain.images[:200].mean(dim=0, keepdim=True).expand(200, -1, -1, -1)
    control = float(psnr_per_image(flat, domain.images[:200]).mean())
    assert mean is not None
    assert control is not None
    assert mean >= 20
    assert mean > control + 3


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_the_extractor_reads_digits_it_has_never_seen(domain: Domain) -> None:
    found = digits_extractor().logits(domain.images).argmax(dim=1)
    assert float((found == domain.labels).float().mean()) > 0.7


@pytest.mark.parametrize("target", mostly_slow(list(DOMAINS), ["scan"]))
def test_a_stylised_image_takes_the_others_style(codec: StyleCodec, target: str) -> None:
    """Encoded again, most images lie nearer to the style they were given than to the one that they came with."""
    mean, std = PER_IMAGE_UNBIASED(codec.encode(DOMAINS[target].images[64:128]))
    given = torch.cat([mean, std], dim=1)
    for source in set(DOMAINS) - {target}:
        images = DOMAINS[source].images[:64]
        own = torch.cat(PER_IMAGE_UNBIASED(codec.encode(images)), dim=1)
        moved = torch.cat(PER_IMAGE_UNBIASED(codec.encode(codec.stylise(images, mean, std))), dim=1)
        nearer = (moved - given).norm(dim=1) < (moved - own).norm(dim=1)
        assert float(nearer.float().mean()) > 0.7, f"{source} in the style of {target}"


@pytest.mark.parametrize("target", mostly_slow(list(DOMAINS), ["scan"]))
def test_a_pooled_style_draws_another_domain(codec: StyleCodec, target: str) -> None:
    given = pooled_style(codec.encode(DOMAINS[target].images))
    for source in set(DOMAINS) - {target}:
        images = DOMAINS[source].images[:64]
        gaps = [
            torch.cat(pooled_style(codec.encode(shown))) - torch.cat(given)
            for shown in (images, codec.stylise(images, *given))
        ]
        assert float(gaps[1].norm()) < 0.75 * float(gaps[0].norm()), f"{source} in the style of {target}"


def test_a_stylised_digit_is_still_the_digit(codec: StyleCodec) -> None:
    extractor = digits_extractor()
    source, target = DOMAINS["type"], DOMAINS["scan"]
    moved = codec.stylise(source.images[:200], *pooled_style(codec.encode(target.images)))
    kept = extractor.logits(moved).argmax(dim=1) == source.labels[:200]
    assert float(kept.float().mean()) > 0.5  # chance is 0.1


def test_alpha_goes_from_the_content_to_the_style(codec: StyleCodec) -> None:
    content = DOMAINS["scan"].images[:8]
    mean, std = PER_IMAGE_UNBIASED(codec.encode(DOMAINS["type"].images[:1]))
    none, half, full = (codec.stylise(content, mean[0], std[0], alpha) for alpha in (0.0, 0.5, 1.0))
    assert torch.allclose(none, codec(content).clamp(0, 1), atol=1e-5)
    assert (half - none).square().mean() < (full - none).square().mean()
    with pytest.raises(ValueError, match="want alpha"):
        codec.stylise(content, mean[0], std[0], 1.5)


def test_its_own_style_changes_nothing(codec: StyleCodec) -> None:
    content = DOMAINS["type"].images[:8]
    mean, std = PER_IMAGE_UNBIASED(codec.encode(content))
    assert torch.allclose(codec.stylise(content, mean, std), codec(content).clamp(0, 1), atol=1e-4)


def test_shapes_stages_and_frozen_weights(codec: StyleCodec) -> None:
    content = DOMAINS["type"].images[:2]
    assert codec.name == "digits-codec-1"
    assert codec.encode(content).shape == (2, 64, 8, 8)
    assert [tuple(map_.shape) for map_ in codec.stages(content)] == [(2, 16, 32, 32), (2, 32, 16, 16), (2, 64, 8, 8)]
    assert torch.equal(codec.stages(content)[-1], codec.encode(content))
    assert not codec.training
    assert not any(parameter.requires_grad for parameter in codec.parameters())
    with pytest.raises(ValueError, match=r"want images \(N, 3, H, W\)"):
        codec.encode(content[:, :1])


# VGG


def vgg_files(folder: Path, ending: str) -> tuple[Path, Path]:
    """Random weights of the right shapes; the encoder's file has later children too, as the published one."""
    paths = []
    for name, layers in (("vgg_normalised", encoder_layers()), ("decoder", decoder_layers())):
        state: dict[str, Tensor] = dict(layers.state_dict())
        if name == "vgg_normalised":
            state |= {"32.weight": torch.zeros(512, 512, 3, 3), "32.bias": torch.zeros(512)}
        path = folder / f"{name}.{ending}"
        if ending == "pth":
            torch.save(state, path)
        else:
            safetensors.torch.save_file(state, path)
        paths.append(path)
    return paths[0], paths[1]


def test_the_vgg_has_the_published_layers() -> None:
    encoder, decoder = encoder_layers(), decoder_layers()
    weights = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items() if name.endswith("weight")}
    assert len(encoder) == 31
    assert len(decoder) == 29
    assert weights == {
        "0.weight": (3, 3, 1, 1), "2.weight": (64, 3, 3, 3), "5.weight": (64, 64, 3, 3), "9.weight": (128, 64, 3, 3),
        "12.weight": (128, 128, 3, 3), "16.weight": (256, 128, 3, 3), "19.weight": (256, 256, 3, 3),
        "22.weight": (256, 256, 3, 3), "25.weight": (256, 256, 3, 3), "29.weight": (512, 256, 3, 3),
    }  # fmt: skip
    mirrored = [tensor.shape for name, tensor in decoder.state_dict().items() if name.endswith("weight")]
    assert [(o, i) for i, o, *_ in mirrored] == [shape[:2] for shape in list(weights.values())[:0:-1]]


@pytest.mark.parametrize(("side", "map_side"), [(512, 64), (256, 32), (224, 28)])
def test_the_vgg_has_the_published_shapes(side: int, map_side: int) -> None:
    codec = StyleCodec("shapes", encoder_layers(), decoder_layers(), (4, 11, 18, 31)).to("meta")
    images = torch.empty(1, 3, side, side, device="meta")
    features = codec.encode(images)
    assert features.shape == (1, 512, map_side, map_side)
    assert codec.decode(features).shape == images.shape
    assert [stage.shape[1] for stage in codec.stages(images)] == [64, 128, 256, 512]


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_the_vgg_is_read_from_the_users_files(tmp_path: Path, rng: torch.Generator, ending: str) -> None:
    encoder, decoder = vgg_files(tmp_path, ending)
    named, found = adain_vgg(encoder, decoder), adain_vgg(tmp_path, tmp_path)
    images = torch.rand(1, 3, 32, 32, generator=rng)
    assert torch.equal(named(images), found(images))
    assert named.name == "adain-vgg"
    assert named.stylise(images, torch.zeros(512), torch.ones(512)).shape == images.shape
    stored = torch.load(encoder, weights_only=True) if ending == "pth" else safetensors.torch.load_file(encoder)
    assert torch.equal(named.encoder.state_dict()["29.weight"], stored["29.weight"])


def test_the_vgg_names_what_is_missing_or_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with pytest.raises(FileNotFoundError, match=r"vgg_normalised\.safetensors or vgg_normalised\.pth.*pytorch-AdaIN"):
        adain_vgg(tmp_path, tmp_path)
    encoder, decoder = vgg_files(tmp_path, "pth")
    with pytest.raises(ValueError, match="want the tensors of vgg_normalised"):
        adain_vgg(decoder, decoder)
    with pytest.raises(ValueError, match="want the tensors of decoder"):
        adain_vgg(encoder, encoder)
    encoder.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="want a state dict"):
        adain_vgg(encoder, decoder)


def test_inception_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with pytest.raises(FileNotFoundError, match=r"inception_v3_google-0cc3c7bd\.pth.*download\.pytorch\.org"):
        inception_extractor(tmp_path)


@pytest.mark.slow
def test_inception_is_read_from_the_users_file(tmp_path: Path, rng: torch.Generator) -> None:
    from fdgpriv.utils.torchvision_import import torchvision

    network = torchvision.models.inception_v3(weights=None, init_weights=False, transform_input=True).eval()
    torch.save(network.state_dict(), tmp_path / "inception_v3_google-0cc3c7bd.pth")
    extractor = inception_extractor(tmp_path)
    images = torch.rand(2, 3, 299, 299, generator=rng)
    with torch.no_grad():  # torchvision's own preparation: normalised, then by `transform_input` to the old range
        normal = (images - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[
            :, None, None
        ]
        wanted = network(normal)
    assert extractor(images).shape == (2, 2048)
    assert torch.allclose(extractor.logits(images), wanted, atol=1e-4)
    assert extractor.label.startswith("inception-v3:")
