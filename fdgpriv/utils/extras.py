"""Imports packages that are installed by an optional extra of fdgpriv."""

from importlib import import_module
from typing import Any


def optional(package: str, extra: str, use: str) -> Any:
    """The imported package.

    Args:
        package: Its import name.
        extra: The extra in pyproject.toml that installs it.
        use: What needs it, for the error message.

    Raises:
        ValueError: It is not installed; one line with the command that installs it.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # the package is installed, and something that it needs is not
        raise ValueError(
            f"{use}: want the package {package}, got none; to install it: pip install 'fdgpriv[{extra}]'"
        ) from error
