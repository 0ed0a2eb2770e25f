"""The AdaIN networks: normalised VGG-19 up to relu4_1 and its mirrored decoder, with weights from the user's files.

Independent implementation of the published architecture; the weights are not part of fdgpriv.
Reference: Huang and Belongie, "Arbitrary style transfer in real-time with adaptive instance normalization", ICCV 2017.
"""

from pathlib import Path

from torch import nn

from fdgpriv.models.checkpoints import find_weights, load_exactly
from fdgpriv.models.state_dicts import read_tensors
from fdgpriv.models.style_codec import StyleCodec
from fdgpriv.utils.global_rng import global_draws

ADAIN_VGG = "adain-vgg"
ENCODER_FILES = ("vgg_normalised.safetensors", "vgg_normalised.pth")
DECODER_FILES = ("decoder.safetensors", "decoder.pth")
SOURCE = "comes from the releases of https://github.com/naoto0804/pytorch-AdaIN"
_ENDS = (4, 11, 18, 31)  # after relu1_1, relu2_1, relu3_1 and relu4_1


def adain_vgg(encoder: Path | None = None, decoder: Path | None = None) -> StyleCodec:
    """The codec of AdaIN, CCST and PARDON, frozen: images in [0, 1], of at least 16 px, to 512 channels at stride 8.

    Convolutions pad by reflection and pooling rounds up: 512 px give 64, 256 give 32 and 224 give 28. Decoded images
    are larger than the input if 8 does not divide the side.

    Args:
        encoder: The file `vgg_normalised`, .pth or .safetensors, or its folder; the first 31 of its 53 layers are
            used. None searches torch's checkpoints.
        decoder: The file `decoder`, likewise.
    """
    with global_draws():
        codec = StyleCodec(ADAIN_VGG, encoder_layers(), decoder_layers(), _ENDS)
    _load(codec.encoder, find_weights(ENCODER_FILES, SOURCE, encoder), "vgg_normalised")
    _load(codec.decoder, find_weights(DECODER_FILES, SOURCE, decoder), "decoder")
    return codec.eval().requires_grad_(False)


def has_adain_vgg(folder: Path) -> bool:
    """Whether both files are in this folder."""
    return all(any((folder / name).is_file() for name in names) for names in (ENCODER_FILES, DECODER_FILES))


def encoder_layers() -> nn.Sequential:
    """The 31 layers: a 1x1 convolution on the colours, then VGG-19 up to relu4_1."""
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]
    inputs = 3
    for outputs in (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512):
        if outputs:
            layers += _conv(inputs, outputs)
            inputs = outputs
        else:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers)


def decoder_layers() -> nn.Sequential:
    """The 29 layers: the encoder mirrored, nearest upsampling in place of pooling, no final ReLU."""
    layers: list[nn.Module] = []
    inputs = 512
    for outputs in (256, 0, 256, 256, 256, 128, 0, 128, 64, 0, 64, 3):
        if outputs:
            layers += _conv(inputs, outputs)
            inputs = outputs
        else:
            layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
    return nn.Sequential(*layers[:-1])


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3), nn.ReLU()]


def _load(layers: nn.Sequential, path: Path, what: str) -> None:
    tensors = read_tensors(path, layers.state_dict().keys())
    load_exactly(layers, {name: tensor for name, tensor in tensors.items() if _child(name) < len(layers)}, what, path)


def _child(name: str) -> int:
    number = name.split(".")[0]
    return int(number) if number.isdecimal() else -1  # load_exactly rejects other names
