"""Keeps the rows of score tables as compressed JSON lines, where they cannot be written as Parquet."""

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from fdgpriv.utils.files import write_bytes

ROWS = ".jsonl.gz"  # suffix


def rows_file(path: Path) -> Path:
    """The file that stands for the table or archive `path`."""
    return path.with_suffix(ROWS)


def write_rows(path: Path, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> Path | None:
    """Writes rows by table beside the file `path` that they belong into; into the folder for temporary files if that fails.

    A line is ``{"table": NAME, "row": {...}}``; values that JSON lacks are text.

    Returns: the file that was written; None if none could be.
    """
    lines = [
        json.dumps({"table": name, "row": dict(row)}, default=str)
        for name, of_table in rows.items()
        for row in of_table
    ]
    data = gzip.compress("\n".join([*lines, ""]).encode(), mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(rows_file(path), data)
        return rows_file(path)
    except OSError:
        pass
    try:
        handle, name = mkstemp(prefix=f"fdgpriv-{path.stem[:100]}-", suffix=ROWS)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return Path(name)
    except OSError:
        return None


def read_rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows by table in a file that `write_rows` wrote."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        entry = json.loads(line)
        rows.setdefault(entry["table"], []).append(entry["row"])
    return rows
