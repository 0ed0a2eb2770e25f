"""Software and hardware of a run."""

import os
import platform
import re
from typing import Any

import torch

from fdgpriv._version import __version__
from fdgpriv.utils.extras import installed_version
from fdgpriv.utils.run_folder import BASIS, Basis

# packages that numbers are computed with
COMPUTING = ("numpy", "scipy", "scikit-learn", "torchvision", "opacus", "torchmetrics", "lpips", "pillow")


def versions(more: tuple[str, ...] = ()) -> dict[str, str]:
    """By name, the versions that results rest on: of fdgpriv, Python, torch, `COMPUTING` and `more` packages."""
    installed = {"fdgpriv": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    installed["torch"] = str(torch.__version__)
    return installed | {package: installed_version(package) for package in (*COMPUTING, *more)}


def environment(device: str, workers: int, basis: Basis) -> dict[str, Any]:
    """Versions, system, cores, `workers`, `device`, and the basis of the results, as results.json has them."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": usable_cores(),
        "workers": workers,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        BASIS: basis,
    }


def usable_cores() -> int:
    """Cores that this process may use: all, or those of ``taskset`` or of a container's CPU set; OMP_NUM_THREADS at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is by level of nesting
    return min(cores, int(asked)) if re.fullmatch("0*[1-9][0-9]{0,8}", asked) else cores
