"""The one door to torchvision, and to torchmetrics and lpips, which import it: each is imported when it is first used.

They take two seconds to import, and most audits use few of them. PyPI's torchvision is linked against CUDA. Beside a CPU
build of torch its compiled operators cannot load, and the import stops because fake kernels are registered for two
operators that are not there. Everything used here (models, transforms) is plain Python, so declaring the two operators is
enough; beside an ordinary build nothing is done.
"""

import sys
from functools import cache
from importlib import import_module
from threading import RLock
from typing import Any

import torch

_TURN = RLock()


class _Later:
    """A module that is imported when something of it is first asked for, torchvision before it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        with _TURN:
            _load_torchvision()
            module = import_module(self._name)
        return getattr(module, attribute)


@cache
def _load_torchvision() -> None:
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


torchvision: Any = _Later("torchvision")
lpips: Any = _Later("lpips")
torchmetrics: Any = _Later("torchmetrics")
torchmetrics_fid: Any = _Later("torchmetrics.image.fid")
torchmetrics_inception: Any = _Later("torchmetrics.image.inception")
torchmetrics_kid: Any = _Later("torchmetrics.image.kid")
