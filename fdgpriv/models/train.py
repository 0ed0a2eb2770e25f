"""python -m fdgpriv.models.train: makes the small networks that fdgpriv ships, from images that it makes itself."""

import argparse
import hashlib
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from fdgpriv.federation import generator
from fdgpriv.models import _pen, _practice, _recipe, _train_codec, _train_extractor
from fdgpriv.models._practice import practice
from fdgpriv.models._recipe import Recipe
from fdgpriv.models._shipped import HERE, save_shipped
from fdgpriv.models._train_codec import redraw_figures, train_codec
from fdgpriv.models._train_extractor import read_figures, train_extractor
from fdgpriv.models.extractor import DIGITS_EXTRACTOR
from fdgpriv.models.style_codec import DIGITS_CODEC

NETWORKS = (DIGITS_EXTRACTOR, DIGITS_CODEC)
_SOURCES = (_pen, _practice, _recipe, _train_codec, _train_extractor)
TRAINED_ON = (
    "{images} images that fdgpriv makes (fdgpriv/models/_practice.py): digits drawn by a random pen along written-down"
    " strokes or set in matplotlib's fonts, on random grounds. No image of any data set, of `digits` neither; the typeset"
    " digits share fonts with its domain `type`."
)


def train(recipe: Recipe, directory: Path, network: str) -> None:
    """Trains one of `NETWORKS` and writes it into `directory`; each has streams of its own."""
    made = practice(recipe.images, generator(recipe.seed, 0))
    held_out = practice(recipe.held_out, generator(recipe.seed, 1))
    trained_on = TRAINED_ON.format(images=recipe.images)
    if network == DIGITS_EXTRACTOR:
        extractor = train_extractor(made, recipe, generator(recipe.seed, 2))
        figures = read_figures(extractor, held_out)
        save_shipped(extractor, network, fingerprint(recipe, extractor), trained_on, figures, directory)
    else:
        codec = train_codec(made, recipe, generator(recipe.seed, 3))
        figures = redraw_figures(codec, held_out)
        save_shipped(codec, network, fingerprint(recipe, codec), trained_on, figures, directory)


def fingerprint(recipe: Recipe, network: nn.Module) -> str:
    """SHA-256 of this script, of what makes its images, of the settings and of the network's layout."""
    digest = hashlib.sha256()
    for file in (__file__, *(source.__file__ for source in _SOURCES)):
        digest.update(Path(str(file)).read_bytes())
    digest.update(repr(sorted(asdict(recipe).items())).encode())
    digest.update(repr(network).encode())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fdgpriv.models.train", description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=f"any of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the weights and their cards")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - set(NETWORKS):
        parser.error(f"want networks of {', '.join(NETWORKS)}; got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)  # the same sums in the same order
    for network in arguments.networks:
        train(Recipe(), arguments.out, network)


if __name__ == "__main__":
    main()
