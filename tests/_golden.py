"""Compares a text with its file in tests/golden; a failure shows the difference and how to renew the file."""

import difflib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
RENEW = "FDGPRIV_RENEW"


def assert_golden(name: str, text: str) -> None:
    """Fails unless the text is that of the file; with FDGPRIV_RENEW=1 it is written there first."""
    path = FOLDER / name
    if os.environ.get(RENEW):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != known:
        lines = difflib.unified_diff(known.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=1)
        test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
        pytest.fail("\n".join([*lines, f"If that is right: {RENEW}=1 python -m pytest -n 0 {test}"]), pytrace=False)
