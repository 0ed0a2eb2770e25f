"""All tests that a report's scores allow: each attack in each scope, its positive control, several rounds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdgpriv.statistics.questions import Absent, Evidence
from fdgpriv.statistics.rule import LeadTest, Test, test
from fdgpriv.verdicts.attack_scores import AttackScores

SCOPES = ("client", "domain")
_MIN_RESAMPLES = 2000


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
    count = sum(len(attack.scopes) for attack in attacks.values() if attack.shared)
    tester = _Tester(np.random.default_rng(seed), resamples or max(_MIN_RESAMPLES, 400 * count), sharp)
    return {key: tester.tests_of(attack) for key, attack in attacks.items()}


def early_evidence(attack: AttackScores, seed: int) -> dict[str, Evidence | Absent]:
    """By scope, the evidence without a planted leak, which tells whether one must be planted.

    It is not the report's: that one resamples 400 times the number of tests of all cells, from one stream over all
    attacks, and neither is known while the cell's evaluator exists, which planting needs. What does not bear on planting
    is left out: resolutions, and several rounds.
    """
    tester = _Tester(np.random.default_rng(seed), _MIN_RESAMPLES, sharp=False)
    return tester.by_scope(attack, tester.positive(attack))


@dataclass(frozen=True)
class _Tester:
    rng: np.random.Generator
    resamples: int
    sharp: bool

    def tests_of(self, attack: AttackScores) -> AttackTests:
        positive = self.positive(attack)
        scopes = self.by_scope(attack, positive)
        on_most_rounds = {size: scores for rounds, size, scores in attack.by_rounds if rounds == attack.most_rounds}
        rises = {
            size: test(attack.rise(size, scores), self.rng, self.resamples, sharp=False)
            for size, scores in on_most_rounds.items()
        }
        if None not in on_most_rounds:
            return AttackTests(scopes, positive, rises, None)
        over_rounds = attack.lead_test(attack.main_scope, on_most_rounds[None])
        return AttackTests(scopes, positive, rises, self._evidence(attack, over_rounds, positive, attack.main_scope))

    def positive(self, attack: AttackScores) -> Test | None:
        scores = attack.positive()
        lead_test = None if scores is None else attack.lead_test(attack.main_scope, scores)
        if not isinstance(lead_test, LeadTest):
            return None
        return test(lead_test, self.rng, self.resamples, sharp=False)

    def by_scope(self, attack: AttackScores, positive: Test | None) -> dict[str, Evidence | Absent]:
        scores = attack.by_size.get(attack.size)
        return {scope: self._evidence(attack, attack.lead_test(scope, scores), positive, scope) for scope in SCOPES}

    def _evidence(
        self, attack: AttackScores, lead_test: LeadTest | Absent, positive: Test | None, scope: str
    ) -> Evidence | Absent:
        if isinstance(lead_test, Absent):
            return lead_test
        positive_scores = attack.positive()
        return Evidence(
            test(lead_test, self.rng, self.resamples, sharp=self.sharp),
            relevant=attack.relevant_effect(attack.by_size[attack.size]),
            positive=positive,
            planted=attack.planted.get(scope),
            budget=f"{attack.budget}, {attack.auxiliary_images:,} auxiliary images",
            relevant_on_positive=None if positive_scores is None else attack.relevant_effect(positive_scores),
        )
