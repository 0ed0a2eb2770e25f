"""All tests that a report's scores allow: each attack in each scope, its positive control, several rounds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdgpriv.statistics.questions import Absent, Evidence
from fdgpriv.statistics.rule import LeadTest, Test, test
from fdgpriv.verdicts.attack_scores import AttackScores

SCOPES = ("client", "domain")
_MIN_RESAMPLES = 2000
SECRET_WORDS = {"size": "the client's number of images", "labels": "the client's shares of labels"}


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

    The report tests again, with as many resamples as the number of all cells' tests asks for and one stream of random
    numbers for all attacks. Neither is known yet while a cell is evaluated, and planting needs the cell's evaluator.
    Resolutions and tests over several rounds do not decide on planting and are left out.
    """
    tester = _Tester(np.random.default_rng(seed), _MIN_RESAMPLES, sharp=False)
    return tester.by_scope(attack, tester.positive(attack))


@dataclass(frozen=True)
class _Tester:
    """Tests attacks one after the other, with random numbers from one stream."""

    rng: np.random.Generator
    resamples: int
    sharp: bool

    def tests_of(self, attack: AttackScores) -> AttackTests:
        """All tests of one attack."""
        positive = self.positive(attack)
        scopes = self.by_scope(attack, positive)
        on_all_rounds = {size: scores for rounds, size, scores in attack.by_rounds if rounds == attack.max_rounds}
        rises = {
            size: test(attack.rise(size, scores), self.rng, self.resamples, sharp=False)
            for size, scores in on_all_rounds.items()
        }
        if None not in on_all_rounds:
            return AttackTests(scopes, positive, rises, None)
        over_rounds = attack.lead_test(attack.main_scope, on_all_rounds[None])
        return AttackTests(scopes, positive, rises, self._evidence(attack, over_rounds, positive, attack.main_scope))

    def positive(self, attack: AttackScores) -> Test | None:
        """The test of the positive control in the main scope; None if there is none."""
        scores = attack.positive()
        lead_test = None if scores is None else attack.lead_test(attack.main_scope, scores)
        if not isinstance(lead_test, LeadTest):
            return None
        return test(lead_test, self.rng, self.resamples, sharp=False)

    def by_scope(self, attack: AttackScores, positive: Test | None) -> dict[str, Evidence | Absent]:
        """By scope, the evidence on artifacts as they were shared, or why there is none."""
        scores = attack.by_size.get(attack.size)
        if attack.sent_in_clear:
            reason = (
                f"the {attack.kind.replace('_', ' ')} is {SECRET_WORDS.get(attack.secret, attack.secret)}, so there is nothing "
                "to test"
            )
            fact = {attack.main_scope: Absent(reason, "sent_in_clear")}
            return {scope: fact.get(scope, Absent(reason, "not_applicable")) for scope in SCOPES}
        return {scope: self._evidence(attack, attack.lead_test(scope, scores), positive, scope) for scope in SCOPES}

    def _evidence(
        self, attack: AttackScores, lead_test: LeadTest | Absent, positive: Test | None, scope: str
    ) -> Evidence | Absent:
        """The result of this test, with what says how much it could have found; the reason if it cannot be tested."""
        if isinstance(lead_test, Absent):
            return lead_test
        positive_scores = attack.positive()
        return Evidence(
            test(lead_test, self.rng, self.resamples, sharp=self.sharp),
            misfit=attack.by_size[attack.size].misfit,
            relevant=attack.relevant_effect(attack.by_size[attack.size]),
            positive=positive,
            planted=attack.planted.get(scope),
            budget=f"{attack.budget}, {attack.auxiliary_images:,} auxiliary images",
            relevant_on_positive=None if positive_scores is None else attack.relevant_effect(positive_scores),
        )
