"""Tent: its steps by hand, what it leaves alone, and how a report tells its accuracy beside the plain one."""

import math
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import federation, network, refused, seeded, small
from torch import Tensor, nn

from fdgpriv.api import run_audit
from fdgpriv.method import Method
from fdgpriv.models.backbone import Classifier
from fdgpriv.models.copied import copied
from fdgpriv.utils.seeds import generator

part: Any = import_module("fdgpriv.methods._tent")


def model() -> Classifier:
    return Classifier(network(1, 2)(seeded(0)), 3, seeded(1))


def entropy_at(start: nn.Module, values: Tensor, images: Tensor) -> float:
    """The mean entropy of predictions with these scales and shifts, by hand, under batch statistics."""
    changed, begin = copied(start).train(), 0
    for layer in part.batchnorm_layers(changed):
        for parameter in layer.parameters():
            parameter.data = values[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
    with torch.no_grad():
        shares = changed(images).softmax(1)
    return sum(-sum(p * math.log(p) for p in row) for row in shares.tolist()) / len(images)


def test_each_step_by_hand() -> None:
    """Adam's first step moves each number by the rate against the sign of its slope; the second batch is classified then."""
    start, rate = model().double(), 0.01
    images = torch.rand(9, 3, 8, 8, generator=seeded(2)).double()
    logits = part.tent_logits(start, images, batch_size=4, lr=rate)
    batches = torch.randperm(9, generator=generator(0)).split([5, 4])
    first, second = (images[index] for index in batches)
    torch.testing.assert_close(logits[batches[0]].double(), copied(start).train()(first), atol=1e-5, rtol=1e-4)
    layers = part.batchnorm_layers(start)
    values = torch.cat([parameter.detach().flatten() for layer in layers for parameter in layer.parameters()])
    step = 1e-5
    slopes = torch.tensor([
        (entropy_at(start, values + move, first) - entropy_at(start, values - move, first)) / (2 * step)
        for move in step * torch.eye(len(values)).double()
    ])  # fmt: skip
    moved, begin = copied(start).train(), 0
    for layer in part.batchnorm_layers(moved):
        for parameter in layer.parameters():
            change = rate * (slopes / (slopes.abs() + 1e-8))[begin : begin + parameter.numel()]
            begin += parameter.numel()
            parameter.data = parameter.data - change.view_as(parameter)
    torch.testing.assert_close(logits[batches[1]].double(), moved(second), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("labels", [torch.arange(120) % 10, torch.arange(120) // 12], ids=["in turn", "sorted"])
def test_a_batch_has_many_classes_in_whatever_order_files_are(labels: Tensor) -> None:
    classes: list[int] = []

    class Noted(nn.Sequential):
        def forward(self, images: Tensor) -> Tensor:
            classes.append(len(images.mean((1, 2, 3)).mul(10).round().unique()))
            outputs: Tensor = super().forward(images).mean((2, 3))
            return outputs

    network = Noted(nn.BatchNorm2d(3))
    images = (labels / 10)[:, None, None, None].expand(-1, 3, 4, 4)
    logits = part.tent_logits(network, images, batch_size=12)
    assert len(classes) == 10
    assert min(classes) > 4
    assert logits.shape == (120, 3)


def test_the_given_model_stays_as_it_is() -> None:
    start = model()
    before = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    part.tent_logits(start, torch.rand(10, 3, 8, 8, generator=seeded(0)), batch_size=5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in start.state_dict().items())
    assert all(parameter.requires_grad for parameter in start.parameters())


def test_ccst_alone_adapts_and_only_if_asked() -> None:
    images = torch.rand(6, 3, 8, 8, generator=seeded(0))
    assert small("ccst").adapted_logits(model(), images) is None
    assert small("ccst", tent=True).adapted_logits(model(), images[:1]) is None
    assert small("ccst", tent=True).adapted_logits(model(), images).shape == (6, 3)
    for name in set(Method.names()) - {"ccst"}:
        assert small(name).adapted_logits(model(), images) is None
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    with refused("^ccst.tent: want a network with BatchNorm"):
        small("ccst", tent=True).check(plain)
    assert federation().classes == 3


@pytest.mark.slow
def test_both_accuracies_are_reported(tmp_path: Path) -> None:
    settings = {"method": "ccst:tent=true,rounds=1", "preset": "quick", "attacks": ["none"]}
    results = run_audit(**settings, out=tmp_path)  # type: ignore[arg-type]
    (run,) = results.runs
    assert run.utility is not None
    adapted = run.utility.adapted_accuracy
    assert adapted is not None
    assert adapted.n == run.utility.target_accuracy.n
    assert "adapted at test time 0." in str(results)
    assert "adapted at test time: target " in (tmp_path / "report.md").read_text()
