"""The house: every part found in a checkout, no forbidden loads, no path of a machine in the files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [p for d in ("fdgpriv", "attacks", "defenses", "methods", "reports") for p in (ROOT / d).rglob("*.py")]


def test_the_console_script_names_its_commands() -> None:
    done = subprocess.run([sys.executable, "-m", "fdgpriv", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == ["fdgpriv: want a command of audit, selftest; got 'nothing'"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_unpickles_or_prints(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"pickle\.loads?\(|allow_pickle=True", text)
    assert all("weights_only=True" in line for line in text.splitlines() if "torch.load(" in line)
    if path.name not in ("audit.py", "selftest.py", "__main__.py"):
        assert not re.search(r"^\s*print\(", text, re.M)


def test_a_part_is_never_imported_by_name() -> None:
    pattern = re.compile(r"(from|import) fdgpriv\.(attacks|defenses|methods|reports)\.")
    assert [p.name for p in SOURCES if pattern.search(p.read_text(encoding="utf-8"))] == []
