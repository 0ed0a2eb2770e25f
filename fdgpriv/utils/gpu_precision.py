"""Computes convolutions on a GPU in whole single precision, and the same way each time."""

from contextlib import AbstractContextManager

import torch


def whole_precision() -> AbstractContextManager[None]:
    """Within, convolutions on a GPU are deterministic and do not round their inputs to TF32's 10 bits.

    By default they do, so that artifacts that clients compute there would differ by a thousandth from what an adversary
    computes from the same images on the CPU. Nothing changes on the CPU.
    """
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    return flags
