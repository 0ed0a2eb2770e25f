"""Many tests in one report: Holm's correction, and every verdict of the family at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.statistics.rule import Hypothesis, Test, Verdict, decide, test


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
class TestedHypothesis:
    """A line of the report, the key of its positive control in the same family, and the attack's budget in words."""

    line: Hypothesis | Absent
    positive: str | None = None
    budget: str = ""


@dataclass(frozen=True)
class Outcome:
    """The verdict on a question, and the test behind it; test and p_corrected are None where no test could be run."""

    verdict: Verdict
    reason: str
    test: Test | None
    p_corrected: float | None


def family(
    hypotheses: Mapping[str, TestedHypothesis], rng: np.random.Generator, resamples: int | None = None
) -> dict[str, Outcome]:
    """Answers all questions of a report, corrected by Holm over those that have a p.

    Args:
        hypotheses: Client lines, domain lines and positive controls, fixed before any result is seen.
        resamples: R of the bootstrap; by default 400 M and at least 2,000, M the number of lines.
    """
    lines = {key: q.line for key, q in hypotheses.items() if isinstance(q.line, Hypothesis)}
    least = 400 * len(lines)
    if resamples is not None and resamples < least:
        raise ValueError(f"want resamples >= 400 M = {least}, got {resamples}")
    for key, question in hypotheses.items():
        if question.positive is not None and question.positive not in hypotheses:
            raise ValueError(f"want the positive control of {key!r} in the family, got {question.positive!r}")
    count = max(2000, least) if resamples is None else resamples
    tests = {key: test(line, rng, count) for key, line in lines.items()}
    raw = {key: t.p for key, t in tests.items() if t.p is not None}
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    outcomes = {}
    for key, question in hypotheses.items():
        if isinstance(question.line, Absent):
            outcomes[key] = Outcome(question.line.verdict, question.line.reason, None, None)
            continue
        positive = None if question.positive is None else corrected.get(question.positive)
        verdict, reason = decide(tests[key], corrected.get(key), positive, question.budget)
        outcomes[key] = Outcome(verdict, reason, tests[key], corrected.get(key))
    return outcomes
