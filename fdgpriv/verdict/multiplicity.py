"""Many tests in one report: Holm's correction, and every verdict of the family at once (AUDIT.md section 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.verdict.rule import Line, Test, Verdict, decide, test


def holm(p: Sequence[float]) -> list[float]:
    """Corrected p-values in the order given: p_(k)adj = max over j <= k of min(1, (M - j + 1) p_(j)).

    Reference: Holm, Scandinavian Journal of Statistics 1979.
    Example: `holm([.001, .01, .02, .04])` is `[.004, .03, .04, .04]`.
    """
    for value in p:
        if not 0 <= value <= 1:
            raise ValueError(f"want p in [0, 1], got {value}")
    corrected, running = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = running
    return corrected


@dataclass(frozen=True)
class Absent:
    """A line that cannot be asked, with the verdict that stands in its place and the reason in one sentence."""

    reason: str
    verdict: Verdict = "inconclusive"

    def __post_init__(self) -> None:
        if self.verdict not in ("inconclusive", "not_applicable") or not self.reason:
            raise ValueError(f"want inconclusive or not_applicable with a reason, got {self.verdict}, {self.reason!r}")


@dataclass(frozen=True, eq=False)
class Question:
    """A line of the report, the key of its positive control in the same family, and the attack's budget in words."""

    line: Line | Absent
    positive: str | None = None
    budget: str = ""


@dataclass(frozen=True)
class Answer:
    """The verdict on a question, and the test behind it; test and p_corrected are None where no test could be run."""

    verdict: Verdict
    reason: str
    test: Test | None
    p_corrected: float | None


def family(
    questions: Mapping[str, Question], rng: np.random.Generator, resamples: int | None = None
) -> dict[str, Answer]:
    """Answers all questions of a report, corrected by Holm over those that have a p.

    Args:
        questions: Client lines, domain lines and positive controls, fixed before any result is seen.
        resamples: R of the bootstrap; by default 400 M and at least 2,000, M the number of lines.
    """
    lines = {key: q.line for key, q in questions.items() if isinstance(q.line, Line)}
    least = 400 * len(lines)
    if resamples is not None and resamples < least:
        raise ValueError(f"want resamples >= 400 M = {least}, got {resamples}")
    for key, question in questions.items():
        if question.positive is not None and question.positive not in questions:
            raise ValueError(f"want the positive control of {key!r} in the family, got {question.positive!r}")
    count = max(2000, least) if resamples is None else resamples
    tests = {key: test(line, rng, count) for key, line in lines.items()}
    raw = {key: t.p for key, t in tests.items() if t.p is not None}
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    answers = {}
    for key, question in questions.items():
        if isinstance(question.line, Absent):
            answers[key] = Answer(question.line.verdict, question.line.reason, None, None)
            continue
        positive = None if question.positive is None else corrected.get(question.positive)
        verdict, reason = decide(tests[key], corrected.get(key), positive, question.budget)
        answers[key] = Answer(verdict, reason, tests[key], corrected.get(key))
    return answers
