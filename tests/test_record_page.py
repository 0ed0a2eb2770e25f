"""The page on recordings: its code runs, in order."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "record-your-training.md"


@pytest.mark.slow
def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)
    assert not [line for run in names["results"].runs for line in run.failed_parts()]
    assert "recording on own_images" in capsys.readouterr().out
