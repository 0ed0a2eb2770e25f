"""Label shares from last layers that clients keep: against a plain loop, with labels in them, and with none."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

kept_layers: Any = import_module("fdgpriv.attacks._kept_layers")
LayerDeviations = kept_layers.LayerDeviations

CLIENTS, CLASSES, WIDTH, IMAGES = 30, 10, 24, 41


def shares(rng: torch.Generator) -> Tensor:
    """(M, K): of clients with random images."""
    labels = torch.randint(CLASSES, (CLIENTS, IMAGES), generator=rng)
    return torch.stack([row.bincount(minlength=CLASSES) / IMAGES for row in labels])


def layers(told: Tensor, noise: float, rng: torch.Generator) -> list[list[Tensor]]:
    """Each client's weight and bias: a class of a larger share has a longer row and a larger bias, with noise on both."""
    common = torch.randn(CLASSES, WIDTH, generator=rng)
    made = []
    for row in told:
        error = noise * torch.randn(2, CLASSES, generator=rng)
        made.append([common * (1 + row + error[0])[:, None], 3 + row + error[1]])
    return made


def l1(made: list[list[Tensor]], truth: Tensor) -> float:
    """Mean L1 error of each client's shares, read beside the others'."""
    errors = []
    for i, layer in enumerate(made):
        read = LayerDeviations.of(layer, made[:i] + made[i + 1 :])
        errors.append(float((read.shares(torch.full((CLASSES,), 0.1), IMAGES) - truth[i]).abs().sum()))
    return float(np.mean(errors))


def test_it_is_what_a_plain_loop_computes(rng: torch.Generator) -> None:
    made, growth = layers(shares(rng), 0.03, rng), list(torch.randn(CLIENTS, CLASSES, generator=rng))
    found = LayerDeviations.of(made[0], made[1:], growth)
    measured = np.empty((3, CLIENTS, CLASSES))
    for i, (weight, bias) in enumerate(made):
        for k in range(CLASSES):
            measured[:, i, k] = weight[k].norm(), bias[k], growth[i][k]
    sums, standardised = np.zeros((CLIENTS, CLASSES)), []
    for rows in measured:
        rows = rows - rows[1:].mean(0)
        standardised.append(rows / np.sqrt((rows[1:] ** 2).mean()))
        sums += standardised[-1]
    pairs = [
        np.corrcoef(standardised[a][1:].ravel(), standardised[b][1:].ravel())[0, 1] for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    alpha = 3 * np.mean(pairs) / (1 + 2 * np.mean(pairs))
    assert found.reliability == pytest.approx(max(0.0, alpha), abs=1e-5)
    np.testing.assert_allclose(found.observed.numpy(), sums[0] / np.sqrt((sums[1:] ** 2).mean()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("noise", "share_of_equal"), [(0.0, 0.25), (0.03, 0.6), (0.06, 0.85)])
def test_shares_are_read_as_far_as_the_layers_agree(noise: float, share_of_equal: float, rng: torch.Generator) -> None:
    truth = shares(rng)
    equal = float((truth - 0.1).abs().sum(1).mean())
    assert l1(layers(truth, noise, rng), truth) < share_of_equal * equal


def test_layers_without_labels_tell_next_to_nothing(rng: torch.Generator) -> None:
    truth = shares(rng)
    equal = float((truth - 0.1).abs().sum(1).mean())
    made = layers(torch.zeros(CLIENTS, CLASSES), 1.0, rng)
    assert LayerDeviations.of(made[0], made[1:]).reliability < 0.15
    assert l1(made, truth) < 1.1 * equal


def test_one_measurement_cannot_agree_with_another() -> None:
    assert LayerDeviations.of([torch.ones(4)], [[torch.ones(4)]] * 5) is None
    alike = LayerDeviations.of([torch.ones(4, 3), torch.ones(4)], [[torch.ones(4, 3), torch.ones(4)]] * 5)
    assert alike.reliability == 0
    assert torch.equal(alike.shares(torch.full((4,), 0.25), 10), torch.full((4,), 0.25))
