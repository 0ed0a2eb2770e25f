"""The one sentence that a report opens with, and what to do about each artifact."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Results
from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import GRADES, Grade, counted, highest

from ._arms import Arm, arms
from ._numbers import percent, pooled
from ._words import LEARNT, artifact, asked_of, defense, joined, role, role_order, unique, upper

_IMAGES = "Compute it from more images, or add noise with a proved epsilon, before it leaves the client."
_DO = {
    "domain": "Clients' own copies tell their domain apart, as domains differ: if that is secret, share sums over clients "
    "(secure aggregation) or add noise.",
    "labels": "Share it only summed over clients, or with noise, so that no single client's labels show.",
    "size": "Share rounded counts, or none.",
    "membership": _IMAGES,
    "content": _IMAGES,
    "average_look": _IMAGES,
    "identity": "Removing names does not hide senders: share sums over clients, or add noise.",
}
_MOST_NAMED = 3  # arms in one sentence
_MORE = "test more clients (--clients; of what takes no training, also --units-per-domain)"
_OPEN = {
    "weak_attack": "try stronger attacks or a larger preset",
    "failed": "mend the attack that failed, and continue with --resume",
    "too_coarse": _MORE,
    "not_after_correction": _MORE,
}


@dataclass(frozen=True)
class Advice:
    """What to do about one artifact.

    Attributes:
        word: The worst verdict on it, which colours it.
        name: The artifact.
        what: What is known.
        lines: What to do, one sentence each.
    """

    word: str
    name: str
    what: str
    lines: tuple[str, ...]


def advice(runs: Sequence[Run]) -> tuple[Advice, ...]:
    """One entry for each artifact that any question is about, those that leak first."""
    groups: dict[str, list[tuple[Run, Question]]] = {}
    for run in runs:
        for question in run.questions:
            groups.setdefault(asked_of(question), []).append((run, question))
    several = len(arms(runs)) > 1
    found = [_advice(name, asked, several) for name, asked in groups.items()]
    return tuple(sorted(found, key=lambda one: WORST_FIRST.index(one.word)))


def _advice(name: str, asked: Sequence[tuple[Run, Question]], several: bool) -> Advice:
    word = min((q.verdict for _, q in asked), key=WORST_FIRST.index)
    leaks = [(run, q) for run, q in asked if q.verdict == "leak"]
    lines = []
    if leaks:
        what = f"tells {_learnt([q for _, q in leaks])}"
        if several:
            what += f" ({_where([run for run, _ in leaks], [run for run, _ in asked])})"
        own = {q.secret for _, q in leaks if q.scope == "client"}
        causes = {q.secret if q.secret in own else "domain" for _, q in leaks}  # else it tells of the domain alone
        lines = unique(_DO[secret] for secret in _DO if secret in causes)
    elif word == "inconclusive":
        what = "shown neither to leak nor to be safe"
    elif word == "no_leak_found":
        what = "no leak found"
        lines.append("Nothing to do on this evidence, which is no proof: only a proved epsilon is.")
    else:
        what = "not tested"
    return Advice(word, upper(artifact(name)), what, (*lines, *_undecided([q for _, q in asked])))


def _where(leaking: Sequence[Run], asked: Sequence[Run]) -> str:
    """In which arms it leaks: up to three by name, more by number."""
    every, leaks = arms(asked), {id(run) for run in leaking}
    names = [arm.name for arm in every if any(id(run) in leaks for run in arm.runs)]
    if len(names) <= _MOST_NAMED:
        return joined(names)
    return f"in all {len(every)}" if len(names) == len(every) else f"in {len(names)} of {len(every)}"


def _undecided(asked: Sequence[Question]) -> Iterator[str]:
    """How many questions are open, and what would decide most of them."""
    reasons = Counter(_OPEN[q.inconclusive_because] for q in asked if q.inconclusive_because)
    if n := reasons.total():
        verb, tested = "is" if n == 1 else "are", sum(q.verdict != "not_applicable" for q in asked)
        yield f"{n} of {tested} questions on it {verb} open: {joined([step for step, _ in reasons.most_common()])}."


def _learnt(leaks: Sequence[Question]) -> str:
    """Who learns what."""
    groups: dict[str, list[str]] = {}
    for name in role_order(name for q in leaks for name in q.adversaries):
        secrets = {q.secret for q in leaks if name in q.adversaries}
        groups.setdefault(joined([LEARNT[one] for one in LEARNT if one in secrets]), []).append(role(name))
    return "; ".join(f"{joined(names)} {what}" for what, names in groups.items())


@dataclass(frozen=True)
class Score:
    """How the questions of one arm were answered: leak, no leak found, inconclusive, over all its runs.

    `grades` counts the leaks by grade, the highest first.
    """

    arm: Arm
    leaks: int
    clear: int
    undecided: int
    accuracy: float | None
    grades: tuple[tuple[Grade, int], ...] = ()

    @property
    def leaks_by_grade(self) -> str:
        """How many leaks there are of each grade: ``3 severe, 2 traces``; empty without leaks."""
        return ", ".join(counted(name, n) for name, n in self.grades)

    @property
    def asked(self) -> int:
        """All questions that could be tested."""
        return self.leaks + self.clear + self.undecided

    @property
    def proves(self) -> bool:
        """Whether an epsilon is proved."""
        return any(run.privacy.epsilon_proved is not None for run in self.arm.runs)

    @property
    def word(self) -> str:
        """The verdict that colours the arm; not_attacked where nothing was asked."""
        if self.leaks:
            return "leak"
        return "inconclusive" if self.undecided else "no_leak_found" if self.clear else "not_attacked"


def scores(runs: Sequence[Run]) -> tuple[Score, ...]:
    """One for each arm; a question of several seeds counts by the worst of its answers."""
    found = []
    for arm in arms(runs):
        worst: dict[tuple[str, ...], str] = {}
        graded: dict[tuple[str, ...], Grade] = {}
        for run in arm.runs:
            for q in run.questions:
                key = (asked_of(q), q.adversary, q.secret, q.scope, run.target or "")
                worst[key] = min(worst.get(key, q.verdict), q.verdict, key=WORST_FIRST.index)
                if q.grade:
                    graded[key] = highest((graded.get(key, q.grade), q.grade))
        count, of_grade = Counter(worst.values()), Counter(graded.values())
        grades = tuple((name, of_grade[name]) for name in reversed(GRADES) if of_grade[name])
        accuracy = pooled([run.utility.target_accuracy if run.utility else None for run in arm.runs])
        figures = count["leak"], count["no_leak_found"], count["inconclusive"]
        found.append(Score(arm, *figures, accuracy.value if accuracy else None, grades))
    return tuple(found)


def sentence(results: Results) -> str:
    """The whole report in one sentence."""
    told = scores(results.runs)
    if not told:
        return "No run finished, so there is nothing to judge."
    if len(told) == 1:
        return _single(told[0], results.dataset.name)
    asked = [one for one in told if one.asked]
    if not asked:
        return f"Nothing was attacked, so this says nothing about what {_methods(told)} give away."
    most, least = max(one.leaks for one in asked), min(one.leaks for one in asked)
    where, one_method = f"on {results.dataset.name}", len({one.arm.method for one in told}) == 1
    subject, for_ = (f"{told[0].arm.method} {where}", "under") if one_method else (upper(where), "for")
    if not most:
        counts = f"{sum(one.undecided for one in asked)} of {sum(one.asked for one in asked)}"
        return f"{subject}: no leak was shown {for_} any of {len(asked)} compared; {counts} questions stay open."
    if most == least:
        return f"{subject}: {most} questions are answered with a leak {for_} each of {len(asked)} compared."
    unproved = any(one.leaks == least and not one.proves for one in asked)
    few = f"fewest {for_} {_names(asked, least)}" + (", which proves nothing" if not least and unproved else "")
    return f"{subject}: most questions are answered with a leak {for_} {_names(asked, most)}, {few}."


def _methods(told: Sequence[Score]) -> str:
    return joined(unique(one.arm.method for one in told))


def _names(told: Sequence[Score], leaks: int) -> str:
    names = [f"{one.arm.name} ({leaks} of {one.asked})" for one in told if one.leaks == leaks]
    return joined(names) if len(names) <= _MOST_NAMED else f"{len(names)} of them ({leaks} each)"


def _single(one: Score, dataset: str) -> str:
    arm, seeds = one.arm, len({run.seed for run in one.arm.runs})
    who = f"{arm.method} on {dataset}" + ("" if arm.defense == "none" else f" with {defense(arm.defense)}")
    worth = "" if one.accuracy is None else f"; accuracy on the unseen domain is {percent(one.accuracy, 1)}"
    if arm.runs[0].ended is not None and not one.asked:
        return f"Training of {who} failed, so nothing was attacked."
    if not one.asked:
        return f"Nothing was attacked, so this says nothing about what {arm.method} gives away."
    over = f" ({seeds} seeds, each question by its worst answer)" if seeds > 1 else ""
    verb, clear = ("is", "are")[one.leaks > 1], one.clear or "none"
    graded = f" ({one.leaks_by_grade})" if one.grades else ""
    answers = f"{one.leaks} {verb} answered with a leak{graded}, {clear} with no leak found"
    rest = f"{one.undecided} could not be decided" if one.undecided else "none is undecided"
    start = "leaks" if one.leaks else "was not shown to leak, which is no proof of privacy"
    return f"{who} {start}: of {one.asked} questions about what crossed the wire{over}, {answers}, and {rest}{worth}."
