"""The matrix artifact x secret, one table for each adversary; methods and defenses side by side, seeds pooled."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import GRADES, words

from ._arms import Arm, arms
from ._effects import bound, effect, of_questions
from ._tables import Cell, Section, Table, text, verdict
from ._words import (
    BECAUSE,
    FOILED,
    LEVELS,
    SECRETS,
    VERDICTS,
    asked_of,
    called,
    joined,
    role,
    role_order,
    scope,
    spoken,
    unique,
    upper,
)

MOST_WORDS = 850  # of the matrix and of the table of defenses; a larger matrix says less in each cell
BARE, LEAKS, ALL = 0, 1, 2  # which cells say more than their verdict


@dataclass(frozen=True)
class Place:
    """A cell of the matrix: who learns what from which artifact."""

    adversary: str
    artifact: str
    secret: str


@dataclass(frozen=True)
class Found:
    """What one arm found for one place.

    Attributes:
        verdict: The worst of both scopes and all runs.
        questions: The questions that have this verdict, those about the client itself first, each with its run.
        calls: In how many runs the place has this verdict, of how many that ask.
        others: What else the scopes say, in words.
        same_for: The other adversaries whose attacks make the same predictions.
    """

    verdict: str
    questions: tuple[tuple[Run, Question], ...]
    calls: tuple[int, int]
    others: str
    same_for: tuple[str, ...] = ()


def places(runs: Sequence[Run]) -> list[Place]:
    """Every cell that any run asks about, by adversary, artifact and secret.

    An artifact of which nothing applies to an adversary is left out, unless nothing applies to anybody.
    """
    asked = [question for run in runs for question in run.questions]
    tested = {(name, asked_of(q)) for q in asked if q.verdict != "not_applicable" for name in q.adversaries}
    every = [Place(name, asked_of(q), q.secret) for q in asked for name in q.adversaries]
    found = list(dict.fromkeys([one for one in every if (one.adversary, one.artifact) in tested] or every))
    roles = role_order([place.adversary for place in found])
    artifacts, secrets = unique([place.artifact for place in found]), list(SECRETS)
    return sorted(found, key=lambda p: (roles.index(p.adversary), artifacts.index(p.artifact), secrets.index(p.secret)))


def find(arm: Arm, place: Place) -> Found | None:
    """The worst answer of this arm; None where it does not ask."""
    asked = [
        (run, q)
        for run in arm.runs
        for q in run.questions
        if (asked_of(q), q.secret) == (place.artifact, place.secret) and place.adversary in q.adversaries
    ]
    if not asked:
        return None
    worst = min((q.verdict for _, q in asked), key=WORST_FIRST.index)
    those = sorted(((run, q) for run, q in asked if q.verdict == worst), key=lambda pair: pair[1].scope)
    rest = [(run, q) for run, q in asked if q.scope not in {one.scope for _, one in those}]
    other = min((q.verdict for _, q in rest), key=WORST_FIRST.index) if rest else None
    said = f"{scope(rest[0][1])}: {VERDICTS[other].lower()}" if other in ("inconclusive", "no_leak_found") else ""
    runs_asking = {id(run) for run, _ in asked}
    same_for = unique(name for _, q in those for name in q.adversaries if name != place.adversary)
    return Found(worst, tuple(those), (len({id(run) for run, _ in those}), len(runs_asking)), said, tuple(same_for))


def matrix(runs: Sequence[Run], most: int = MOST_WORDS) -> tuple[Section, ...]:
    """A table for each adversary: with one arm artifacts by secrets, with several a column for each arm.

    All tables together have at most `most` words, where cells of a verdict alone allow that.
    """
    detail = ALL
    while _words(found := _sections(runs, detail)) > most and detail > BARE:
        detail -= 1
    return (*found, *_shadows(runs))


def _shadows(runs: Sequence[Run]) -> tuple[Section, ...]:
    """How many of the attacked clients are shadow clients, by method where they differ; nothing where none are."""
    told = {}
    for run in runs:
        units = [one.units for one in run.attacks if one.units and one.units.federated is not None]
        shadows = max((one.shadows or 0 for one in units), default=0)
        federated = max((one.federated or 0 for one in units), default=0)
        told[run.method, shadows, federated] = (
            f"up to {shadows} of {federated + shadows} attacked clients" if shadows else "none"
        )
    if set(told.values()) <= {"none"}:
        return ()
    same = len(set(told.values())) == 1
    each = joined(list(told.values())[:1] if same else [f"{method}: {said}" for (method, *_), said in told.items()])
    line = (
        f"Shadow clients: {each}. They did not train; what they would have shared is simulated, from images that no client "
        "holds, so that more clients decide."
    )
    return (Section("", lines=(line,)),)


def _words(sections: Sequence[Section]) -> int:
    rows = [row for section in sections if section.table for row in section.table.rows]
    return sum(len(f"{cell.text} {cell.sub}".split()) for row in rows for cell in row)


def _sections(runs: Sequence[Run], detail: int) -> tuple[Section, ...]:
    every, cells = arms(runs), places(runs)
    sections = []
    for adversary in unique([place.adversary for place in cells]):
        own = [place for place in cells if place.adversary == adversary]
        rows = unique([place.artifact for place in own])
        secrets = [secret for secret in SECRETS if any(place.secret == secret for place in own)]
        if len(every) == 1:
            (arm,) = every
            body = tuple(
                (
                    _artifact(name, runs),
                    *(_cell(arm, find(arm, Place(adversary, name, one)), detail) for one in secrets),
                )
                for name in rows
            )
            table = Table(("What it reads", *(SECRETS[secret] for secret in secrets)), body)
        else:
            body = tuple((_asked(place), *_beside(every, place, detail)) for place in own)
            table = Table(("What it asks", *(arm.name for arm in every)), body)
        sections.append(Section(f"What {role(adversary)} learns", table))
    return tuple(sections)


def told(found: Found) -> str:
    """The effect behind a verdict in words, pooled over the runs that have it; empty where nothing was tested."""
    known = of_questions(found.questions)
    if known is None:
        return ""
    return (found.verdict == "no_leak_found" and bound(known)) or effect(known)


def _cell(arm: Arm, found: Found | None, detail: int, foiled: bool = False) -> Cell:
    if found is None:
        return text("–")
    lines, leaks = [], found.verdict == "leak"
    if detail == ALL or (leaks and detail == LEAKS):
        if found.verdict == "inconclusive":
            lines += [upper(_because(found, foiled)), _about(found) if found.others else ""]
        elif found.verdict != "not_applicable":
            lines += [upper(told(found)), _about(found)]
    elif leaks and found.questions[0][1].scope == "domain":
        lines.append(upper(scope(found.questions[0][1])))
    if (calls := found.calls)[1] > 1 and (calls[0] < calls[1] or (leaks and detail > BARE)):
        lines.append(f"In {calls[0]} of {calls[1]} {_units(arm)}")
    if found.same_for and detail == ALL:
        lines.append(f"Same measurement for {joined([role(name) for name in found.same_for])}")
    recovered = [q.recovered.value for _, q in found.questions if q.recovered and q.recovered.value]
    lines += [f"{max(recovered):.0%} of artifacts recovered exactly"] if recovered else []
    label, ends = _graded(found, detail)
    return verdict(found.verdict, "\n".join(line for line in [ends, *lines] if line), label)


def _graded(found: Found, detail: int) -> tuple[str, str]:
    """The highest grade of a leak's questions in words, "Severe leak", and the grades of its interval where these differ; the
    grade alone in a cell that says nothing more, and nothing where there is no leak.
    """
    graded = [q for _, q in found.questions if q.grade]
    if not graded:
        return "", ""
    highest = max(graded, key=lambda q: GRADES.index(q.grade or "trace"))
    grade, (least, greatest) = upper(highest.grade or ""), highest.grade_interval or ("trace", "trace")
    if detail == BARE:
        return grade, ""
    return f"{grade} leak", "" if least == greatest else f"Interval: {words(least, greatest)}"


def _beside(every: Sequence[Arm], place: Place, detail: int) -> list[Cell]:
    """The arms' cells: they say what a defense keeps from view, or from an attack that finds a leak without it."""
    answers = {(arm.method, arm.defense): find(arm, place) for arm in every}
    asking = {method for (method, _), found in answers.items() if found is not None}
    cells = []
    for arm in every:
        found, bare = answers[arm.method, arm.defense], answers.get((arm.method, "none"))
        kinds = {name for run in arm.runs for row in run.artifacts for name in called(row)}
        if found is None and arm.method in asking and place.artifact not in kinds:
            cells.append(text("Not seen", "by anyone but its client"))
        else:
            cells.append(_cell(arm, found, detail, foiled=bare is not None and bare.verdict == "leak"))
    return cells


