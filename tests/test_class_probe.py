"""Class probe: styles in units of their domain tell classes that domains' offsets and spreads hide from one linear probe."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from fdgpriv.utils.seeds import generator

part: Any = import_module("fdgpriv.attacks.class_probe")
simulation: Any = import_module("fdgpriv.attacks._simulation")

CLASSES, D = 4, 12


def styles(count: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Styles (N, D) of N images, their classes (N,) and domains (N,): classes differ alike in units of each domain."""
    means, offsets = (torch.randn(n, D, generator=generator(7, n)) for n in (CLASSES, 3))
    spreads = torch.tensor([0.2, 1.0, 4.0])
    classes = torch.randint(CLASSES, (count,), generator=rng)
    domains = torch.arange(count) % 3
    own = means[classes] + torch.randn(count, D, generator=rng)
    return own * spreads[domains, None] + 5 * offsets[domains], classes, domains


def told(rng: torch.Generator, classes_are_known: bool = True) -> tuple[float, float]:
    """The share of classes told right, by the attack and by one probe on the styles as they are."""
    (known, labels, domains), (observed, truth, _) = styles(240, rng), styles(300, rng)
    if not classes_are_known:
        labels = labels[torch.randperm(len(labels), generator=rng)]
    members = list(torch.arange(240)[:, None])
    simulated = simulation.SimulatedArtifacts(
        known, torch.ones(240, dtype=torch.int64), members, torch.empty(240, 0), labels, domains
    )
    n_images = torch.ones(300, dtype=torch.int64)
    both = part.class_log_probabilities(simulated, observed, n_images, CLASSES)
    plain = simulation.probe(simulated, labels, observed, n_images, CLASSES)
    assert both.shape == (300, CLASSES)
    right, right_plain = (float((found.argmax(1) == truth).float().mean()) for found in (both, plain))
    return right, right_plain


def test_classes_are_told_in_units_of_the_domain(rng: torch.Generator) -> None:
    right, plain = told(rng)
    assert right > plain + 0.05
    assert right > 0.6


def test_without_true_classes_to_learn_from_it_tells_no_more_than_chance(rng: torch.Generator) -> None:
    right, _ = told(rng, classes_are_known=False)
    assert right == pytest.approx(1 / CLASSES, abs=0.1)
