"""Privacy and cost claims of the papers, decided by the evidence of one run, and statements of design beside them."""

from collections.abc import Sequence
from importlib import import_module

from fdgpriv.claims.hypothesis import Case, Hypothesis, decided
from fdgpriv.results.run import Claim

PAPERS = ("stablefdg", "ccst", "hfedf", "lsi", "pardon")

__all__ = ["PAPERS", "Case", "Hypothesis", "claims", "hypotheses"]


def hypotheses(method: str) -> Sequence[Hypothesis]:
    """The sentences of the method's paper as hypotheses; empty if it makes none."""
    if method not in PAPERS:
        return ()
    sentences: Sequence[Hypothesis] = import_module(f"fdgpriv.claims.{method}").HYPOTHESES
    return sentences


def claims(method: str, case: Case) -> tuple[Claim, ...]:
    """The ledger of this method's paper: one row for each sentence, decided where the evidence decides it."""
    sentences = hypotheses(method)
    decisions = decided(sentences, case)
    return tuple(sentence.claim(decision) for sentence, decision in zip(sentences, decisions, strict=True))
