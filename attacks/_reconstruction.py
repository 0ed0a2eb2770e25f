"""What every attack that draws images promises, and how it is scored."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from fdgpriv.exam import Guess, Truth
from fdgpriv.finding import Measured
from fdgpriv.roles import Attack

from ._images import Labelled, identified, labels_right, lpips, psnr, realism, ssim


class Reconstruction(Attack):
    """Guesses are images (3, H, W) in [0, 1], or sets of them (M, 3, H, W) in no order; see `_images`."""

    family: ClassVar[str] = "reconstruction"
    headline: ClassVar[str] = "psnr"
    higher_leaks: ClassVar[bool] = True

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return psnr(guesses, truths)

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        name, distances = lpips(guesses, truths)
        found = {"ssim": ssim(guesses, truths), name: distances, "identified": identified(guesses, truths)}
        if all(isinstance(guess, Labelled) for guess in guesses):
            found["labels_right"] = labels_right(guesses, truths)
        return found

    def realism(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Measured]:
        return realism(guesses, truths)
