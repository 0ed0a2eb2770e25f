"""The built-in digits dataset: four domains of 32 x 32 RGB, stored as digits.npz, which examples/make_digits.py draws.

They are stored because drawing them meets near ties of rounding, which processors decide differently.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from fdgpriv.data.dataset import Dataset, Domain, digest
from fdgpriv.data.names import ABOUT, DEFAULT_TARGETS, DOMAINS

SIDE = 32
CLASSES = tuple("0123456789")
FILE = Path(__file__).with_name("digits.npz")
SHA256 = "1bf5b8163a4d17895cd17430d584357df6182f28f20f81afd52572f429ea33c5"  # of the images and labels, see `digest`

LIMITS = (
    "Small and made here: about 600 images a domain, scans of 8 x 8 pixels enlarged, domains that differ by a recipe of "
    "ours. It shows that a pipeline works and ranks methods, attacks and defenses on equal terms; its accuracies do not "
    "compare with published ones, and leakage of larger natural images may differ in both directions. Each of the "
    "13 writers appears in several domains, so nothing here measures the privacy of a writer."
)


def digits(file: Path = FILE) -> Dataset:
    """The four domains, images (N, 3, 32, 32) uint8; a ValueError if the stored ones are not those of this version."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            domains = tuple(
                Domain(
                    name,
                    torch.from_numpy(stored[f"{name}_images"]).expand(-1, 3, -1, -1).contiguous(),
                    torch.from_numpy(stored[f"{name}_labels"]).long(),
                )
                for name in DOMAINS["digits"]
            )
        sha256 = digest(CLASSES, domains)
    except (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"want the images of digits in {file}, got: {error}; install fdgpriv again") from None
    if sha256 != SHA256:
        raise ValueError(
            f"want the images of digits with SHA-256 {SHA256} in {file}, got {sha256}; install fdgpriv again"
        )
    return Dataset(
        "digits",
        CLASSES,
        domains,
        DEFAULT_TARGETS["digits"],
        ABOUT["digits"],
        LIMITS,
        flip=False,
        translate=2 / SIDE,
        sha256=sha256,
    )
