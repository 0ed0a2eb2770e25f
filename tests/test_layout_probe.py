"""The layout probe: what a layout is, that colour earns nothing, and that structure is read where there is some."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted
from factories_core import truth
from torch import Tensor

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

probing: Any = import_module("fdgpriv.attacks.layout_probe")
CONTROLS = ("noise", "mean_image", "domain_mean", "random_style", "other_client", "other_domain")


class GridCraft(StyleSimulator):
    """Means of a style are the brightness of the cells of a 4 x 4 grid: each channel looks at one place."""

    def styles(self, images: Tensor) -> tuple[Tensor, Tensor]:
        grid = images.mean(1).unflatten(2, (4, -1)).unflatten(1, (4, -1)).mean(dim=(2, 4)).flatten(1)
        return grid, grid.std(1, keepdim=True).expand(-1, 16)

    def maps(self, images: Tensor) -> Tensor:
        return images.new_empty(len(images), 0)


class TotalCraft(GridCraft):
    """Every channel looks at the whole image, so a style tells brightness and contrast only."""

    def styles(self, images: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = images.mean(dim=(1, 2, 3)), images.std(dim=(1, 2, 3))
        return mean[:, None].expand(-1, 16), std[:, None].expand(-1, 16)


def plain(image: Tensor, cells: int = 4) -> Tensor:
    """The layout (cells * cells,) of one image, pixel by pixel."""
    side = image.shape[1] // cells
    values = []
    for row in range(cells):
        for column in range(cells):
            total = 0.0
            for y in range(row * side, (row + 1) * side):
                for pixel in image[:, y, column * side : (column + 1) * side].T.tolist():
                    total += sum(pixel) / 3
            values.append(total / side**2)
    return torch.tensor(values) - sum(values) / len(values)


def asked(evaluator: Evaluator, simulator: type[StyleSimulator]) -> list[AdversaryTrials]:
    """The server, on single images whose styles are of this simulator."""
    target: ArtifactSeries[Simulator] = evaluator.series(StyleStatistics.kind)
    made = target.simulator
    assert isinstance(made, StyleSimulator)
    target = replace(target, simulator=simulator(made.recorded_styles, made.defense, made.template), wire={})
    return evaluator.adversaries(target, threat("server"), (1,))


def means(scores: TrialScores) -> dict[str, float]:
    return {name: float(np.mean(scores)) for name, scores in scores.headline.items()}


def test_a_layout_against_a_loop_over_pixels(rng: torch.Generator) -> None:
    images = torch.rand(3, 3, 16, 16, generator=rng)
    for cells in (2, 4):
        found = probing.layout(images, cells)
        torch.testing.assert_close(found, torch.stack([plain(image, cells) for image in images]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(probing.layout(images + 0.3, 4), found)  # brightness is no layout


def test_the_score_is_the_squared_correlation(rng: torch.Generator) -> None:
    attack = Attack.named("layout_probe")()
    image, prediction = torch.rand(3, 16, 16, generator=rng), torch.randn(16, generator=rng)
    expected = np.corrcoef(prediction.numpy(), plain(image).numpy())[0, 1] ** 2
    for told in (prediction, prediction + 5, -3 * prediction):  # brighter; of more contrast, and light for dark
        for shown in (image, 0.2 + 0.5 * image, 1 - image):
            assert float(attack.task.score([told], [truth(shown[None])])) == pytest.approx(expected, abs=1e-5)
    assert float(attack.task.score([plain(image)], [truth(image[None])])) == pytest.approx(1)


def test_what_has_no_layout_scores_zero(rng: torch.Generator) -> None:
    attack = Attack.named("layout_probe")()
    flat = torch.full((3, 16, 16), 0.3)
    told = [torch.randn(16, generator=rng), torch.full((16,), 0.1)]
    assert attack.task.score(told, [truth(flat[None]), truth(torch.rand(1, 3, 16, 16, generator=rng))]).tolist() == [
        0,
        0,
    ]


def test_channels_that_are_cells_reveal_the_layout(evaluator: Evaluator) -> None:
    found = means(evaluate_trials(Attack.named("layout_probe")(), asked(evaluator, GridCraft), (), generator(1))[0][1])
    assert found["attack"] > 0.97
    assert max(found[name] for name in CONTROLS) < 0.85


def test_brightness_and_contrast_are_no_layout(fitted: Fitted) -> None:
    """They tell no more than the mean layout does, up to what a ridge of two numbers can differ from it."""
    found = means(
        evaluate_trials(
            Attack.named("layout_probe")(), asked(fitted.default_evaluator(), TotalCraft), (), generator(1)
        )[0][1]
    )
    known = max(found["mean_image"], found["domain_mean"])
    assert found["attack"] < known + 0.01
    assert found["noise"] == pytest.approx(1 / 15, abs=0.03)  # a direction drawn among 16 cells less their mean
