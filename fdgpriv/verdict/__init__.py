"""When may a number be called a leak? Numbers in, a verdict with its reason out; no torch (AUDIT.md section 3)."""

from fdgpriv.verdict.interval import Interval, clopper_pearson, leakage, mean_interval
from fdgpriv.verdict.multiplicity import Absent, Answer, Question, family, holm
from fdgpriv.verdict.paired import LEVEL, Comparison
from fdgpriv.verdict.rule import NO_OTHER_CLIENT, Line, Test, Verdict, decide, test

__all__ = [
    "LEVEL",
    "NO_OTHER_CLIENT",
    "Absent",
    "Answer",
    "Comparison",
    "Interval",
    "Line",
    "Question",
    "Test",
    "Verdict",
    "clopper_pearson",
    "decide",
    "family",
    "holm",
    "leakage",
    "mean_interval",
    "test",
]