def _because(found: Found, foiled: bool) -> str:
    """The commonest reason; an attack that is too weak here alone is foiled by the defense, or by what it did to training."""
    reason, _ = Counter(q.inconclusive_because for _, q in found.questions if q.inconclusive_because).most_common(1)[0]
    return FOILED if foiled and reason == "weak_attack" else BECAUSE[reason]


def _about(found: Found) -> str:
    own = scope(found.questions[0][1])
    if found.verdict != "leak" and len({q.scope for _, q in found.questions}) > 1:
        own = "about the client and its domain"
    return upper("; ".join(said for said in (own, found.others) if said))


def _units(arm: Arm) -> str:
    return "seeds" if len({run.target for run in arm.runs}) == 1 else "runs"


def _asked(place: Place) -> Cell:
    kind, _, level = place.artifact.partition(":")
    of = f", {LEVELS.get(level, spoken(level))}" if level else ""
    return text(SECRETS[place.secret], upper(spoken(kind)) + of)


def _artifact(name: str, runs: Sequence[Run]) -> Cell:
    """The artifact, whose it is, and the fewest images behind one."""
    kind, _, level = name.partition(":")
    behind = [row.samples_behind for run in runs for row in run.artifacts if name in called(row) and row.samples_behind]
    images = f"from {min(behind):,} images" if behind else ""
    return text(upper(spoken(kind)), ", ".join(said for said in (LEVELS.get(level, spoken(level)), images) if said))
