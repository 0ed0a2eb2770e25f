"""fdgpriv: privacy auditing of federated domain generalization methods and their defenses."""

from importlib import import_module
from pathlib import Path
from typing import Any

from fdgpriv._version import __version__

__all__ = ["__version__", "record", "run_audit"]

_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "pyproject.toml").is_file():  # source checkout: attacks/, defenses/, methods/ and reports/ are siblings
    __path__.append(str(_ROOT))


_MODULES = {"record": "fdgpriv.federation.recording", "run_audit": "fdgpriv.api"}  # imported when first used


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'fdgpriv' has no attribute {name!r}")
