"""python -m fdgpriv.models.training: trains the networks shipped with fdgpriv on synthetic images."""

import argparse
import hashlib
import inspect
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from fdgpriv.models.extractor import DIGITS_EXTRACTOR
from fdgpriv.models.shipped import HERE, Card, save_shipped
from fdgpriv.models.style_codec import DIGITS_CODEC
from fdgpriv.models.training import images, pen
from fdgpriv.models.training import recipe as recipe_module
from fdgpriv.models.training.codec import CodecRecipe, redraw_figures, train_codec
from fdgpriv.models.training.extractor import ExtractorRecipe, read_figures, train_extractor
from fdgpriv.models.training.images import synthetic_digits
from fdgpriv.models.training.recipe import Recipe
from fdgpriv.utils.seeds import generator

RECIPES: dict[str, Recipe] = {DIGITS_EXTRACTOR: ExtractorRecipe(), DIGITS_CODEC: CodecRecipe()}
TRAINED_ON = (
    "{images} images that fdgpriv makes (fdgpriv/models/training/images.py): digits drawn by a random pen along written-down"
    " strokes or set in matplotlib's fonts, on random grounds. No image of any data set, of `digits` neither; the typeset"
    " digits share fonts with its domain `type`."
)


def train(name: str, recipe: Recipe, directory: Path) -> Card:
    """Trains the network called `name`, writes weights and card into `directory`, and returns the card."""
    made = synthetic_digits(recipe.images, generator(recipe.seed, 0))
    held_out = synthetic_digits(recipe.held_out, generator(recipe.seed, 1))
    rng = generator(recipe.seed, 2)
    network: nn.Module
    if isinstance(recipe, ExtractorRecipe):
        network = extractor = train_extractor(made, recipe, rng)
        figures = read_figures(extractor, held_out)
    elif isinstance(recipe, CodecRecipe):
        network = codec = train_codec(made, recipe, rng)
        figures = redraw_figures(codec, held_out)
    else:
        raise TypeError(f"want the recipe of an extractor or a codec, got {type(recipe).__name__}")
    trained_on = TRAINED_ON.format(images=recipe.images)
    return save_shipped(network, name, fingerprint(recipe, network), trained_on, figures, directory)


def fingerprint(recipe: Recipe, network: nn.Module) -> str:
    """SHA-256 of the source files of image generation and training, the settings, and the network's layout."""
    digest = hashlib.sha256()
    for source in (pen, images, recipe_module, type(recipe)):
        digest.update(Path(inspect.getfile(source)).read_bytes())
    digest.update(repr(sorted(asdict(recipe).items())).encode())
    digest.update(repr(network).encode())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fdgpriv.models.training", description=__doc__)
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
