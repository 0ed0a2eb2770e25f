"""The reconstructions of a report: for each verdict on what images look like, which pictures show it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.picture_grid import COLUMNS
from fdgpriv.results.question import Question, worst_first
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import Grade

from ._arms import arms
from ._effects import effect_in_words, pooled_effect
from ._links import Anchors
from ._pictures import NOT_SENT
from ._words import artifact, artifact_of, joined, role, scope, spoken, upper

SECRET = "content"
_TRUTH, _ATTACK = "truth", "attack"


@dataclass(frozen=True)
class Reconstruction:
    """The verdict on one question about images, and the pictures of the attack that it is about.

    Attributes:
        verdict, grade: The worst of both scopes.
        title: The adversary, the artifact, and the method and defense if there are several.
        result: The effect in words, and the scope it holds for.
        attack: The attack that drew the pictures, in words.
        level: What one artifact on the wire is of: image, client or group.
        file: The grid of pictures.
        columns: Names of the columns to show: the truth, the reconstruction and the best control.
        control: That control in words.
        evidence: The anchor of the evidence.
    """

    verdict: str
    grade: Grade | None
    title: str
    result: str
    attack: str
    level: str
    file: str
    columns: tuple[str, ...]
    control: str
    evidence: str

    @property
    def headings(self) -> tuple[str, ...]:
        """A heading for each column."""
        return ("truth", f"by {self.attack}", *([f"without it: {self.control}"] if self.control else ()))

    @property
    def caption(self) -> str:
        """What the pictures show, in one line."""
        pictures = (
            f"{self.title}: truth, reconstruction by {self.attack}, and the best control ({self.control or 'none'})"
        )
        return pictures if self.level == "image" else f"{pictures}; rows of 1 image are {NOT_SENT}"


def reconstructions(runs: Sequence[Run]) -> tuple[Reconstruction, ...]:
    """One for each adversary, artifact, method and defense, of the first seed and target: leaks first, by grade."""
    anchors, all_arms = Anchors(runs), arms(runs)
    entries: list[tuple[Question, Reconstruction]] = []
    for arm in all_arms:
        run = arm.runs[0]
        named = f", {arm.name}" if len(all_arms) > 1 else ""
        entries += [(q, _reconstruction(run, q, attack, named, anchors)) for q, attack in _drawn(run)]
    return tuple(entry for _, entry in sorted(entries, key=lambda pair: worst_first(pair[0])))


def _drawn(run: Run) -> Iterator[tuple[Question, AttackFinding]]:
    """Of each adversary and artifact the worst question about images, with the first attack on it that drew some."""
    asked: dict[tuple[str, str], list[Question]] = {}
    for question in run.questions:
        if question.secret == SECRET and question.verdict != "not_applicable":
            asked.setdefault((question.adversary, artifact_of(question)), []).append(question)
    for questions in asked.values():
        question = min(questions, key=worst_first)
        attacks = [run.attacks[i] for i in question.attacks if run.attacks[i].figures]
        name = question.strongest.attack if question.strongest else ""
        if attacks:
            yield question, min(attacks, key=lambda attack: attack.attack != name)


def _reconstruction(
    run: Run, question: Question, attack: AttackFinding, named: str, anchors: Anchors
) -> Reconstruction:
    control = _best_control(question, attack)
    adversaries = joined([role(name) for name in question.adversaries])
    effect = pooled_effect([(run, question)])
    phrases = (upper(effect_in_words(effect)) if effect else "", scope(question))
    return Reconstruction(
        verdict=question.verdict,
        grade=question.grade,
        title=upper(f"{adversaries} on {artifact(artifact_of(question))}{named}"),
        result=", ".join(phrase for phrase in phrases if phrase),
        attack=spoken(attack.attack),
        level=question.level,
        file=attack.figures[0],
        columns=(_TRUTH, _ATTACK, *([control] if control else ())),
        control=COLUMNS.get(control, control),
        evidence=anchors.question(run, question),
    )


def _best_control(question: Question, attack: AttackFinding) -> str:
    """The column of the control that the attack leads by least, of those that are drawn; empty if none is."""
    test = attack.leakage.get(question.scope)
    drawn = [name for name in (test.against if test else attack.controls) if name in COLUMNS]
    figures = {name: figure for name in drawn if (figure := attack.controls.get(name, {}).get(attack.headline))}
    values = {name: figure.value for name, figure in figures.items() if figure.value is not None}
    lower_leaks = any(figure.direction == "lower_leaks" for figure in figures.values())
    return (min if lower_leaks else max)(values, key=lambda name: values[name], default="")
