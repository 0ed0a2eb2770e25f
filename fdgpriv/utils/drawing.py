"""matplotlib with its defaults, regardless of the user's matplotlibrc, environment variables and earlier settings.

Import what draws from here, so that matplotlib is imported by this file.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from importlib import import_module
from threading import RLock
from typing import Any
from unittest.mock import patch

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
from matplotlib.figure import Figure as Figure  # noqa: E402
from matplotlib.ticker import MaxNLocator as MaxNLocator  # noqa: E402

_DEFAULTS = {name: value for name, value in dict.items(_matplotlib.rcParamsDefault) if name != "backend"}


@contextmanager
def default_style(changed: Mapping[Any, Any] | None = None) -> Iterator[None]:
    """Within, matplotlib's settings are its own defaults with these changes; for one thread at a time."""
    with _LOCK, _matplotlib.rc_context({**_DEFAULTS, **(changed or {})}):
        yield
