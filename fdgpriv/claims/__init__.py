"""Privacy claims of the papers, decided by the evidence of one run."""

from collections.abc import Sequence
from importlib import import_module

from fdgpriv.claims.hypothesis import Case, Hypothesis
from fdgpriv.results.finding import Claim

PAPERS = ("stablefdg", "ccst", "hfedf", "lsi", "pardon")

__all__ = ["PAPERS", "Case", "Hypothesis", "claims", "hypotheses"]


def hypotheses(method: str) -> Sequence[Hypothesis]:
    """Privacy claims of the method's paper as hypotheses; empty if it makes none."""
    if method not in PAPERS:
        return ()
    found: Sequence[Hypothesis] = import_module(f"fdgpriv.claims.{method}").HYPOTHESES
    return found


def claims(method: str, case: Case) -> tuple[Claim, ...]:
    """One claim with verdict for each hypothesis of the method's paper; undecided without sufficient evidence."""
    return tuple(hypothesis.claim(case) for hypothesis in hypotheses(method))
