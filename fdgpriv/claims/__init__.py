"""Privacy claims of the papers, decided by the evidence of one run."""

from collections.abc import Sequence
from importlib import import_module

from fdgpriv.claims.hypothesis import Case, Hypothesis, decided
from fdgpriv.results.run import Claim

PAPERS = ("stablefdg", "ccst", "hfedf", "lsi", "pardon")

__all__ = ["PAPERS", "Case", "Hypothesis", "claims", "hypotheses"]


def hypotheses(method: str) -> Sequence[Hypothesis]:
    """Privacy claims of the method's paper as hypotheses; empty if it makes none."""
    if method not in PAPERS:
        return ()
    found: Sequence[Hypothesis] = import_module(f"fdgpriv.claims.{method}").HYPOTHESES
    return found


def claims(method: str, case: Case) -> tuple[Claim, ...]:
    """The ledger of this method's paper: one row for each hypothesis, decided where the evidence decides it."""
    every = hypotheses(method)
    return tuple(one.claim(found) for one, found in zip(every, decided(every, case), strict=True))
