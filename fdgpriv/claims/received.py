"""StableFDG's H-S6, over three runs: does a client learn more that is sent more of the others' styles?

An attack reads one client's style, as one of those it was sent to; no attack joins the styles of several clients, which
have no images in common. Being sent more may tell more of each client, and tells the same of more clients.
"""

from collections.abc import Sequence
from dataclasses import replace

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.claims.hypothesis import Case, Decision, apart, figure, refused, together, why, wire_line
from fdgpriv.evaluation.comparison import Compared, RunComparison
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.measured import Measured

_OF_FEATURES = Measured(
    value=None, reason="its unit is the features', of another scale in each training", direction="neutral"
)
_RUNS = "--method stablefdg:received=0 stablefdg stablefdg:received=3"


def more_received(case: Case) -> Decision:
    """Refuted where one of three styles leaks, for then three clients' do; supported where none is shown to."""
    mine = case.settings.get("received")
    other = case.but(received=3 if mine == 1 else 1)
    none = case.but(received=0)
    if mine == 0 and other and case.but(received=3):
        return Decision(
            "undecided", "decided by the other two runs: none is sent on here, which is the negative control"
        )
    if mine not in (1, 3) or other is None or none is None:
        return Decision("undecided", f"not measured: needs three runs in one report: {_RUNS}")
    three, one = (case, other) if mine == 3 else (other, case)
    passed = "; ".join(f"received={n}: {_passed_on(run)}" for n, run in ((0, none), (1, one), (3, three)))
    found = _readings(other, mine == 3)
    if not found:
        return Decision(
            "undecided", "not measured: needs attacks by a client on the styles that it was sent", (passed,)
        )
    return _decided(found, (passed, *map(_told, found)))


def _decided(found: Sequence[Compared], evidence: tuple[str, ...]) -> Decision:
    """By what was read of one of three styles, `mine`, and of one alone, `theirs`."""
    p = together(row.main.p for one in found for row in (one.mine, one.theirs) if row.main)
    if leaks := [one for one in found if wire_line(one.mine) == "leak"]:
        more = any(wire_line(one.theirs) != "leak" or one.rises for one in leaks)
        each = "more is shown of each than where one is sent" if more else "as much of each as where one is sent"
        return Decision("refuted", f"whoever is sent three styles reads three clients', {each}", evidence, p, leak=True)
    if any(wire_line(one.theirs) == "leak" for one in found):
        return Decision("undecided", "inconclusive: one style leaks, and one of three is not shown to", evidence, p)
    if unsure := [one.mine for one in found if wire_line(one.mine) != "no_leak_found"]:
        return Decision("undecided", f"inconclusive: {why(unsure[0])}", evidence, p)
    if any(one.rises for one in found):
        return Decision(
            "undecided", "inconclusive: no leak found, but the figures rise with the styles sent", evidence, p
        )
    reason = "no leak found from one of three styles, nor more than from one, by attacks that succeed where they must"
    return Decision("supported", reason, evidence, p)


def _readings(other: RunComparison, three: bool) -> list[Compared]:
    """What clients read of three styles beside one; whether three were sent in the run that `other` is beside."""
    both = [one if three else one.turned() for one in other.compared if _read(one.mine) and _read(one.theirs)]
    return [replace(one, difference=_OF_FEATURES) if one.mine.headline == "max_abs_error" else one for one in both]


def _told(one: Compared) -> str:
    three, single = (
        f"{figure(row.metrics[row.headline])} ({wire_line(row).replace('_', ' ')})" for row in (one.mine, one.theirs)
    )
    return (
        f"{one.mine.attack} by client, {one.mine.headline}: sent three styles {three}, sent one {single}; "
        f"three less one {apart(one.difference)}, one training of each"
    )


def _read(row: AttackFinding) -> bool:
    of = (row.threat.role, row.kind, row.shared)
    return of == ("client", StyleStatistics.kind, True) and not refused(row)


def _passed_on(run: Case | RunComparison) -> str:
    """How many styles crossed from client to client, and in how many pairs of who is sent whose."""
    passed = [(r.receiver, r.origin) for r in run.records if r.kind == StyleStatistics.kind and r.relayed]
    return (
        f"{len(passed)} styles passed on, {len(set(passed))} pairs of who is sent whose" if passed else "none passed on"
    )
