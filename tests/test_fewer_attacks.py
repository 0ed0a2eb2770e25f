"""With fewer attacks no grade is higher: a question has the highest grade of its significant attacks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_judge import CHANCE, attack_scores, reader, scores

import fdgpriv.selftest
from fdgpriv.results.attack_finding import EXPOSED
from fdgpriv.selftest.stored import read
from fdgpriv.statistics.grades import GRADES
from fdgpriv.statistics.measured import Measured
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import AttackTests, attack_tests
from fdgpriv.verdicts.questions import Questions

Asked = tuple[str, str, str, str, str]


@pytest.fixture(autouse=True)
def uncorrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrections depend on the number of attacks: without them only the choice of the attack remains."""
    monkeypatch.setattr("fdgpriv.statistics.questions.simes", min)
    monkeypatch.setattr("fdgpriv.statistics.questions.holm", list)
    monkeypatch.setattr("fdgpriv.statistics.questions.benjamini_hochberg", list)


def grades(attacks: Mapping[str, AttackScores], tests: Mapping[str, AttackTests]) -> dict[Asked, int]:
    """By question the grade of its leak, from 1 on; 0 for none."""
    questions = Questions.of(attacks, tests).of_cell("run", list(attacks))
    return {
        (q.artifact, q.level, role, q.secret, q.scope): 0 if q.grade is None else 1 + GRADES.index(q.grade)
        for q in questions
        for role in q.adversaries
    }


def assert_no_grade_rises(attacks: Mapping[str, AttackScores]) -> int:
    """Removes each attack in turn, by name; returns the number of leaks with all of them."""
    attacks = {f"run/{key.partition('/')[2]}": attack for key, attack in attacks.items()}
    tests = attack_tests(attacks, 0, resamples=600, sharp=False)
    of_all = grades(attacks, tests)

    for name in {attack.attack for attack in attacks.values()}:
        fewer = {key: attack for key, attack in attacks.items() if attack.attack != name}
        for asked, grade in grades(fewer, tests).items():
            assert grade <= of_all[asked], (name, asked)
    return sum(grade > 0 for grade in of_all.values())


def generated(rng: np.random.Generator) -> dict[str, AttackScores]:
    """Attacks on one secret with other metrics, effects that matter, bests and leads, of which some matter."""
    attacks = {}
    for number in range(int(rng.integers(2, 7))):
        whole = scores(int(rng.integers(1e6)), float(rng.choice([0, 0.1, 0.3, 0.6])), CHANCE, spread=0.2)
        if rng.random() < 0.2:
            exposed = Measured(value=0.3, ci95=(float(rng.uniform(0, 0.2)), 0.4), n=500, direction="higher_leaks")
            whole.aggregates = {"attack": {EXPOSED: exposed}}
        facts: dict[str, Any] = {"scopes": ("client", "domain"), "secret": "membership"}
        facts |= {
            "relevant": float(rng.choice([0.05, 0.2, 0.5])),
            "perfect": (None, 0.5, 1.0, 5.0)[int(rng.integers(4))],
        }
        attack = attack_scores(whole, attack=reader(**facts))
        attacks[f"run/{number}"] = attack.model_copy(update={"attack": f"attack_{number}"})
    return attacks


def test_no_grade_rises_with_fewer_generated_attacks() -> None:
    rng = np.random.default_rng(0)
    assert sum(assert_no_grade_rises(generated(rng)) for _ in range(30)) >= 10


def test_no_grade_rises_with_fewer_stored_attacks() -> None:
    """On the score tables of a default training."""
    (report, *_) = read(Path(fdgpriv.selftest.__file__).parent / "scores.zip")
    assert assert_no_grade_rises(report) >= 3
