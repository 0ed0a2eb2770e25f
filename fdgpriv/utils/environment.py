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
        "cores": usable_cores(),
        "workers": workers,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }


def usable_cores() -> int:
    """Cores that this process may run on: all, or those of ``taskset`` or of a container's CPU set."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
