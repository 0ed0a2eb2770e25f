"""Writes the measured costs of defenses that ship with fdgpriv, from the table in docs/results/defenses.md.

Run `python examples/make_costs.py`.
"""

import csv
import io
from pathlib import Path

from fdgpriv.evaluation.remedies import COSTS
from fdgpriv.utils.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "results" / "defenses.md"
COLUMNS = ("method", "defense", "setting", "seeds", "without", "under", "chance")


def costs(page: str) -> str:
    """The table whose headings are `COLUMNS`, as CSV."""
    lines = iter(page.splitlines())
    heading = f"| {' | '.join(COLUMNS)} |"
    if heading not in lines:
        raise ValueError(f"want a table with the heading {heading}, got none")
    next(lines)  # the rule below the heading
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        if not line.startswith("|"):
            break
        writer.writerow(cell.strip().strip("`") for cell in line.strip("|").split("|"))
    return text.getvalue()


if __name__ == "__main__":
    write_text(COSTS, costs(PAGE.read_text(encoding="utf-8")))
