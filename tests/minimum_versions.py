"""Prints the lowest versions that pyproject.toml declares, as requirements of pip: ``numpy==1.26``.

Those that need torch come with the argument ``torch``, the others without, so that pip can leave torch as it is. torch and
torchvision are in neither: CI tries the present ones.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TORCH, NEED_TORCH = ("torch", "torchvision"), ("opacus", "torchmetrics", "lpips")
BOUND = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9][0-9.]*)(,<.*)?")


def minimum_versions() -> dict[str, str]:
    """By package, the lowest declared version; ValueError if a dependency declares none."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    bounds = {text: BOUND.fullmatch(text) for text in declared}
    if unbounded := [text for text, match in bounds.items() if match is None]:
        raise ValueError(f"want a lowest version of each dependency, as numpy>=1.26; got {unbounded[0]}")
    return {match[1]: match[2] for match in bounds.values() if match}


if __name__ == "__main__":
    names = NEED_TORCH if sys.argv[1:] == ["torch"] else tuple(minimum_versions().keys() - {*TORCH, *NEED_TORCH})
    sys.stdout.write("".join(f"{name}=={minimum_versions()[name]}\n" for name in sorted(names)))
