"""fdgpriv: what does a federated domain generalization method's sharing give away, to whom, and at what cost?"""

from pathlib import Path

from fdgpriv._version import __version__

__all__ = ["__version__"]

_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "pyproject.toml").is_file():  # a source checkout: attacks/ and the rest lie beside us
    __path__.append(str(_ROOT))
