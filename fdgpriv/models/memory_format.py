"""Channels-last networks, a quarter faster on a CPU, except those whose code needs contiguous tensors."""

from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)

_CONTIGUOUS = "_fdgpriv_contiguous"


def channels_last(model: M) -> M:
    """The network with its weights in channels-last memory format, unless it is marked by `contiguous`."""
    if getattr(model, _CONTIGUOUS, False):
        return model
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def contiguous(model: M) -> M:
    """Marks the network, and its copies, as one that is not converted: `view` after a convolution fails there."""
    setattr(model, _CONTIGUOUS, True)
    return model
