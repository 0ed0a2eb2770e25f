"""The printed leaderboard: for each setting, methods by secrets, with grades and target accuracy."""

from collections.abc import Iterator, Sequence

from fdgpriv.results.leaderboard import Leaderboard, LeaderboardRow, Standings, WorstAnswer
from fdgpriv.results.summary import UNINFORMATIVE
from fdgpriv.statistics.measured import Measured

ABSENT, UNSHARED = "not asked", "nothing shared"
_WORDS = {
    "sent_in_clear": "sent in clear",
    "no_leak_found": "no leak found",
    "inconclusive": "open",
    "not_applicable": "not applicable",
}
UNIT = "3.3x: the lead over the best control is 3.3 times the least that matters"


def summary(leaderboard: Leaderboard) -> str:
    """The tables, each below its setting, and the unit of their leads if there are any."""
    lines = [line for standings in leaderboard.standings for line in _lines(standings)]
    rows = (row for standings in leaderboard.standings for row in standings.rows)
    leaks = any(answer.question.grade for row in rows for answer in row.answers.values())
    return "\n".join([*lines, *([UNIT] if leaks else [])])


def _lines(standings: Standings) -> Iterator[str]:
    yield ", ".join(
        value if name in ("dataset", "partition") else f"{name} {value}" for name, value in standings.setting
    )
    rows = [("method", "runs", "target accuracy", *standings.secrets)]
    rows += [_row(row, standings.secrets) for row in standings.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from _not_learned(standings.rows)
    yield from (f"  {note}" for note in standings.notes)


def _not_learned(rows: Sequence[LeaderboardRow]) -> Iterator[str]:
    """Names the rows with models that have not learned, and how many of their runs these are."""
    by_row = {_name(row): [bool(run.run.utility and run.run.utility.not_learned) for run in row.runs] for row in rows}
    names = [f"{name} ({sum(runs)} of {len(runs)})" for name, runs in by_row.items() if any(runs)]
    if names:
        yield f"  NOT LEARNED: {'; '.join(names)}; {UNINFORMATIVE}"


def _name(row: LeaderboardRow) -> str:
    return row.method if row.defense == "none" else f"{row.method}, {row.defense}"


def _row(row: LeaderboardRow, secrets: Sequence[str]) -> tuple[str, ...]:
    accuracy = ", ".join(_share(accuracy.target) for accuracy in row.accuracies) or "not available"
    absent = UNSHARED if row.shares_nothing else ABSENT
    answers = (_answer(row.answers.get(secret), absent) for secret in secrets)
    return _name(row), str(len(row.runs)), accuracy, *answers


def _answer(answer: WorstAnswer | None, absent: str) -> str:
    """Grade, lead in multiples of the relevant effect, and number of runs that agree, as ``severe 3.3x (2 of 3)``.

    Without an answer, `absent`.
    """
    if answer is None:
        return absent
    question = answer.question
    words = question.grade or _WORDS[question.verdict]
    if question.grade and question.lead and question.lead.value is not None and question.relevant:
        words += f" {question.lead.value / question.relevant:.1f}x"
    return words if answer.asking == 1 else f"{words} ({answer.agreeing} of {answer.asking})"


def _share(figure: Measured) -> str:
    if figure.value is None:
        return "not available"
    ends = f" [{figure.ci95[0]:.3f}, {figure.ci95[1]:.3f}]" if figure.ci95 else ""
    return f"{figure.value:.3f}{ends}"
