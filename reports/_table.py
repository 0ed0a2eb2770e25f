"""A table as every report draws it: headings, and rows of cells that know what they are."""

from dataclasses import dataclass

from ._words import VERDICTS


@dataclass(frozen=True)
class Cell:
    """Text, its kind, and what stands below it, in lines of its own.

    The kind is ``text``, ``number`` (a figure with its interval), ``count`` (right-aligned), ``code``, or a verdict's
    word (drawn as a chip).
    """

    text: str
    kind: str = "text"
    sub: str = ""


@dataclass(frozen=True)
class Table:
    """Headings and rows of equal length; `note` stands above it."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(f"want {len(self.heads)} cells, got {len(row)}")


def text(said: str, sub: str = "") -> Cell:
    """A cell of words."""
    return Cell(said, "text", sub)


def number(said: str, sub: str = "") -> Cell:
    """A cell of figures; words in it ("not available: ...") are set as words."""
    return Cell(said, "text" if said.startswith("not available") else "number", sub)


def count(said: str, sub: str = "") -> Cell:
    """A cell with one number, to be compared down its column."""
    return Cell(said, "count", sub)


def code(said: str) -> Cell:
    """A cell that quotes the program."""
    return Cell(said, "code")


def verdict(word: str, sub: str = "") -> Cell:
    """A verdict as a chip."""
    return Cell(VERDICTS[word], word, sub)
