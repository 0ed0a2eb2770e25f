"""Software and hardware of a run."""

import os
import platform
import re
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
    """Cores that this process may use: all, or those of ``taskset`` or of a container's CPU set; OMP_NUM_THREADS at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is by level of nesting
    return min(cores, int(asked)) if re.fullmatch("0*[1-9][0-9]{0,8}", asked) else cores
