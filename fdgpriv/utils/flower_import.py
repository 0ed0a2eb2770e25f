"""Imports Flower's names from one place, with telemetry and update checks of Flower and Ray off before either is imported."""

import os
from collections.abc import Callable

from fdgpriv.utils import ray_environment as ray_environment
from fdgpriv.utils.extras import optional

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

optional("flwr", "flower", "federations over Flower")

from flwr.app import ConfigRecord as ConfigRecord  # noqa: E402
from flwr.app import Context as Context  # noqa: E402
from flwr.app import Message as Message  # noqa: E402
from flwr.app import RecordDict as RecordDict  # noqa: E402
from flwr.clientapp import ClientApp as ClientApp  # noqa: E402
from flwr.serverapp import Grid as Grid  # noqa: E402
from flwr.serverapp import ServerApp as ServerApp  # noqa: E402


def at_exit(close: Callable[[], None]) -> None:
    """Calls this when Flower ends the process because of a signal, where Flower has a way to say so."""
    try:
        from flwr.supercore.exit import add_exit_handler
    except ImportError:
        return
    try:
        add_exit_handler(close, run_before_force_exit=True)
    except TypeError:  # older versions of Flower
        add_exit_handler(close)
