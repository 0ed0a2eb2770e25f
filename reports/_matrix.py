"""Attacks against methods: one cell for each pair, none blank."""

from collections.abc import Sequence

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Run

from ._table import Cell, Table, text, verdict
from ._words import artifact, defense, joined, role, spoken, unique

_ORDER = ("leak", "inconclusive", "no_leak_found", "not_applicable")  # the first that occurs is the cell's word


def matrix(runs: Sequence[Run]) -> Table | None:
    """A row for each attack, a column for each method under each defense; None where there is one column only.

    A cell has the worst word of all its adversaries, artifacts, lines, targets and seeds, and says whose it is.
    """
    columns: dict[str, list[AttackFinding]] = {}
    several = len({run.defense for run in runs}) > 1
    for run in runs:
        name = f"{run.method}, {defense(run.defense)}" if several else run.method
        columns.setdefault(name, []).extend(run.attacks)
    attacks = unique([finding.attack for findings in columns.values() for finding in findings])
    if len(columns) < 2 or not attacks:
        return None
    body = []
    for attack in attacks:
        row = [_cell([one for one in findings if one.attack == attack]) for findings in columns.values()]
        body.append((text(spoken(attack)), *row))
    return Table(("Attack", *columns), tuple(body))


def _cell(findings: Sequence[AttackFinding]) -> Cell:
    if not findings:
        return text("–", "not asked for")
    word = min((_worst(finding) for finding in findings), key=_ORDER.index)
    if word == "not_applicable":
        return verdict(word, findings[0].reason or "")
    those = [finding for finding in findings if _worst(finding) == word]
    whose = unique([f"{role(one.threat.role)} on {artifact(one)}{_line(one, word)}" for one in those])
    return verdict(word, joined(whose))


def _worst(finding: AttackFinding) -> str:
    return min(finding.verdict, finding.verdict_domain, key=_ORDER.index)


def _line(finding: AttackFinding, word: str) -> str:
    return "" if finding.verdict == word else ", domain only"
