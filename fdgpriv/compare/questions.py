"""Changes of the verdicts: each question of two matched runs, and the compared attacks that ask it."""

from collections.abc import Collection

from fdgpriv.compare.attacks import Name, named_attacks
from fdgpriv.results.change import QuestionChange
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run

Key = tuple[str, str, str, str, str]  # artifact, level, adversary, secret, scope


def question_changes(was: Run, now: Run, compared: Collection[Name]) -> tuple[QuestionChange, ...]:
    """The questions of either run, those of the later one first; `compared` are the attacks in both, in order."""
    old, new = ({_key(question): question for question in run.questions} for run in (was, now))
    places = {name: i for i, name in enumerate(compared)}
    names = [name for name, _ in named_attacks(now)]
    return tuple(
        QuestionChange(before=old.get(key), after=new.get(key), attacks=_attacks(new.get(key), names, places))
        for key in {**new, **old}
    )


def _attacks(question: Question | None, names: list[Name], places: dict[Name, int]) -> tuple[int, ...]:
    asked = [names[i] for i in question.attacks] if question else []
    return tuple(places[name] for name in asked if name in places)


def _key(question: Question) -> Key:
    return question.artifact, question.level, question.adversary, question.secret, question.scope
