"""The worst of each attack on what was shared, over the runs of one method and defense."""

from collections.abc import Sequence

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Run

from ._pool import Key, key, strength


def worst(runs: Sequence[Run]) -> list[AttackFinding]:
    """For each attack on what was shared, where it applied, its worst finding over these runs."""
    found: dict[Key, AttackFinding] = {}
    for finding in (a for run in runs for a in run.attacks if a.shared):
        if {finding.verdict, finding.verdict_domain} == {"not_applicable"}:
            continue
        known = found.setdefault(key(finding), finding)
        if _rank(finding) < _rank(known):
            found[key(finding)] = finding
    return list(found.values())


def _rank(finding: AttackFinding) -> tuple[int, float]:
    rank, value, *_ = strength(finding)
    return rank if rank < 2 else 2 if undecided(finding) else 3, value


def undecided(finding: AttackFinding) -> bool:
    """Whether either verdict line is open."""
    return "inconclusive" in (finding.verdict, finding.verdict_domain)


def leaking(finding: AttackFinding) -> bool:
    """Whether either verdict line is a leak."""
    return "leak" in (finding.verdict, finding.verdict_domain)
