"""Rules that decide a claim by the verdicts of attacks: leak, no leak that matters, or inconclusive.

A categorical sentence ("is not contained") is refuted by any leak. One of degree ("can hardly be used to reconstruct") is
refuted by a leak of at least the effect that matters, and left undecided by a smaller one.
"""

from collections.abc import Iterable, Sequence

from fdgpriv.claims.claim_test import Case, ClaimRule, ClaimVerdict, Decision
from fdgpriv.claims.findings import (
    by_positive_control,
    finding_text,
    image_verdict,
    rows_of,
    why,
    wire_verdict,
)
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.multiplicity import simes

WITHOUT_LEAKED_IMAGES = ("server", "client", "third_party")  # adversaries, all but the insider


def no_leak_by(
    *attacks: str,
    image: bool = False,
    leak: ClaimVerdict = "refuted",
    on: Sequence[str] = (),
    by: Sequence[str] = (),
    level: str | None = None,
    secret: str | None = None,
    matters: bool = False,
    broad: bool = False,
) -> ClaimRule:
    """Rule for the claim that an artifact leaks nothing: a leak found by one of `attacks` refutes it.

    It is supported only if all of them ran, found no leak, succeeded on their positive control, and each excludes a leak
    that matters. An attack that did not use the artifact excludes none.

    Args:
        attacks: Names of attacks; none for every attack of the audit on these artifacts by these adversaries, except on
            artifacts that are not shared.
        image: Use the results on single-image artifacts, shared or not.
        leak: Verdict if there is a leak; "supported" for a claim that the artifact is informative.
        on: Artifact kinds to include; none for all.
        by: Adversaries to include; none for all.
        level: Of the artifacts to include, image, client or group; None for all.
        secret: The secret that the attacks are asked for; None for all.
        matters: Whether only leaks of at least the effect that matters count.
        broad: Whether the sentence claims more than these attacks test, so that they can refute it but not support it.
    """

    def decide(case: Case) -> Decision:
        rows = [row for row in rows_of(case, attacks, on, by, level, secret) if attacks or row.shared]
        verdicts = [(row, image_verdict(row) if image else wire_verdict(row)) for row in rows]
        p = simes_p(_p(row, image) for row in rows)
        leaking = [row for row, verdict in verdicts if verdict == "leak"]
        relevant = [row for row in leaking if not matters or _matters(row, image)]
        evidence = tuple(finding_text(row, image) for row in leaking)
        if relevant:
            recovered = any(row.recovers for row in relevant)  # a fact, not a test
            reason = "an attack beats every control that lacks the artifact"
            return Decision(leak, reason, evidence, None if recovered else p, leak=True)
        if not verdicts:
            return Decision("undecided", f"not measured: needs {' or '.join(attacks) or 'an attack'} on this artifact")
        if leaking:
            reason = "an attack beats every control that lacks the artifact, but by less than matters"
            return Decision("undecided", f"inconclusive: {reason}", evidence, p)
        if missing := _missing_attacks(case, attacks, on, by):
            return Decision("undecided", f"not measured: needs {' and '.join(missing)} on this artifact, too", p=p)
        unsure = [row for row, verdict in verdicts if verdict != "no_leak_found"]
        if unsure:
            return Decision("undecided", f"inconclusive: {why(unsure[0])}", p=p)
        evidence = tuple(finding_text(row, image) for row in rows)
        if unused := excluding_nothing(rows):
            reason = (
                f"inconclusive: no leak found, but {' and '.join(unused)} found nothing to use, which excludes no leak"
            )
            return Decision("undecided", reason, evidence, p)
        if broad:
            return Decision("undecided", f"no leak found{BROADER}", evidence, p)
        other: ClaimVerdict = "supported" if leak == "refuted" else "refuted"
        reason = "no leak found, by attacks that succeed on their positive control and exclude a leak that matters"
        return Decision(other, reason, evidence, p)

    return decide


BROADER = "; the sentence claims more than these attacks test"
DESIGN = "a statement of design, which no measurement contradicts; what was measured of its consequences"
OF_THE_FIELD = "a statement about the field, not about this method; what was measured of this method"


def measured_by(
    *attacks: str,
    image: bool = False,
    on: Sequence[str] = (),
    needed: str = "this artifact",
    reason: str = DESIGN,
) -> ClaimRule:
    """Rule for a statement of design: the findings of these attacks as evidence.

    Args:
        attacks: Names of attacks.
        image: Use the results on single-image artifacts, shared or not.
        on: Artifact kinds to include; none for all.
        needed: What the run must share.
        reason: Why the statement has no verdict.
    """

    def collect(case: Case) -> Decision:
        rows = rows_of(case, attacks, on)
        if not rows:
            return Decision("undecided", f"not measured: needs {' or '.join(attacks)} on {needed}")
        verdicts = [(row, image_verdict(row) if image else wire_verdict(row)) for row in rows]
        evidence = tuple(f"{finding_text(row, image)} ({verdict.replace('_', ' ')})" for row, verdict in verdicts)
        return Decision("undecided", reason, evidence)

    return collect


def excluding_nothing(rows: Iterable[AttackFinding]) -> list[str]:
    """The attacks without a row that excludes a leak, as every upper bound on the lead is null, or 0 for an unused artifact."""
    excluding = {row.attack for row in rows if row.recovers or (row.main and (row.main.upper_bound or 0) > 0)}
    return sorted({row.attack for row in rows} - excluding)


def _matters(row: AttackFinding, image: bool) -> bool:
    """Whether the lead of a leak is at least the effect that matters; an exact recovery always matters."""
    relevant = next((test.relevant for test in row.leakage.values() if test.relevant is not None), None)
    if row.recovers or relevant is None:
        return True
    if by_positive_control(row, image):
        lead = row.positive_control.lead if row.positive_control else None
    else:
        lead = row.main.lead.value if row.main and row.main.lead else None
    return lead is None or lead >= relevant


def _missing_attacks(case: Case, attacks: Sequence[str], on: Sequence[str], by: Sequence[str]) -> list[str]:
    """The attacks that the audit left out or that failed; inapplicable ones are not missing."""
    listed = {
        row.attack
        for row in case.attacks
        if not row.failed and (not on or row.kind in on) and (not by or row.threat.role in by)
    }
    return [attack for attack in attacks if attack not in listed]


def simes_p(ps: Iterable[float | None]) -> float | None:
    """Simes' p over the tests that have a p; None if none has."""
    present = [p for p in ps if p is not None]
    return simes(present) if present else None


def _p(row: AttackFinding, image: bool) -> float | None:
    """The p of the test behind the verdict on this row; None without a test."""
    if row.recovers:
        return None
    if by_positive_control(row, image):
        return row.positive_control.p if row.positive_control else None
    return row.main.p if row.main else None
