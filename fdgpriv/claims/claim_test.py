"""Tests of a paper's claims: the quoted sentence, the rule that decides it, and the correction over all its claims.

A *claim* says something about privacy or cost that measurements can contradict; it is supported, refuted or undecided.
A statement of *design* says how the method works; it is listed with what was measured of its consequences, without a
verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fdgpriv.claims.run_comparison import RunComparison
from fdgpriv.federation.transcript import Record
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.run import Claim
from fdgpriv.statistics.multiplicity import holm
from fdgpriv.utils.failures import Failed, attempt

ClaimVerdict = Literal["supported", "refuted", "undecided"]
FALSE_CLAIMS = 0.05  # family-wise, over the claims of one paper


@dataclass(frozen=True)
class Case:
    """The evidence of one run.

    Attributes:
        attacks: The findings of its attacks.
        records: The artifacts that crossed the wire.
        facts: Further figures by name: measured by the evaluator with full knowledge, or logged in training.
        method: The method's name.
        settings: The method's hyperparameters by name.
        other_runs: The other runs of the report with the same target, seed and defense.
        training_warning: Why the training is not the method as its paper means it, by `Method.training_warning`; None if it is.
    """

    attacks: Sequence[AttackFinding]
    records: Sequence[Record]
    facts: Mapping[str, float]
    method: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    other_runs: Sequence[RunComparison] = ()
    training_warning: str | None = None

    def run_with(self, **changed: object) -> RunComparison | None:
        """The other run of this method whose settings differ in exactly these fields, or None."""
        settings = {**self.settings, **changed}
        return next((run for run in self.other_runs if (run.method, run.settings) == (self.method, settings)), None)


@dataclass(frozen=True)
class Decision:
    """The verdict on a sentence, with its reason and evidence.

    Attributes:
        p: Simes' p over the tests it rests on, not yet corrected over the paper's claims; None without tests.
        leak: Whether it rests on a leak.
        failed: Whether the rule raised an exception, so that nothing is decided.
    """

    verdict: ClaimVerdict
    reason: str
    evidence: tuple[str, ...] = ()
    p: float | None = None
    leak: bool = False
    failed: bool = False

    def undecided(self, reason: str) -> "Decision":
        """The same evidence as undecided, for this reason."""
        return replace(self, verdict="undecided", reason=reason, leak=False)


ClaimRule = Callable[[Case], Decision]


@dataclass(frozen=True)
class ClaimTest:
    """A sentence of the paper with the rule that decides it.

    Attributes:
        id: For example H-S1.
        quote: Verbatim from the paper.
        measurement: What is measured to decide it; for a statement of design, what is measured of its consequences.
        rule: Decides it from the evidence; for a statement of design it only collects evidence.
        kind: A claim, or a statement of design, which has no verdict.
    """

    id: str
    quote: str
    measurement: str
    rule: ClaimRule
    kind: Literal["claim", "design"] = "claim"

    def claim(self, decision: Decision) -> Claim:
        """The entry of results.json."""
        return Claim(
            id=self.id,
            kind=self.kind,
            quote=self.quote,
            measurement=self.measurement,
            evidence=decision.evidence,
            verdict=decision.verdict if self.kind == "claim" else None,
            reason=decision.reason,
            failed=decision.failed,
        )

    def decide(self, case: Case) -> Decision:
        """The decision of the rule; undecided if the rule raises an exception."""
        decision = attempt(lambda: self.rule(case))
        if isinstance(decision, Failed):
            return Decision("undecided", f"failed: {decision.line}", failed=True)
        return decision


def corrected_decisions(tests: Sequence[ClaimTest], case: Case) -> list[Decision]:
    """The decision on each sentence of a paper; one that rests on a leak must pass Holm's correction over its claims."""
    decided = [test.decide(case) for test in tests]
    ps = [
        (i, decision.p)
        for i, (test, decision) in enumerate(zip(tests, decided, strict=True))
        if test.kind == "claim" and decision.p is not None
    ]
    for (i, p), p_holm in zip(ps, holm([p for _, p in ps]), strict=True):
        if decided[i].leak and p_holm > FALSE_CLAIMS:
            reason = f"inconclusive: p = {p:.2g}, {p_holm:.2g} after Holm's correction over the paper's claims"
            decided[i] = replace(decided[i], verdict="undecided", reason=reason)
    return decided


def interval(facts: Mapping[str, float], name: str) -> str:
    """The figure of this name with its interval, if any: 0.62 [0.55, 0.70]."""
    low, high = facts.get(f"{name}_low"), facts.get(f"{name}_high")
    return f"{facts[name]:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


def needs(missing: str) -> ClaimRule:
    """A rule that is always undecided, because `missing` is not available."""
    return lambda case: Decision("undecided", f"not measured: needs {missing}")
