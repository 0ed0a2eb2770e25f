"""Claims of the papers about privacy and cost, each decided by the evidence of one run."""

from collections.abc import Sequence
from importlib import import_module

from fdgpriv.claims.claim_test import Case, ClaimTest, corrected_decisions
from fdgpriv.results.run import Claim

PAPERS = ("stablefdg", "ccst", "hfedf", "lsi", "pardon")

__all__ = ["PAPERS", "Case", "ClaimTest", "claim_tests", "claims"]


def claim_tests(method: str) -> Sequence[ClaimTest]:
    """The tests of the claims in the method's paper; empty for methods without any."""
    if method not in PAPERS:
        return ()
    tests: Sequence[ClaimTest] = import_module(f"fdgpriv.claims.{method}").CLAIM_TESTS
    return tests


def claims(method: str, case: Case) -> tuple[Claim, ...]:
    """The claims of the method's paper in results.json, each supported, refuted or undecided by this evidence."""
    tests = claim_tests(method)
    return tuple(test.claim(decision) for test, decision in zip(tests, corrected_decisions(tests, case), strict=True))
