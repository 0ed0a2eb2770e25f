"""Copies of networks against `copy.deepcopy`."""

from copy import deepcopy

import torch
from torch import nn

from fdgpriv.models.copied import copied


class Tied(nn.Module):
    """What copies get wrong: shared parameters and modules, lists, frozen tensors, missing and empty modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.again = self.first
        self.normal = nn.BatchNorm1d(4, affine=False)
        self.empty = nn.Sequential()
        self.aside = [self.first, torch.ones(2)]
        self.first.bias.requires_grad_(False)
        self.absent: nn.Module | None
        self.register_module("absent", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.normal(self.second(self.again(x)))
        return found


def test_shared_parts_stay_shared_in_a_copy() -> None:
    model = Tied().eval()
    copy, plain = copied(model), deepcopy(model)
    assert copy.second.weight is copy.first.weight is copy.again.weight
    assert copy.aside[0] is copy.first is copy.again
    assert copy.absent is None
    assert copy.empty is not model.empty
    assert not copy.training
    assert not copy.normal.training
    assert not copy.first.bias.requires_grad
    assert copy.first.weight.requires_grad
    assert copy.state_dict().keys() == plain.state_dict().keys()
    x = torch.randn(8, 4)
    before = model(x)
    torch.testing.assert_close(copy(x), before)
    copy.train()(x).sum().backward()
    with torch.no_grad():
        for tensor in (*copy.parameters(), *copy.buffers(), copy.aside[1]):
            tensor.zero_()
    torch.testing.assert_close(model(x), before)
    assert not model.training
    assert model.first.weight.grad is None
    assert bool((model.aside[1] == 1).all())


def test_hooks_are_copied_as_deepcopy_copies_them() -> None:
    model, seen = nn.Sequential(nn.Linear(2, 2)), []
    handle = model[0].register_forward_hook(lambda *_: seen.append(1))
    copy = copied(model)
    copy(torch.zeros(1, 2))
    assert seen == [1]
    handle.remove()
    copy(torch.zeros(1, 2))
    assert seen == [1, 1]
