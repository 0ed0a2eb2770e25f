"""Software and hardware of a run."""

import os
import platform
from typing import Any

import torch


def environment(device: str, workers: int) -> dict[str, Any]:
    """Versions, system, cores, `workers` and `device`, as results.json has them."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "workers": workers,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
