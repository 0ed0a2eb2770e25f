"""Settings of Ray in the environment, which must stand there before it is imported: its usage statistics are off.

Its processes get the priority of this one; by default Ray lowers it, and the training is the work itself.
"""

import os
from tempfile import gettempdir

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # as in future versions; otherwise it warns
    "RAY_worker_niceness": "0",
}

_SOCKET = "/ray/session_2000-01-01_00-00-00_000000_{}/sockets/plasma_store"
_LONGEST = 107  # bytes of a socket's path


def check_temporary_folder(use: str) -> None:
    """Raises ValueError, in one line, if Ray cannot have its sockets in the folder for temporary files.

    Args:
        use: What needs Ray, for the error.
    """
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or gettempdir()
    wanted = f"{use}: want a folder for temporary files (TMPDIR) that Ray can use"
    if not folder.isascii():
        raise ValueError(f"{wanted}, whose name is ASCII; got {folder}; set TMPDIR=/tmp, for example")
    if (most := _LONGEST - len(_SOCKET.format(os.getpid()))) < len(folder):
        raise ValueError(
            f"{wanted}, of at most {most} characters; got {folder}, of {len(folder)}; set TMPDIR=/tmp, for example"
        )
