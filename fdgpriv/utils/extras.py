"""Imports packages that are installed by an optional extra of fdgpriv."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
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
        raise ValueError(_missing(package, extra, use)) from error


def check_installed(package: str, extra: str, use: str) -> None:
    """Raises the ValueError of `optional` without importing the package."""
    if find_spec(package) is None:
        raise ValueError(_missing(package, extra, use))


def _missing(package: str, extra: str, use: str) -> str:
    return f"{use}: want the package {package}, got none; to install it: pip install 'fdgpriv[{extra}]'"


def installed_version(package: str) -> str:
    """The version of an installed package, which is not imported; "none" if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
