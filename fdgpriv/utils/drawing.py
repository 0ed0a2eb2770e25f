"""matplotlib with its defaults, regardless of the user's matplotlibrc, environment variables and earlier settings.

Import what draws from here, so that matplotlib is imported by this file.
"""

import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any
from unittest.mock import patch

from fdgpriv.utils.files import write_bytes

_LOCK = RLock()
_WITHOUT_USER = {"MATPLOTLIBRC": os.devnull, "MPLBACKEND": "agg"}


def _imported() -> Any:
    """The module matplotlib; where the user's configuration stops its import, imported without that."""
    try:
        return import_module("matplotlib")
    except ImportError:
        raise
    except Exception:  # a matplotlibrc that cannot be read or decoded, an unknown backend
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            del sys.modules[name]
        with chdir(os.path.dirname(__file__)), patch.dict(os.environ, _WITHOUT_USER):  # it reads ./matplotlibrc first
            return import_module("matplotlib")


_matplotlib = _imported()

from matplotlib.axes import Axes as Axes  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG as FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure as _Figure  # noqa: E402
from matplotlib.ticker import MaxNLocator as MaxNLocator  # noqa: E402

_DEFAULTS = {name: value for name, value in dict.items(_matplotlib.rcParamsDefault) if name != "backend"}


@contextmanager
def default_style(changed: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Within, matplotlib's settings are its own defaults with these changes; for one thread at a time."""
    with _LOCK, _matplotlib.rc_context({**_DEFAULTS, **(changed or {})}):
        yield


class Figure(_Figure):
    """A figure of matplotlib that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        return figure_bytes(self, "png")


_WITHOUT_DATE: Mapping[str, Mapping[str, None]] = {
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
    "svg": {"Date": None},
}


def figure_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a file of this format, pdf, png or svg; text stays text, equal figures give equal bytes."""
    content = io.BytesIO()
    with default_style({"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "fdgpriv", "savefig.dpi": 200}):
        figure.savefig(content, format=form, metadata=_WITHOUT_DATE[form])
    return content.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Writes the figure atomically, in the format that the suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, figure_bytes(figure, path.suffix[1:]))
