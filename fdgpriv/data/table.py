"""Reads tables of images in CSV, as published or as spreadsheets and pandas save them again."""

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from fdgpriv.data.unread import Unread

_SEPARATORS = (",", ";", "\t")
# not three decimals of zero: 21.000 may be 21000
_WHOLE = re.compile(r"\s*0*([0-9]{1,9})(?:[.,]0{0,2})?\s*")


def is_table(path: Path) -> bool:
    """Whether this is a file .csv."""
    return path.suffix.lower() == ".csv" and path.is_file()


def find_table(root: Path, unpacked: str, dataset: str) -> Path:
    """metadata.csv of a dataset in its folder, or in the folder `unpacked` in that one.

    Raises:
        FileNotFoundError: There is none.
    """
    folder = root / unpacked if (root / unpacked).is_dir() else root
    if not (table := folder / "metadata.csv").is_file():
        raise FileNotFoundError(f"want metadata.csv of {dataset} in {root} or {root / unpacked}, got no such file")
    return table


def table_rows(table: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The line and the values in these columns of each row that is not empty; a value that is missing is "".

    The columns may be separated by commas, semicolons or tabs, and the text may begin with a byte order mark.

    Raises:
        ValueError: A column is missing, or the text is no CSV in UTF-8.
    """
    with table.open(newline="", encoding="utf-8-sig") as file:
        line = 0
        try:
            separator = _separator(file.readline())
            file.seek(0)
            rows = csv.DictReader(file, delimiter=separator, skipinitialspace=True)
            names = [name.strip() for name in rows.fieldnames or ()]
            if absent := [column for column in columns if column not in names]:
                raise ValueError(f"want the columns {', '.join(columns)} in {table}; missing: {', '.join(absent)}")
            rows.fieldnames = names
            for row in rows:
                line = rows.line_num
                if any(row.values()):
                    yield line, [row[column] or "" for column in columns]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"want UTF-8 in {table}, got other bytes after line {line}: {error.reason}; save it as CSV in UTF-8"
            ) from None
        except csv.Error as error:
            raise ValueError(f"want a readable line {line + 1} of {table}, got: {error}") from None


def whole_number(text: str, what: str) -> int:
    """The number in this text, which may have lost leading zeros and gained decimals of zero.

    Raises:
        ValueError: It is none; the message names `what` it is.
    """
    number = _WHOLE.fullmatch(text)
    if number is None:
        raise ValueError(f"want a whole number for {what}, got {text!r:.60}; unpack the published file again")
    return int(number[1])


class ListedFiles:
    """The files that a table lists, each with its line.

    Args:
        table: The table.
        noun: Of the files, in the plural.
    """

    def __init__(self, table: Path, noun: str) -> None:
        self._table, self._noun = table, noun
        self._lines: dict[Path, int] = {}

    def add(self, path: Path, line: int) -> None:
        """Adds a file; raises ValueError if it is listed twice."""
        if (first := self._lines.setdefault(path, line)) != line:
            raise ValueError(f"want each file once, got {path.name} in lines {first} and {line} of {self._table}")

    def check(self, files: Collection[Path], unread: Unread) -> None:
        """Raises ValueError if files that the table lists are missing; counts those that it does not list.

        Args:
            files: All files where the table's are.
            unread: Counts what is not read.
        """
        present = set(files)
        if missing := [path for path in self._lines if path not in present]:
            first = missing[0]
            folder = self._table.parent
            name = first.relative_to(folder) if first.is_relative_to(folder) else first
            raise ValueError(
                f"want the {self._noun} that {self._table} lists, got no {name} of its line {self._lines[first]}; "
                f"missing: {len(missing):,} of {len(self._lines):,}"
            )
        unread.add(f"{self._noun} that {self._table.name} does not list", present - self._lines.keys())


def check_none_empty(files: Mapping[str, Sequence[object]], what: str, table: Path) -> None:
    """Raises ValueError if a domain has no files."""
    if empty := [name for name, listed in files.items() if not listed]:
        raise ValueError(f"want images of each {what} in {table}, got none of {', '.join(empty)}")


def _separator(header: str) -> str:
    """What separates the columns in the table's first line."""
    return max(_SEPARATORS, key=header.count)
