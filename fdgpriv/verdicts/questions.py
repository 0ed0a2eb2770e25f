"""The questions of a report: what each adversary can learn of each secret from each artifact that crossed the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdgpriv.results.question import Question, Strongest
from fdgpriv.statistics.grades import GRADES
from fdgpriv.statistics.interval import clopper_pearson
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.questions import Absent, Answer, Evidence, amount, answers
from fdgpriv.threat import Capability
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import AttackTests
from fdgpriv.verdicts.ceiling import ceiling_sentence
from fdgpriv.verdicts.lead_size import LeadSize, measured_lead
from fdgpriv.verdicts.measured_scores import measured_scores
from fdgpriv.verdicts.trial_scores import TrialScores

QuestionKey = tuple[str, str, str, str, str, str]  # cell, artifact, level, adversary, secret, scope


@dataclass(frozen=True)
class QuestionAttacks:
    """The attacks that ask one question, and their adversaries.

    Attributes:
        also: The adversaries, besides that of the key, whose attacks make the same predictions.
        attacks: The keys of all attacks that ask it, those outside the correction included.
        tested: By attack, the key of the equal attack whose test counts: that of the adversary with the largest p.
    """

    also: tuple[str, ...]
    attacks: tuple[str, ...]
    tested: Mapping[str, str]


@dataclass(frozen=True)
class Questions:
    """All questions of a report with their answers.

    Attributes:
        asked: The attacks that ask each question.
        answers: The answer to each question.
        scores, tests: By attack.
    """

    asked: Mapping[QuestionKey, QuestionAttacks]
    answers: Mapping[QuestionKey, Answer]
    scores: Mapping[str, AttackScores]
    tests: Mapping[str, AttackTests]

    @classmethod
    def of(cls, scores: Mapping[str, AttackScores], tests: Mapping[str, AttackTests]) -> "Questions":
        """Groups the attacks of a report, by key ``CELL/...``, into questions, and corrects all answers together.

        Adversaries whose attacks on one artifact make bit-equal predictions share one question. So do both scopes for an
        adversary that knows the domain: in both it must beat the public answers of the client's domain, and the client scope
        has all controls of the domain scope and another client of the domain, so that its p is the larger one.
        """
        members: dict[QuestionKey, list[str]] = {}
        for key, attack in scores.items():
            for scope in attack.scopes if attack.shared else ():
                cell = key.partition("/")[0]
                question = (cell, attack.kind, attack.level, attack.threat.role, attack.secret, scope)
                members.setdefault(question, []).append(key)
        members = {
            question: keys
            for question, keys in members.items()
            if not _in_client_scope(question, members, scores, tests)
        }
        asked = {
            question: _question_attacks(equal_questions, members, scores, tests)
            for question, equal_questions in _by_equal_predictions(members, scores).items()
        }
        evidence = {
            question: _evidence(question[-1], tuple(dict.fromkeys(attacks.tested.values())), scores, tests)
            for question, attacks in asked.items()
        }
        return cls(asked, answers(evidence), scores, tests)

    def marked(self, key: str, scope: str) -> bool:
        """Whether this attack leaks by itself in its question of this scope."""
        return any(
            asked.tested[key] in self.answers[question].leaking
            for question, asked in self.asked.items()
            if key in asked.tested and question[-1] == scope
        )

    def of_cell(self, cell: str, keys: Sequence[str]) -> tuple[Question, ...]:
        """The questions of one run, whose attacks have these keys in this order."""
        indices = {key: i for i, key in enumerate(keys)}
        return tuple(self._question(question, indices) for question in self.asked if question[0] == cell)

    def _question(self, question: QuestionKey, indices: Mapping[str, int]) -> Question:
        """One question of results.json; `indices` are those of the attacks there, by key."""
        _, artifact, level, adversary, secret, scope = question
        answer, asked = self.answers[question], self.asked[question]
        shown = answer.shown_attack
        evidence = None if shown is None else self._evidence_of(shown, scope)
        test = None if evidence is None else evidence.test
        grading, size = self._grading(answer, scope) if answer.verdict == "leak" else (None, None)
        return Question.model_validate(
            {
                "artifact": artifact,
                "level": level,
                "adversary": adversary,
                "secret": secret,
                "scope": scope,
                "also": asked.also,
                "verdict": answer.verdict,
                "grade": size.grade if size else None,
                "grade_interval": size.interval if size else None,
                "share_of_achievable": (
                    LeadSize.of(self.scores[shown], evidence).share if shown and evidence else None
                ),
                "lead": measured_lead(test, answer.error) if test else None,
                "strongest": None if shown is None else self._strongest(shown, scope),
                "p": answer.p,
                "q": answer.q,
                "p_holm": answer.p_holm,
                "beyond_doubt": answer.beyond_doubt,
                "resolution": test.resolution if test else None,
                "upper_bound": test.upper if test else None,
                "planted": evidence.planted if evidence else None,
                "relevant": evidence.relevant if evidence else None,
                "inconclusive_because": answer.because,
                "reason": self._reason(answer, asked, scope, grading),
                "recovered": next(
                    (_recovered(self.scores[key]) for key in asked.attacks if self.scores[key].exact), None
                ),
                "attacks": tuple(indices[key] for key in asked.attacks),
            }
        )

    def _reason(self, answer: Answer, asked: QuestionAttacks, scope: str, grading: str | None) -> str:
        """The answer's reason, with the attack that it is about, or that the grade is of, if another one is shown.

        Of a leak it says why the attack may fail on its positive control, if it does. For content it also says how much a
        client's mean image can reveal at most.
        """
        shown, about = answer.shown_attack, answer.reason_of
        reason = answer.reason if about in (None, shown) else f"for {self.scores[about].attack}: {answer.reason}"
        failed_control = None
        if answer.verdict == "leak" and shown is not None:
            failed_control = _failed_control(self.scores[shown], self._evidence_of(shown, scope))
        grade_of = None if grading in (None, shown) else f"the grade is that of {self.scores[grading].attack}"
        ceiling = next(filter(None, (ceiling_sentence(self.scores[key]) for key in asked.attacks)), None)
        return "; ".join(filter(None, (reason, failed_control, grade_of, ceiling)))

    def _evidence_of(self, key: str, scope: str) -> Evidence:
        evidence = self.tests[key].scopes[scope]
        assert isinstance(evidence, Evidence)
        return evidence

    def _grading(self, answer: Answer, scope: str) -> tuple[str, LeadSize]:
        """Of a leak, the attack with the highest grade among those that are significant, else the shown one, and its size."""
        assert answer.shown_attack is not None
        keys = [answer.shown_attack, *sorted(answer.significant - {answer.shown_attack})]
        sizes = {key: LeadSize.of(self.scores[key], self._evidence_of(key, scope), answer.error) for key in keys}
        return max(
            sizes.items(), key=lambda item: GRADES.index(item[1].grade)
        )  # of equals the shown attack, which is first

    def _strongest(self, key: str, scope: str) -> Strongest:
        attack, control = self.scores[key], self._evidence_of(key, scope).test.strongest_control
        scores = attack.by_size[attack.size]
        return Strongest(
            attack=attack.attack,
            metric=attack.metric,
            value=measured_scores(attack, "attack", scores),
            control=control,
            control_value=measured_scores(attack, control, scores),
        )


def _in_client_scope(
    question: QuestionKey,
    members: Mapping[QuestionKey, Sequence[str]],
    scores: Mapping[str, AttackScores],
    tests: Mapping[str, AttackTests],
) -> bool:
    """Whether this is the domain scope of a question that the client scope answers for an adversary that knows the domain.

    It does not where an attack has no test in the client scope, for want of another client of the domain.
    """
    if question[-1] != "domain":
        return False
    in_client_scope = members.get((*question[:-1], "client"), ())
    return bool(in_client_scope) and all(
        Capability.KNOWS_DOMAIN in scores[key].threat.capabilities
        and key in in_client_scope
        and (isinstance(tests[key].scopes["client"], Evidence) or not isinstance(tests[key].scopes["domain"], Evidence))
        for key in members[question]
    )


def _by_equal_predictions(
    members: Mapping[QuestionKey, Sequence[str]], scores: Mapping[str, AttackScores]
) -> dict[QuestionKey, tuple[QuestionKey, ...]]:
    """By question, the questions of all adversaries whose attacks make the same predictions, itself included."""
    groups: dict[object, list[QuestionKey]] = {}
    for question, keys in members.items():
        attacks = [scores[key] for key in keys]
        predictions = [(attack.attack, attack.task, attack.budget, attack.fingerprint) for attack in attacks]
        cell, artifact, level, _, secret, scope = question
        are_known = all(attack.fingerprint for attack in attacks)
        group = (cell, artifact, level, secret, scope, tuple(sorted(predictions))) if are_known else question
        groups.setdefault(group, []).append(question)
    return {questions[0]: tuple(questions) for questions in groups.values()}


def _question_attacks(
    questions: Sequence[QuestionKey],
    members: Mapping[QuestionKey, Sequence[str]],
    scores: Mapping[str, AttackScores],
    tests: Mapping[str, AttackTests],
) -> QuestionAttacks:
    """The attacks of questions that differ only in the adversary; of equal attacks the one with the largest p is tested."""
    keys = [key for question in questions for key in members[question]]
    scope = questions[0][-1]
    equal_attacks: dict[object, list[str]] = {}
    for key in keys:
        attack = scores[key]
        group = (attack.attack, attack.task, attack.budget) if len(questions) > 1 else key
        equal_attacks.setdefault(group, []).append(key)

    def p(key: str) -> float:
        evidence = tests[key].scopes[scope]
        return evidence.p if isinstance(evidence, Evidence) and evidence.p is not None else 2.0

    tested = {key: max(group, key=p) for group in equal_attacks.values() for key in group}
    return QuestionAttacks(tuple(question[3] for question in questions[1:]), tuple(keys), tested)


def _evidence(
    scope: str, keys: Sequence[str], scores: Mapping[str, AttackScores], tests: Mapping[str, AttackTests]
) -> Mapping[str, Evidence] | Absent:
    """The evidence on one question by attack; if there is none, a reason, preferably of an inconclusive test."""
    tested = {key: tests[key].scopes[scope] for key in keys if not scores[key].exact}
    absent = [test for test in tested.values() if isinstance(test, Absent)]
    if fact := next((test for test in absent if test.verdict == "sent_in_clear"), None):
        return fact
    evidence = {key: test for key, test in tested.items() if isinstance(test, Evidence)}
    if evidence:
        return evidence
    if not absent:
        return Absent("only exact recovery asks this, which recovers artifacts or does not", "not_applicable")
    return next((test for test in absent if test.verdict == "inconclusive"), absent[0])


def _failed_control(attack: AttackScores, evidence: Evidence) -> str | None:
    """Why an attack that leaks may fail on its positive control; None if it succeeds there, or none was evaluated."""
    positive = evidence.positive
    if positive is None or evidence.works:
        return None
    p = "no p" if positive.p is None else f"p = {positive.p:.2g}"
    figures = f"by {amount(positive.difference)} over {positive.units} units ({p})"
    if evidence.strength >= 1:
        return f"on its positive control it leads {figures}, which is enough, but over too few units"
    if attack.undefended is not None:
        return (
            f"on its positive control, without the defense, it leads {figures} only: the defense may add what it reads"
        )
    beside = [
        f"{attack.rounds_read} rounds" if attack.rounds_read > 1 else "",
        "other clients' artifacts" if attack.clients_read > 1 else "",
        "many images" if attack.level != "image" else "",
    ]
    lacking = ", ".join(filter(None, beside)) or "these clients"
    return (
        f"on its positive control, artifacts of single images, it leads {figures} only: this leak may rest on {lacking}"
    )


def _recovered(attack: AttackScores) -> Measured | None:
    """The share of artifacts that were recovered exactly."""
    recovered = attack.by_size.get(attack.size, TrialScores()).recovered
    if not recovered:
        return None
    share = clopper_pearson(int(np.sum(recovered)), len(recovered))
    return Measured(value=share.value, ci95=share.ends, n=share.n, direction="higher_leaks")
