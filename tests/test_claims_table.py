"""The table of claims: as the example prints it of finished runs, and as docs/results/claims.md has it."""

from importlib import util
from pathlib import Path
from typing import Any

import pytest
from _results import results

from fdgpriv.claims import PAPERS, claim_tests

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def example() -> Any:
    """The module examples/claims_table.py."""
    spec = util.spec_from_file_location("claims_table", ROOT / "examples" / "claims_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_is_a_column_and_design_is_named(example: Any, tmp_path: Path) -> None:
    files = []
    for name in ("first", "second"):
        file = tmp_path / name / "results.json"
        file.parent.mkdir()
        results(defenses=("none",)).save(file)
        files.append(str(file))
    heads, _, *rows = example.table(files, reasons=True).splitlines()
    assert heads == "| claim | the paper says | decided by | first | second |"
    for row, (id, word) in zip(rows, [("H-S1", "refuted"), ("H-S4", "?"), ("H-S5", "design")], strict=False):
        assert row.startswith(f"| stablefdg {id} | ")
        assert row.endswith(f" | {word} | {word} |")
    assert "* stablefdg H-S5: a statement of design" in rows


@pytest.mark.parametrize("method", PAPERS)
def test_the_docs_table_has_the_papers_sentences(method: str) -> None:
    page = (ROOT / "docs" / "results" / "claims.md").read_text(encoding="utf-8")
    section = page.partition("# Claims of the papers")[2].partition("\n## ")[0]
    shown = [line.split(" | ")[:3] for line in section.splitlines() if line.startswith(f"| {method} ")]
    assert shown == [[f"| {method} {one.id}", f"“{one.quote}”", one.measurement] for one in claim_tests(method)]
