"""The matrix of artifacts by secrets, one table for each adversary; methods and defenses side by side, seeds pooled."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fdgpriv.results.attack_finding import Units
from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.results.tally import NOT_TESTED, Tally
from fdgpriv.statistics.grades import GRADES, words

from ._arms import Arm, arms
from ._bars import LeadBar, pooled_in_effects
from ._effects import bound_in_words, clients_in_words, effect_in_words, pooled_effect
from ._links import Anchors
from ._tables import Section, Table, TableCell, text_cell, verdict_cell
from ._words import (
    BECAUSE,
    FOILED,
    LEVELS,
    SECRETS,
    VERDICTS,
    artifact_of,
    attacked_names,
    joined,
    role,
    role_order,
    scope,
    spoken,
    unique,
    upper,
)

MAX_WORDS = 850  # of the matrix and the table of defenses; above it the cells of the matrix say less
BARE, LEAKS, ALL = 0, 1, 2  # which cells say more than their verdict


@dataclass(frozen=True)
class MatrixQuestion:
    """A cell of the matrix: which adversary learns which secret from which artifact, in either scope."""

    adversary: str
    artifact: str
    secret: str


@dataclass(frozen=True)
class MatrixAnswer:
    """The answer of one arm to one question of the matrix.

    Attributes:
        verdict: The worst verdict of both scopes and all runs.
        questions: The questions that have this verdict, those about the client itself first, each with its run.
        calls: The number of runs with this verdict, and of runs that ask.
        other_scope: The verdict of the other scope in words; empty if it adds nothing.
        same_for: Other adversaries whose attacks make the same predictions.
    """

    verdict: str
    questions: tuple[tuple[Run, Question], ...]
    calls: tuple[int, int]
    other_scope: str
    same_for: tuple[str, ...] = ()

    @property
    def worst(self) -> tuple[Run, Question]:
        """The first question with the highest grade, and its run."""
        return max(self.questions, key=lambda pair: GRADES.index(pair[1].grade) if pair[1].grade else -1)


def matrix_questions(runs: Sequence[Run]) -> list[MatrixQuestion]:
    """Every cell that a run asks about, by adversary, artifact and secret.

    An artifact on which nothing applies to an adversary is omitted, unless nothing applies at all.
    """
    asked = [question for run in runs for question in run.questions]
    tested = {(name, artifact_of(q)) for q in asked if q.verdict != "not_applicable" for name in q.adversaries}
    cells = [MatrixQuestion(name, artifact_of(q), q.secret) for q in asked for name in q.adversaries]
    cells = list(dict.fromkeys([cell for cell in cells if (cell.adversary, cell.artifact) in tested] or cells))
    roles = role_order([cell.adversary for cell in cells])
    artifacts, secrets = unique([cell.artifact for cell in cells]), list(SECRETS)
    return sorted(cells, key=lambda c: (roles.index(c.adversary), artifacts.index(c.artifact), secrets.index(c.secret)))


def matrix_answer(arm: Arm, cell: MatrixQuestion) -> MatrixAnswer | None:
    """The worst answer of this arm; None if no run of it asks."""
    asked = [
        (run, q)
        for run in arm.runs
        for q in run.questions
        if (artifact_of(q), q.secret) == (cell.artifact, cell.secret) and cell.adversary in q.adversaries
    ]
    if not asked:
        return None
    verdict = min((q.verdict for _, q in asked), key=WORST_FIRST.index)
    worst = sorted(((run, q) for run, q in asked if q.verdict == verdict), key=lambda pair: pair[1].scope)
    worst_scopes = {q.scope for _, q in worst}
    rest = [q for _, q in asked if q.scope not in worst_scopes]
    other = min((q.verdict for q in rest), key=WORST_FIRST.index) if rest else None
    return MatrixAnswer(
        verdict=verdict,
        questions=tuple(worst),
        calls=(len({id(run) for run, _ in worst}), len({id(run) for run, _ in asked})),
        other_scope=f"{scope(rest[0])}: {VERDICTS[other].lower()}"
        if other in ("inconclusive", "no_leak_found")
        else "",
        same_for=tuple(unique(name for _, q in worst for name in q.adversaries if name != cell.adversary)),
    )


def matrix(runs: Sequence[Run], max_words: int = MAX_WORDS) -> tuple[Section, ...]:
    """A table for each adversary: artifacts by secrets for a single arm, else a column for each arm.

    Cells say less until all tables together have at most `max_words` words, or only verdicts are left.
    """
    detail = ALL
    while _word_count(sections := _sections(runs, detail)) > max_words and detail > BARE:
        detail -= 1
    return (*sections, *_notes(runs))


def _notes(runs: Sequence[Run]) -> tuple[Section, ...]:
    """How questions are counted, the unit of the leads, and how many of the attacked clients are simulated."""
    all_arms = arms(runs)
    if not any(Tally.over(arm.runs).asked for arm in all_arms):
        return ()
    counted = (
        f"Counted once each: {Tally.over(all_arms[0].runs).in_words}. A cell has the worst answer about the client itself "
        "and about its domain, which are two questions; one question may stand under several adversaries."
    )
    lines = [*([counted] if len(all_arms) == 1 else []), LeadBar.unit, *_simulated_clients(runs)]
    return (Section("", lines=tuple(lines)),)


def _simulated_clients(runs: Sequence[Run]) -> list[str]:
    """The number of simulated clients among the attacked ones, by method if it differs; empty if there are none."""
    phrases: dict[str, list[str]] = {}
    for run in runs:
        units = [attack.units for attack in run.attacks if attack.units and attack.units.federated is not None]
        if not units:  # a failed run attacks nobody
            continue
        federated = max(unit.federated or 0 for unit in units)
        shadows = max(unit.shadows or 0 for unit in units)
        most = Units(kind="client", n=federated + shadows, federated=federated, shadows=shadows)
        phrases.setdefault(clients_in_words(most) if shadows else "none", []).append(run.method)
    if set(phrases) <= {"none"}:
        return []
    several = len(phrases) > 1
    by_method = [f"{joined(unique(methods))}: {phrase}" if several else phrase for phrase, methods in phrases.items()]
    return [
        f"Clients that an answer rests on, at most: {'; '.join(by_method)}. A simulated client did not train: what it would "
        "have shared is computed from images that no client holds."
    ]


def _word_count(sections: Sequence[Section]) -> int:
    return sum(section.table.word_count() for section in sections if section.table)


def _sections(runs: Sequence[Run], detail: int) -> tuple[Section, ...]:
    all_arms, cells = arms(runs), matrix_questions(runs)
    sections = []
    for adversary in unique([cell.adversary for cell in cells]):
        of_adversary = [cell for cell in cells if cell.adversary == adversary]
        if len(all_arms) == 1:
            table = _artifacts_by_secrets(runs, all_arms[0], of_adversary, detail)
        else:
            anchors = Anchors(runs)
            rows = tuple((_question_cell(cell), *_arm_cells(all_arms, cell, detail, anchors)) for cell in of_adversary)
            table = Table(("What it asks", *(arm.name for arm in all_arms)), rows)
        sections.append(Section(f"What {role(adversary)} learns", table))
    return tuple(sections)


def _artifacts_by_secrets(runs: Sequence[Run], arm: Arm, cells: Sequence[MatrixQuestion], detail: int) -> Table:
    """The table of one adversary for a single arm."""
    adversary, anchors = cells[0].adversary, Anchors(runs)
    secrets = [secret for secret in SECRETS if any(cell.secret == secret for cell in cells)]
    rows = []
    for artifact in unique([cell.artifact for cell in cells]):
        asked = [MatrixQuestion(adversary, artifact, secret) for secret in secrets]
        answers = (_answer_cell(arm, cell, matrix_answer(arm, cell), detail, anchors) for cell in asked)
        rows.append((_artifact_cell(artifact, runs), *answers))
    return Table(("What it reads", *(SECRETS[secret] for secret in secrets)), tuple(rows))


def effect_behind(answer: MatrixAnswer) -> str:
    """The effect behind a verdict in words, pooled over the runs that have it; empty if nothing was tested."""
    effect = pooled_effect(answer.questions)
    if effect is None:
        return ""
    return (answer.verdict == "no_leak_found" and bound_in_words(effect)) or effect_in_words(effect)


def _answer_cell(
    arm: Arm, cell: MatrixQuestion, answer: MatrixAnswer | None, detail: int, anchors: Anchors, foiled: bool = False
) -> TableCell:
    """The verdict and its lead, and as much of its effect, scope, runs and adversaries as `detail` allows."""
    if answer is None:
        return text_cell("–")
    lines, leaks = [], answer.verdict == "leak"
    if detail == ALL or (leaks and detail == LEAKS):
        if answer.verdict == "inconclusive":
            lines += [upper(_reason(answer, foiled)), _scopes(answer) if answer.other_scope else ""]
        elif answer.verdict == "sent_in_clear":
            lines.append("Not tested: it is the secret itself")
        elif answer.verdict != "not_applicable":
            lines += [upper(effect_behind(answer)), _scopes(answer)]
    elif leaks and answer.questions[0][1].scope == "domain":
        lines.append(upper(scope(answer.questions[0][1])))
    calls, asking = answer.calls
    if asking > 1 and (calls < asking or (leaks and detail > BARE)):
        lines.append(f"In {calls} of {asking} {_seeds_or_runs(arm)}")
    if answer.same_for and detail == ALL:
        lines.append(f"Same measurement for {joined([role(name) for name in answer.same_for])}")
    recovered = [q.recovered.value for _, q in answer.questions if q.recovered and q.recovered.value]
    lines += [f"{max(recovered):.0%} of artifacts recovered exactly"] if recovered else []
    run, worst = answer.worst
    if worst.grade_interval and detail > BARE and len(set(worst.grade_interval)) > 1:
        lines.insert(0, f"Interval: {words(*worst.grade_interval)}")
    return replace(
        verdict_cell(answer.verdict, "\n".join(line for line in lines if line), worst.grade, _lead_bar(answer, detail)),
        anchor=anchors.cell(run, cell.adversary, cell.artifact, cell.secret),
        link=anchors.question(run, worst),
    )


def _lead_bar(answer: MatrixAnswer, detail: int) -> LeadBar | None:
    """The lead over the runs, of the scope that the cell shows first; None where nothing was tested or the artifact used."""
    first = answer.questions[0][1]
    if answer.verdict in NOT_TESTED:
        return None
    bar = LeadBar.of(pooled_in_effects([q for _, q in answer.questions if q.scope == first.scope]))
    return bar and replace(bar, numbered=detail > BARE)


def _arm_cells(all_arms: Sequence[Arm], cell: MatrixQuestion, detail: int, anchors: Anchors) -> list[TableCell]:
    """The answer of each arm; marks artifacts that its defense hides, and attacks that the defense foils."""
    answers = {(arm.method, arm.defense): matrix_answer(arm, cell) for arm in all_arms}
    asking = {method for (method, _), answer in answers.items() if answer is not None}
    cells = []
    for arm in all_arms:
        answer, undefended = answers[arm.method, arm.defense], answers.get((arm.method, "none"))
        shared = {name for run in arm.runs for row in run.artifacts for name in attacked_names(row)}
        if answer is None and arm.method in asking and cell.artifact not in shared:
            cells.append(text_cell("Not seen", "by anyone but its client"))
        else:
            foiled = undefended is not None and undefended.verdict == "leak"
            cells.append(_answer_cell(arm, cell, answer, detail, anchors, foiled))
    return cells


def _reason(answer: MatrixAnswer, foiled: bool) -> str:
    """The commonest reason for an inconclusive verdict; a weak attack is foiled if it leaks without the defense."""
    reasons = Counter(q.inconclusive_because for _, q in answer.questions if q.inconclusive_because)
    reason, _ = reasons.most_common(1)[0]
    return FOILED if foiled and reason == "weak_attack" else BECAUSE[reason]


def _scopes(answer: MatrixAnswer) -> str:
    """The scopes with this verdict, and the verdict of the other."""
    about = scope(answer.questions[0][1])
    if answer.verdict != "leak" and len({q.scope for _, q in answer.questions}) > 1:
        about = "about the client and its domain"
    return upper("; ".join(phrase for phrase in (about, answer.other_scope) if phrase))


def _seeds_or_runs(arm: Arm) -> str:
    return "seeds" if len({run.target for run in arm.runs}) == 1 else "runs"


def _question_cell(cell: MatrixQuestion) -> TableCell:
    kind, _, level = cell.artifact.partition(":")
    owner = f", {LEVELS.get(level, spoken(level))}" if level else ""
    return text_cell(SECRETS[cell.secret], upper(spoken(kind)) + owner)


def _artifact_cell(name: str, runs: Sequence[Run]) -> TableCell:
    """The artifact, its owner, and the smallest number of images behind it."""
    kind, _, level = name.partition(":")
    rows = [row for run in runs for row in run.artifacts if name in attacked_names(row)]
    samples = [row.samples_behind for row in rows if row.samples_behind]
    images = f"from {min(samples):,} images" if samples else ""
    phrases = (LEVELS.get(level, spoken(level)), images)
    return text_cell(upper(spoken(kind)), ", ".join(phrase for phrase in phrases if phrase))
