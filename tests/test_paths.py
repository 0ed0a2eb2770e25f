"""The house: no forbidden loads, no part imported by name, every package in the wheel."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = [p for d in ("fdgpriv", "attacks", "defenses", "methods", "reports") for p in (ROOT / d).rglob("*.py")]


def test_the_console_script_names_its_commands() -> None:
    done = subprocess.run([sys.executable, "-m", "fdgpriv", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "fdgpriv: want a command of audit, compare, leaderboard, verify, selftest; got 'nothing'"
    ]


def test_nothing_unpickles_prints_or_names_a_part() -> None:
    by_name = re.compile(r"(from|import) fdgpriv\.(attacks|defenses|methods|reports)\.")
    unpickles, prints = re.compile(r"pickle\.loads?\(|allow_pickle=True"), re.compile(r"^\s*print\(", re.M)
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not unpickles.search(text), path
        assert all("weights_only=True" in line for line in text.splitlines() if "torch.load(" in line), path
        assert path.name in ("audit.py", "command.py", "__main__.py") or not prints.search(text), path
        assert not by_name.search(text), path


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    own = {".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("fdgpriv/**/__init__.py")}
    roles = {f"fdgpriv.{name}" for name in ("attacks", "defenses", "methods", "reports")}
    assert set(listed) == own | roles


def test_every_file_that_code_reads_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for path in (*ROOT.glob("fdgpriv/**/*"), *ROOT.glob("reports/*")):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            folder = path.parent.relative_to(ROOT).parts
            package = ".".join(folder if folder[0] == "fdgpriv" else ("fdgpriv", *folder))
            assert any(path.match(pattern) for pattern in listed.get(package, ())), path
