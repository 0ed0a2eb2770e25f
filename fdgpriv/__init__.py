"""fdgpriv: privacy auditing of federated domain generalization methods and their defenses."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv._version import __version__

if TYPE_CHECKING:
    from fdgpriv.api import run_audit
    from fdgpriv.audit_results import AuditResults as Results
    from fdgpriv.federation.recording import record
    from fdgpriv.recorded_audit import audit_recording, check_recording

__all__ = ["Results", "__version__", "audit_recording", "check_recording", "record", "run_audit"]

_LAZY = {  # module and name: importing them imports torch, which takes seconds
    "Results": ("fdgpriv.audit_results", "AuditResults"),
    "audit_recording": ("fdgpriv.recorded_audit", "audit_recording"),
    "check_recording": ("fdgpriv.recorded_audit", "check_recording"),
    "record": ("fdgpriv.federation.recording", "record"),
    "run_audit": ("fdgpriv.api", "run_audit"),
}

_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "pyproject.toml").is_file():  # source checkout: attacks/, defenses/, methods/ and reports/ are siblings
    __path__.append(str(_ROOT))


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'fdgpriv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(
        {*__all__, *(name for name in globals() if name not in ("Any", "Path", "TYPE_CHECKING", "import_module"))}
    )
