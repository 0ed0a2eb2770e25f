"""Decides StableFDG's H-S6 from three runs: leakage to a client by the number of styles it receives.

An attack reads one client's style that the adversary received; no attack combines the styles of several clients, which
share no images. Receiving more styles may leak more of each client, and exposes more clients.
"""

from collections.abc import Sequence
from dataclasses import replace

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.claims.by_attack import BROADER, excluding_nothing, simes_p
from fdgpriv.claims.claim_test import Case, Decision
from fdgpriv.claims.findings import difference_text, figure, refused, why, wire_verdict
from fdgpriv.claims.run_comparison import Compared, RunComparison
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.measured import Measured

_OF_FEATURES = Measured(
    value=None, reason="its unit is the features', whose scale differs between trainings", direction="neutral"
)
_RUNS = "--method stablefdg:received=0 stablefdg stablefdg:received=3"


def more_received(case: Case) -> Decision:
    """Refuted if a style leaks in the run with three styles, as three clients are then exposed."""
    received = case.settings.get("received")
    other = case.run_with(received=3 if received == 1 else 1)
    none = case.run_with(received=0)
    if received == 0 and other and case.run_with(received=3):
        return Decision(
            "undecided", "decided by the other two runs; this run passes no styles on and is the negative control"
        )
    if received not in (1, 3) or other is None or none is None:
        return Decision("undecided", f"not measured: needs three runs in one report: {_RUNS}")
    with_three, with_one = (case, other) if received == 3 else (other, case)
    relayed = "; ".join(f"received={n}: {_passed_on(run)}" for n, run in ((0, none), (1, with_one), (3, with_three)))
    pairs = _paired_findings(other, received == 3)
    if not pairs:
        return Decision(
            "undecided", "not measured: needs attacks by a client on the styles that it received", (relayed,)
        )
    return _decided(pairs, (relayed, *map(_comparison_text, pairs)))


def _decided(pairs: Sequence[Compared], evidence: tuple[str, ...]) -> Decision:
    """Decision from findings with three styles received, `mine`, and with one, `theirs`."""
    p = simes_p(row.main.p for pair in pairs for row in (pair.mine, pair.theirs) if row.main and not row.recovers)
    if leaks := [pair for pair in pairs if wire_verdict(pair.mine) == "leak"]:
        leaks_more = any(wire_verdict(pair.theirs) != "leak" or pair.rises for pair in leaks)
        comparison = "more of each than with one" if leaks_more else "as much of each as with one"
        return Decision(
            "refuted",
            f"a client that receives three styles infers secrets of three clients, {comparison}",
            evidence,
            p,
            leak=True,
        )
    if any(wire_verdict(pair.theirs) == "leak" for pair in pairs):
        return Decision(
            "undecided",
            "inconclusive: one style leaks if one is received, but none is found to leak if three are",
            evidence,
            p,
        )
    if unsure := [pair.mine for pair in pairs if wire_verdict(pair.mine) != "no_leak_found"]:
        return Decision("undecided", f"inconclusive: {why(unsure[0])}", evidence, p)
    if any(pair.rises for pair in pairs):
        return Decision(
            "undecided", "inconclusive: no leak found, but the figures rise with the number of styles", evidence, p
        )
    if unused := excluding_nothing(pair.mine for pair in pairs):
        reason = f"inconclusive: no leak found, but {' and '.join(unused)} found nothing to use, which excludes no leak"
        return Decision("undecided", reason, evidence, p)
    reason = f"no leak found from three styles, nor higher figures than from one{BROADER}"
    return Decision("undecided", reason, evidence, p)


def _paired_findings(other: RunComparison, three: bool) -> list[Compared]:
    """Paired findings with three and with one style; `three`: the current run has three, and `other` has one."""
    pairs = [
        pair if three else pair.swapped()
        for pair in other.compared
        if _by_client(pair.mine) and _by_client(pair.theirs)
    ]
    return [replace(pair, difference=_OF_FEATURES) if pair.mine.headline == "max_abs_error" else pair for pair in pairs]


def _comparison_text(pair: Compared) -> str:
    three, single = (
        f"{figure(row.metrics[row.headline])} ({wire_verdict(row).replace('_', ' ')})"
        for row in (pair.mine, pair.theirs)
    )
    return (
        f"{pair.mine.attack} by client, {pair.mine.headline}: three styles {three}, one style {single}; "
        f"three minus one {difference_text(pair.difference)}, one training of each"
    )


def _by_client(row: AttackFinding) -> bool:
    """Whether a client attacks a style it received."""
    key = (row.threat.role, row.kind, row.shared)
    return key == ("client", StyleStatistics.kind, True) and not refused(row)


def _passed_on(run: Case | RunComparison) -> str:
    """Number of styles passed on between clients, and of distinct sender-receiver pairs."""
    passed = [(r.receiver, r.origin) for r in run.records if r.kind == StyleStatistics.kind and r.relayed]
    return f"{len(passed)} styles passed on, {len(set(passed))} sender-receiver pairs" if passed else "none passed on"
