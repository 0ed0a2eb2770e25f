"""The one sentence that a report opens with, and what to do about each artifact."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Results, Run
from fdgpriv.results.question import Question

from ._matrix import Arm, arms
from ._numbers import percent, pooled
from ._words import LEARNT, WORST_FIRST, artifact, asked_of, defense, joined, role, role_order, unique, upper

_DO = {
    "domain": "Every client's own copy tells its domain where domains differ: if that is secret, share sums (secure "
    "aggregation) or add noise.",
    "labels": "Share it only summed over clients, or with noise; fewer and larger updates tell less.",
    "size": "Share rounded counts, or none.",
    "membership": "Compute it from more images, or add noise with a proved epsilon, before it leaves the client.",
    "content": "Compute it from more images, add noise, or keep it on the client.",
    "identity": "Removing names does not hide senders: share sums, or refresh what makes uploads alike.",
}
_DOMAIN_ONLY = "What leaks is about the client's domain, not shown to be about the client itself."
_OPEN = {
    "weak_attack": "try stronger attacks or a larger preset",
    "too_coarse": "test more clients",
    "not_after_correction": "test more clients",
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
        to = joined([role(one) for one in role_order(q.adversary for _, q in leaks)])
        what = f"tells {to} {_learnt([q for _, q in leaks])}"
        if several:
            what += f" ({joined([arm.name for arm in arms([run for run, _ in leaks])])})"
        lines = unique(_DO[secret] for secret in _DO if secret in {q.secret for _, q in leaks})
        scopes = {q.scope for _, q in leaks if q.secret != "domain"}
        lines += [_DOMAIN_ONLY] if scopes == {"domain"} else []
    elif word == "inconclusive":
        what = "shown neither to leak nor to be safe"
    elif word == "no_leak_found":
        what = "no leak found"
        lines.append("Nothing to do on this evidence, which is no proof: only a proved epsilon is.")
    else:
        what = "not tested"
    return Advice(word, upper(artifact(name)), what, (*lines, *_undecided([q for _, q in asked])))


def _undecided(asked: Sequence[Question]) -> Iterator[str]:
    """How many questions are open, and what would decide most of them."""
    reasons = Counter(_OPEN[q.inconclusive_because] for q in asked if q.inconclusive_because)
    if reasons:
        steps = joined([upper(step) if i == 0 else step for i, (step, _) in enumerate(reasons.most_common())])
        yield f"{steps}: {reasons.total()} of {len(asked)} questions are open."


def _learnt(leaks: Sequence[Question]) -> str:
    """What leaks, in words; of secrets that leak in the domain scope alone that is said where they stand."""
    return joined([LEARNT[secret] for secret in LEARNT if secret in {q.secret for q in leaks}])


@dataclass(frozen=True)
class Score:
    """How the questions of one arm were answered: leak, no leak found, inconclusive, over all its runs."""

    arm: Arm
    leaks: int
    clear: int
    undecided: int
    accuracy: float | None

    @property
    def asked(self) -> int:
        """All questions that could be tested."""
        return self.leaks + self.clear + self.undecided

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
        for run in arm.runs:
            for q in run.questions:
                key = (asked_of(q), q.adversary, q.secret, q.scope, run.target or "")
                worst[key] = min(worst.get(key, q.verdict), q.verdict, key=WORST_FIRST.index)
        count = Counter(worst.values())
        accuracy = pooled([run.utility.target_accuracy if run.utility else None for run in arm.runs])
        figures = count["leak"], count["no_leak_found"], count["inconclusive"]
        found.append(Score(arm, *figures, accuracy.value if accuracy else None))
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
    if not most:
        open_ = sum(one.undecided for one in asked)
        return f"No leak was shown in any of {len(asked)} compared; {open_} of {sum(o.asked for o in asked)} answers stay open."
    if most == least:
        return f"On {results.dataset.name} each of {len(asked)} compared leaks in {most} of its questions."
    return (
        f"On {results.dataset.name}, {_those(asked, most)}; {_those(asked, least)}."
        if least
        else f"On {results.dataset.name}, {_those(asked, most)}; none was shown for {_names(asked, 0)}, which proves nothing."
    )


def _methods(told: Sequence[Score]) -> str:
    return joined(unique(one.arm.method for one in told))


def _names(told: Sequence[Score], leaks: int) -> str:
    names = [one.arm.name for one in told if one.leaks == leaks]
    return joined(names) if len(names) < 4 else f"{len(names)} others"


def _those(told: Sequence[Score], leaks: int) -> str:
    those = [one for one in told if one.leaks == leaks]
    of = f" of {those[0].asked}" if len({one.asked for one in those}) == 1 else ""
    return f"{_names(told, leaks)} {'leaks' if len(those) == 1 else 'leak'} in {leaks}{of} questions"


def _single(one: Score, dataset: str) -> str:
    arm, seeds = one.arm, len({run.seed for run in one.arm.runs})
    who = f"{arm.method} on {dataset}" + ("" if arm.defense == "none" else f" with {defense(arm.defense)}")
    worth = "" if one.accuracy is None else f"; accuracy on the unseen domain is {percent(one.accuracy, 1)}"
    if arm.runs[0].failed is not None and not one.asked:
        return f"Training of {who} failed, so nothing was attacked."
    if not one.asked:
        return f"Nothing was attacked, so this says nothing about what {arm.method} gives away."
    over = f" over {seeds} seeds" if seeds > 1 else ""
    counted = f"of {one.asked} questions about what crossed the wire{over}"
    rest = [f"{n} {word}" for n, word in ((one.clear, "show none"), (one.undecided, "could not be decided")) if n]
    if not one.leaks:
        return f"{who} was not shown to leak, which is no proof of privacy: {counted}, {joined(rest)}{worth}."
    shown = f"{one.leaks} {'show' if one.leaks > 1 else 'shows'} a leak"
    return f"{who} leaks: {counted}, {joined([shown, *rest])}{worth}."
