"""The questions of a report: what each adversary can learn of each secret from each artifact that crossed the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_tests import AttackTests
from fdgpriv.evaluation.leakage import measured_lead
from fdgpriv.evaluation.row_units import measured_scores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.results.question import Question, Strongest
from fdgpriv.statistics.interval import clopper_pearson
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Absent, Answer, Asked, Evidence, answers

Key = tuple[str, str, str, str, str, str]  # cell, artifact, level, adversary, secret, scope


@dataclass(frozen=True)
class Questions:
    """All questions of a report with their answers.

    Attributes:
        members: By question, the keys of the attacks that ask it, those outside the correction included.
        answers: By question.
    """

    members: Mapping[Key, Sequence[str]]
    answers: Mapping[Key, Answer]
    scores: Mapping[str, AttackScores]
    tests: Mapping[str, AttackTests]

    @classmethod
    def of(cls, scores: Mapping[str, AttackScores], tests: Mapping[str, AttackTests]) -> "Questions":
        """Groups the attacks of a report, by key ``CELL/...``, into questions and answers them as one family."""
        members: dict[Key, list[str]] = {}
        for key, one in scores.items():
            for scope in one.scopes if one.shared else ():
                cell, level = key.partition("/")[0], one.level
                members.setdefault((cell, one.kind, level, one.threat.role, one.secret, scope), []).append(key)
        asked = {question: _asked(question[-1], keys, scores, tests) for question, keys in members.items()}
        return cls(members, answers(asked), scores, tests)

    def marked(self, key: str, scope: str) -> bool:
        """Whether this attack leaks on its own in its question of this scope."""
        return any(
            key in self.answers[question].marked
            for question, keys in self.members.items()
            if key in keys and question[-1] == scope
        )

    def of_cell(self, cell: str, keys: Sequence[str]) -> tuple[Question, ...]:
        """The questions of one run, whose attacks have these keys in this order."""
        place = {key: i for i, key in enumerate(keys)}
        return tuple(self._question(one, place) for one in self.members if one[0] == cell)

    def _question(self, question: Key, place: Mapping[str, int]) -> Question:
        _, artifact, level, adversary, secret, scope = question
        answer, keys = self.answers[question], self.members[question]
        speaker = answer.speaker
        evidence = None if speaker is None else self.tests[speaker].scopes[scope]
        test = evidence.test if isinstance(evidence, Evidence) else None
        return Question.model_validate(
            {
                "artifact": artifact,
                "level": level,
                "adversary": adversary,
                "secret": secret,
                "scope": scope,
                "verdict": answer.verdict,
                "strongest": None if speaker is None else self._strongest(speaker, scope, answer.error),
                "p": answer.p,
                "q": answer.q,
                "p_holm": answer.p_holm,
                "beyond_doubt": answer.beyond_doubt,
                "resolution": test.resolution if test else None,
                "upper_bound": test.upper if test else None,
                "relevant": evidence.relevant if isinstance(evidence, Evidence) else None,
                "inconclusive_because": answer.because,
                "reason": answer.reason,
                "recovered": next((_recovered(self.scores[key]) for key in keys if self.scores[key].exact), None),
                "attacks": tuple(place[key] for key in keys),
            }
        )

    def _strongest(self, key: str, scope: str, error: float) -> Strongest:
        one, evidence = self.scores[key], self.tests[key].scopes[scope]
        assert isinstance(evidence, Evidence)
        test, scores = evidence.test, one.by_size[one.size]
        return Strongest(
            attack=one.attack,
            metric=one.metric,
            value=measured_scores(one, scores.headline["attack"], scores),
            control=test.strongest_control,
            control_value=measured_scores(one, scores.headline[test.strongest_control], scores),
            lead=measured_lead(test, error),
        )


def _asked(
    scope: str, keys: Sequence[str], scores: Mapping[str, AttackScores], tests: Mapping[str, AttackTests]
) -> Asked:
    """The evidence on one question by attack; where there is none, the reason that says most."""
    found = {key: tests[key].scopes[scope] for key in keys if not scores[key].exact}
    evidence = {key: one for key, one in found.items() if isinstance(one, Evidence)}
    absent = [one for one in found.values() if isinstance(one, Absent)]
    if evidence:
        return evidence
    if not absent:
        return Absent("only exact recovery asks this, which recovers artifacts or does not", "not_applicable")
    return next((one for one in absent if one.verdict == "inconclusive"), absent[0])


def _recovered(one: AttackScores) -> Measured | None:
    """The share of artifacts that were recovered exactly."""
    values = one.by_size.get(one.size, Scores()).recovered
    if not values:
        return None
    found = clopper_pearson(int(np.sum(values)), len(values))
    return Measured(value=found.value, ci95=found.ends, n=found.n, direction="higher_leaks")
