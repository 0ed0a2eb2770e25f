"""The wheel holds every package that the checkout has."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    own = {f"fdgpriv.{path.parent.name}" for path in ROOT.glob("fdgpriv/*/__init__.py")}
    roles = {f"fdgpriv.{name}" for name in ("attacks", "defenses", "methods", "reports")}
    assert set(listed) == {"fdgpriv"} | own | roles
