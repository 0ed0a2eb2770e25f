"""The one door to torchvision: its PyPI build also imports beside a CPU-only torch. Import it before torchmetrics and lpips.

PyPI's torchvision is linked against CUDA. Beside a CPU build of torch its compiled operators cannot load, and the
import stops because fake kernels are registered for two operators that are not there. Everything used here (models,
transforms) is plain Python, so declaring the two operators is enough; beside an ordinary build nothing is done.
"""

import sys
from typing import Any

import torch


def _load() -> Any:
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error) or "does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import torchvision
    return torchvision


torchvision = _load()
