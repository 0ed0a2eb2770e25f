"""Restarts Python in UTF-8 mode where the locale has another encoding, so that file names are read the same everywhere."""

import os
import sys
from contextlib import suppress


def restart_in_utf8() -> None:
    """Replaces this process by the same command in UTF-8 mode; returns if file names are UTF-8 already, or `-X utf8` is given.

    The encoding of the streams stays that of the locale.
    """
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8") or "utf8" in sys._xoptions:
        return
    environment = {**os.environ, "PYTHONUTF8": "1"}
    if sys.stdout is not None:
        environment.setdefault("PYTHONIOENCODING", f"{sys.stdout.encoding}:backslashreplace")
    with suppress(OSError):
        os.execve(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]], environment)
