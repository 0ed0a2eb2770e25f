"""Trains the networks shipped with fdgpriv, on images of no benchmark: python -m shipped_networks, in examples/."""

import argparse
import hashlib
import inspect
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from fdgpriv.models.extractor import DIGITS_EXTRACTOR
from fdgpriv.models.shipped import HERE, Card, save_shipped
from fdgpriv.models.style_codec import DIGITS_CODEC, PHOTO_CODEC
from fdgpriv.utils.seeds import generator
from shipped_networks import codec as codec_module
from shipped_networks import images, pen, photographs
from shipped_networks import recipe as recipe_module
from shipped_networks.codec import CodecRecipe, redraw_figures, train_codec
from shipped_networks.extractor import ExtractorRecipe, read_figures, train_extractor
from shipped_networks.images import synthetic_digits
from shipped_networks.photo_codec import PhotoCodecRecipe, photo_figures, train_photo_codec
from shipped_networks.recipe import Recipe

RECIPES: dict[str, Recipe] = {
    DIGITS_EXTRACTOR: ExtractorRecipe(),
    DIGITS_CODEC: CodecRecipe(),
    PHOTO_CODEC: PhotoCodecRecipe(),
}
TRAINED_ON = (
    "{images} images that fdgpriv makes (examples/shipped_networks/images.py): digits drawn by a random pen along"
    " written-down strokes or set in matplotlib's fonts, on random grounds. No image of any data set, of `digits` neither;"
    " the typeset digits share fonts with its domain `type`."
)
TRAINED_ON_PHOTOGRAPHS = (
    "{images} images that fdgpriv makes (examples/shipped_networks/photographs.py): augmented crops of {count} photographs"
    " in scikit-image (public domain or CC0; without {held_out}) and scikit-learn (china and flower, CC BY 2.0, by"
    " danielbuechele and vultilion), and procedural textures. No image of a benchmark; `digits` has patches of china and"
    " flower in its domain `blend`."
)


def train(name: str, recipe: Recipe, directory: Path) -> Card:
    """Trains the network called `name`, writes weights and card into `directory`, and returns the card."""
    network, figures = _photo(recipe) if isinstance(recipe, PhotoCodecRecipe) else _digits(recipe)
    return save_shipped(network, name, fingerprint(recipe, network), _trained_on(recipe), figures, directory)


def _digits(recipe: Recipe) -> tuple[nn.Module, dict[str, float]]:
    """The network trained on synthetic digits, and its figures."""
    made = synthetic_digits(recipe.images, generator(recipe.seed, 0))
    held_out = synthetic_digits(recipe.held_out, generator(recipe.seed, 1))
    rng = generator(recipe.seed, 2)
    if isinstance(recipe, ExtractorRecipe):
        extractor = train_extractor(made, recipe, rng)
        return extractor, read_figures(extractor, held_out)
    if isinstance(recipe, CodecRecipe):
        codec = train_codec(made, recipe, rng)
        return codec, redraw_figures(codec, held_out)
    raise TypeError(f"want the recipe of an extractor or a codec, got {type(recipe).__name__}")


def _photo(recipe: PhotoCodecRecipe) -> tuple[nn.Module, dict[str, float]]:
    """The codec trained on crops of photographs, and its figures."""
    codec = train_photo_codec(recipe)
    return codec, photo_figures(codec, recipe)


def _trained_on(recipe: Recipe) -> str:
    if not isinstance(recipe, PhotoCodecRecipe):
        return TRAINED_ON.format(images=recipe.images)
    held_out = " and ".join(name.split(".")[0] for name in photographs.HELD_OUT)
    return TRAINED_ON_PHOTOGRAPHS.format(images=recipe.images, count=len(photographs.PHOTOGRAPHS), held_out=held_out)


def fingerprint(recipe: Recipe, network: nn.Module) -> str:
    """SHA-256 of the source files of image generation and training, the settings, and the network's layout."""
    digest = hashlib.sha256()
    sources = (photographs, codec_module) if isinstance(recipe, PhotoCodecRecipe) else (images,)
    for source in (pen, *sources, recipe_module, type(recipe)):
        digest.update(Path(inspect.getfile(source)).read_bytes())
    digest.update(repr(sorted(asdict(recipe).items())).encode())
    digest.update(repr(network).encode())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shipped_networks", description=__doc__)
    parser.add_argument(
        "networks", nargs="*", default=list(RECIPES), help=f"any of {', '.join(RECIPES)}; all by default"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the weights and their cards")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - set(RECIPES):
        parser.error(f"want networks of {', '.join(RECIPES)}; got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)  # fixed order of summation, for reproducibility
    for name in arguments.networks:
        train(name, RECIPES[name], arguments.out)


if __name__ == "__main__":
    main()
