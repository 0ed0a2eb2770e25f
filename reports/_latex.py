"""LaTeX of texts and tables: every special character escaped, ASCII only, rules of booktabs."""

import re
import unicodedata
from collections.abc import Sequence

from ._tables import Table, TableCell

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    "−": "$-$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "→": r"$\to$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "²": "$^2$",
    "°": r"$^\circ$",
    "\N{NO-BREAK SPACE}": "~",
    "ß": r"\ss{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0308": '"',
    "\u030a": "r",
    "\u0327": "c",
    "\u030c": "v",
}
_VERDICTS = {
    "leak": "leak",
    "sent_in_clear": "in clear",
    "no_leak_found": "none found",
    "inconclusive": "open",
    "not_applicable": "--",
}
_WIDE = 7  # columns from which the smaller type is used
_FIRST = 1.4  # width of the first column in words, in those of the others


def latex(text: str) -> str:
    """The text on one line as LaTeX in ASCII; a character that LaTeX's standard fonts lack becomes its number, [U+4E2D]."""
    text = "".join(map(_character, unicodedata.normalize("NFC", " ".join(text.split()))))
    text = re.sub("-(?=-)", "-{}", text)  # two would become a dash
    return re.sub(r"(?<=[:,=])(?=[^ ])", r"\\allowbreak{}", text)  # within specifications such as gaussian:epsilon=4


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return f"[U+{ord(character):04X}]"


def latex_table(table: Table, caption: str, label: str, detail_lines: int = 0) -> str:
    """A floating table as wide as the text: booktabs, the first column in words, verdicts in one word each.

    Args:
        table: What it says.
        caption: In words.
        label: For \\ref, in letters and hyphens.
        detail_lines: Lines of detail that a leak keeps below its grade; other verdicts have none.
    """
    size = r"\scriptsize" if len(table.headings) >= _WIDE else r"\footnotesize"
    lines = [
        r"\begin{table}[htbp]",
        rf"\caption{{{latex(caption)}}}",
        rf"\label{{tab:{label}}}\vspace{{3pt}}",
        rf"{size}\setlength{{\tabcolsep}}{{3pt}}",
        rf"\begin{{tabularx}}{{\linewidth}}{{{_columns(table)}}}",
        r"\toprule",
        _row([latex(heading) for heading in table.headings]),
        r"\midrule",
        *(_row([_cell(cell, detail_lines) for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabularx}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _columns(table: Table) -> str:
    """Counts to the right; all else ragged in shares of the remaining width, of which the first column has more."""
    kinds = [{row[column].kind for row in table.rows} for column in range(len(table.headings))]
    in_words = [column for column, of_column in enumerate(kinds) if of_column != {"count"}]
    first = _FIRST if len(in_words) > 1 else 1.0
    others = (len(in_words) - first) / max(1, len(in_words) - 1)  # tabularx wants shares that add up to their number
    shares = {column: first if i == 0 else others for i, column in enumerate(in_words)}
    ragged = r">{{\hsize={:.4f}\hsize\raggedright\arraybackslash}}X"
    return "".join(ragged.format(shares[column]) if column in shares else "r" for column in range(len(kinds)))


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: TableCell, detail_lines: int) -> str:
    if cell.kind in _VERDICTS:
        lines = cell.detail.splitlines()[:detail_lines] if cell.kind == "leak" else []
        return _verdict(cell) + _below(lines)
    if cell.kind == "code":
        return rf"\texttt{{{latex(cell.text)}}}"
    return latex(cell.text) + _below(cell.detail.splitlines())


def _below(lines: Sequence[str]) -> str:
    """Smaller text on lines of its own; empty without any."""
    return rf" \newline {{\scriptsize {latex('; '.join(lines))}}}" if lines else ""


def _verdict(cell: TableCell) -> str:
    """One word: the grade of a leak, a severe one in bold, a trace in italics."""
    if cell.kind != "leak":
        return _VERDICTS[cell.kind]
    grade = cell.text.split()[0].lower()
    style = {"severe": r"\textbf", "trace": r"\textit"}.get(grade, "")
    return rf"{style}{{{latex(grade)}}}" if style else latex(grade)
