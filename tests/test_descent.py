"""The shared optimiser, its prior, and what is scored of sets of images."""

from importlib import import_module
from itertools import permutations
from typing import Any

import pytest
import torch
from factories_core import truth as truth_of
from torch import Tensor

from fdgpriv.metrics.matching import first_match, pairs
from fdgpriv.metrics.pixels import EXACT_DB
from fdgpriv.tasks import images as image_task

descent: Any = import_module("fdgpriv.attacks._inversion")


def test_it_finds_least_squares_in_the_unit_cube(rng: torch.Generator) -> None:
    wanted = 2 * torch.rand(3, 3, 4, 4, generator=rng) - 0.5

    def objective(images: Tensor) -> Tensor:
        return (images - wanted).square().sum(dim=(1, 2, 3))

    found = descent.descend(objective, [torch.full_like(wanted, 0.5)], 300, 0.05)
    torch.testing.assert_close(found, wanted.clamp(0, 1), atol=1e-2, rtol=0)
    assert not found.requires_grad


def test_reconstructions_together_are_those_alone(rng: torch.Generator) -> None:
    wanted, start = torch.rand(2, 4, 3, 4, 4, generator=rng)

    def objective(truth: Tensor) -> Any:
        return lambda images: (images.sin() - truth).square().mean(dim=(1, 2, 3))

    together = descent.descend(objective(wanted), [start], 20, 0.1)
    alone = [descent.descend(objective(wanted[i : i + 1]), [start[i : i + 1]], 20, 0.1) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)


def test_the_restart_that_ends_lowest_is_kept() -> None:
    """Two valleys, at 0.2 and 0.8; the one at 0.8 is deeper, and only the second restart begins there."""
    starts = [torch.full((2, 3, 2, 2), 0.2), torch.full((2, 3, 2, 2), 0.8)]

    def objective(images: Tensor) -> Tensor:
        shallow, deep = (images - 0.2).square() + 0.1, (images - 0.8).square()
        values = torch.minimum(shallow, deep).mean(dim=(1, 2, 3))
        return torch.stack([values[0], (images[1] - 0.2).square().mean()])

    found = descent.descend(objective, starts, 30, 1e-3)
    assert found[:, 0, 0, 0].tolist() == pytest.approx([0.8, 0.2], abs=0.02)


def test_total_variation_is_a_mean_of_steps(rng: torch.Generator) -> None:
    image = torch.rand(3, 4, 5, generator=rng)
    down = [abs(image[c, y + 1, x] - image[c, y, x]) for c in range(3) for y in range(3) for x in range(5)]
    across = [abs(image[c, y, x + 1] - image[c, y, x]) for c in range(3) for y in range(4) for x in range(4)]
    plain = sum(down) / len(down) + sum(across) / len(across)
    assert float(descent.total_variation(image[None])) == pytest.approx(float(plain), abs=1e-6)


def test_a_set_is_scored_in_its_best_order(rng: torch.Generator) -> None:
    """Against every order tried; two images more than there are true ones do not count."""
    truth, prediction = torch.rand(3, 3, 16, 16, generator=rng), torch.rand(5, 3, 16, 16, generator=rng)
    errors = [
        [float((prediction[i] - truth[j]).double().square().mean()) for i, j in enumerate(order)]
        for order in permutations(range(3))
    ]
    best = min(errors, key=sum)
    expected = sum(-10 * torch.tensor(error, dtype=torch.float64).log10() for error in best) / 3
    assert float(image_task.psnr([prediction], [truth_of(truth)])) == pytest.approx(float(expected), abs=1e-5)
    shuffled = truth[torch.tensor([2, 0, 1])]
    assert float(image_task.psnr([shuffled], [truth_of(truth)])) == EXACT_DB
    assert float(image_task.exact_matches([shuffled], [truth_of(truth)])) == 1
    most = torch.cat([shuffled[:1], torch.full_like(shuffled[1:2], 0.5), shuffled[2:]])
    assert float(image_task.exact_matches([most], [truth_of(truth)])) == pytest.approx(2 / 3)
    assert float(image_task.ssim([shuffled], [truth_of(truth)])) == pytest.approx(1)


def test_a_set_of_one_is_scored_as_the_image_alone(rng: torch.Generator) -> None:
    truth, prediction = torch.rand(1, 3, 16, 16, generator=rng), torch.rand(3, 16, 16, generator=rng)
    for score in (image_task.psnr, image_task.ssim, image_task.identified):
        one, other = score([prediction, prediction[None]], [truth_of(truth)] * 2).tolist()
        assert one == pytest.approx(other, abs=1e-6)


def test_the_picture_of_a_set_is_the_first_image_s(rng: torch.Generator) -> None:
    truth = torch.rand(5, 3, 4, 4, generator=rng)
    prediction = (truth[torch.tensor([2, 1, 0])] + 0.01).clamp(0, 1)
    assert torch.equal(first_match(prediction, truth), prediction[2])
    ours, theirs = pairs(prediction, truth)
    assert torch.equal(theirs, truth[torch.tensor([2, 1, 0])])
    assert torch.equal(ours, prediction)
