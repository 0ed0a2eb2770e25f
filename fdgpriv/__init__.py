"""fdgpriv: privacy auditing of federated domain generalization methods and their defenses."""

from pathlib import Path
from typing import Any

from fdgpriv._version import __version__

__all__ = ["__version__", "run_audit"]

_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "pyproject.toml").is_file():  # source checkout: attacks/, defenses/, methods/ and reports/ are siblings
    __path__.append(str(_ROOT))


def __getattr__(name: str) -> Any:
    if name == "run_audit":
        from fdgpriv.api import run_audit

        return run_audit
    raise AttributeError(f"module 'fdgpriv' has no attribute {name!r}")
