"""Every dependency declares a lowest version, and what is installed here is not below it."""

import re
from importlib.metadata import version

import pytest
from minimum_versions import minimum_versions


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.match(r"[0-9.]+", text)[0].strip(".").split(".")))  # type: ignore[index]


@pytest.mark.parametrize("package", minimum_versions())
def test_what_is_installed_is_not_below_the_declared_minimum(package: str) -> None:
    assert numbers(version(package)) >= numbers(minimum_versions()[package])


def test_versions_are_compared_as_numbers() -> None:
    assert numbers("14.0.1") < numbers("15") < numbers("15.0.2")
    assert numbers("1.9") < numbers("1.12") < numbers("2.13.0+cpu")
