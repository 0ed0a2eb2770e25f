"""Tests of all hypotheses that a report's scores allow: each attack in each scope, its positive control, several rounds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.statistics.questions import Absent, Evidence
from fdgpriv.statistics.rule import Hypothesis, Test, test

SCOPES = ("client", "domain")
_LEAST_RESAMPLES = 2000


@dataclass(frozen=True)
class AttackTests:
    """The tests of one attack by one adversary on one kind of artifact.

    Attributes:
        scopes: By scope, the evidence, or why there is none.
        positive: Of the positive control, in the main scope.
        rises: By number of images, whether the most rounds exceed one round.
        over_rounds: Whether the most rounds of whole clients beat every control; None where that was not evaluated.
    """

    scopes: Mapping[str, Evidence | Absent]
    positive: Test | None
    rises: Mapping[int | None, Test]
    over_rounds: Evidence | Absent | None


def attack_tests(
    attacks: Mapping[str, AttackScores], seed: int, *, resamples: int | None = None, sharp: bool = True
) -> dict[str, AttackTests]:
    """The tests of every attack of a report, by key.

    Args:
        attacks: Their scores.
        seed: Of the resampling.
        resamples: Number of resamples; 400 times the number of tests by default, at least 2,000.
        sharp: Whether resolutions are computed.
    """
    count = sum(len(one.scopes) for one in attacks.values() if one.shared)
    tester = _Tester(np.random.default_rng(seed), resamples or max(_LEAST_RESAMPLES, 400 * count), sharp)
    return {key: tester.of(one) for key, one in attacks.items()}


@dataclass(frozen=True)
class _Tester:
    rng: np.random.Generator
    resamples: int
    sharp: bool

    def of(self, one: AttackScores) -> AttackTests:
        positive = self._positive(one)
        scopes = {
            scope: self._evidence(one, scope, one.hypothesis(scope, one.by_size.get(one.size)), positive)
            for scope in SCOPES
        }
        most = [(size, scores) for rounds, size, scores in one.by_rounds if rounds == one.most_rounds]
        whole = dict(most).get(None)
        return AttackTests(
            scopes,
            positive,
            {size: test(one.rise(size, scores), self.rng, self.resamples, sharp=False) for size, scores in most},
            None
            if whole is None
            else self._evidence(one, one.main_scope, one.hypothesis(one.main_scope, whole), positive),
        )

    def _positive(self, one: AttackScores) -> Test | None:
        scores = one.positive()
        found = None if scores is None else one.hypothesis(one.main_scope, scores)
        return test(found, self.rng, self.resamples, sharp=False) if isinstance(found, Hypothesis) else None

    def _evidence(
        self, one: AttackScores, scope: str, hypothesis: Hypothesis | Absent, positive: Test | None
    ) -> Evidence | Absent:
        if isinstance(hypothesis, Absent):
            return hypothesis
        budget = f"{one.budget}, {one.auxiliary_images:,} auxiliary images"
        relevant = one.relevant_effect(one.by_size[one.size])
        proof = one.positive()
        return Evidence(
            test(hypothesis, self.rng, self.resamples, sharp=self.sharp),
            relevant,
            positive,
            one.planted.get(scope),
            budget,
            None if proof is None else one.relevant_effect(proof),
        )
