"""Lazy imports of torchvision, torchmetrics and lpips, with a fix for torchvision on CPU builds of torch.

The imports take two seconds, and most audits use few of them. PyPI's torchvision is linked against CUDA: with a CPU build
of torch its compiled operators cannot load, and the import fails because fake kernels are registered for two missing
operators. Only plain Python parts (models, transforms) are used here, so declaring the two operators is enough; with a
matching build nothing is changed.
"""

import sys
from functools import cache
from importlib import import_module
from threading import RLock
from typing import Any

import torch

_LOCK = RLock()


class _LazyModule:
    """A module that is imported on first attribute access, after torchvision."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        with _LOCK:
            load_torchvision()
            import_module("fdgpriv.utils.drawing")  # torchmetrics imports matplotlib, which that file does safely
            module = import_module(self._name)
        return getattr(module, attribute)


@cache
def load_torchvision() -> None:
    """Imports torchvision, with the fix where it is needed."""
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error) or "does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import_module("torchvision")


torchvision: Any = _LazyModule("torchvision")
lpips: Any = _LazyModule("lpips")
torchmetrics: Any = _LazyModule("torchmetrics")
torchmetrics_fid: Any = _LazyModule("torchmetrics.image.fid")
torchmetrics_inception: Any = _LazyModule("torchmetrics.image.inception")
torchmetrics_kid: Any = _LazyModule("torchmetrics.image.kid")
