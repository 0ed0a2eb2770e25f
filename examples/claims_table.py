"""Prints the claims of finished runs as a table, one column for each results.json, as docs/results/claims.md has it.

    python examples/claims_table.py out/stablefdg/results.json out/ccst/results.json

A claim has its verdict; a statement of design "design"; `?` is undecided, `–` not in that file. Where a file has several
runs of a method, their verdicts stand in the file's order. With --why, the reasons follow the table.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from fdgpriv.results.finding import Results
from fdgpriv.results.run import Claim

SHOWN = {"undecided": "?", None: "design"}


def claims_of(file: str) -> Iterator[tuple[str, Claim]]:
    """The method's name and the claim, for each claim of each run."""
    for run in Results.load(Path(file)).runs:
        for claim in run.claims:
            yield run.method.partition(":")[0], claim


def table(files: list[str], *, reasons: bool = False) -> str:
    """The table in Markdown, and below it the reasons."""
    columns = [list(claims_of(file)) for file in files]
    sentences = {(method, claim.id): claim for column in columns for method, claim in column}
    heads = ["claim", "the paper says", "decided by", *(Path(file).parent.name for file in files)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for (method, id), claim in sentences.items():
        verdicts = [[told for name, told in column if (name, told.id) == (method, id)] for column in columns]
        cells = [", ".join(SHOWN.get(told.verdict, str(told.verdict)) for told in found) or "–" for found in verdicts]
        lines.append(f"| {' | '.join([f'{method} {id}', f'“{claim.quote}”', claim.measurement, *cells])} |")
    if reasons:
        lines += ["", *(f"* {method} {claim.id}: {claim.reason}" for column in columns for method, claim in column)]
    return "\n".join(lines)


if __name__ == "__main__":
    given = sys.argv[1:]
    print(table([file for file in given if file != "--why"], reasons="--why" in given))
