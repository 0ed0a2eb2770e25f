"""The sentence that opens a report, and recommendations for each artifact."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Results
from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run

from ._arms import ArmAnswers, arm_answers, arms
from ._numbers import percent
from ._words import LEARNT, artifact, artifact_of, defense, joined, role, role_order, unique, upper

_IMAGES = "Compute it from more images, or add noise with a proved epsilon, before it leaves the client."
_REMEDIES = {  # by secret
    "domain": "Clients' own copies tell their domain apart, as domains differ: if that is secret, share sums over clients "
    "(secure aggregation) or add noise.",
    "labels": "Share it only summed over clients, or with noise, so that no single client's labels show.",
    "size": "Share rounded counts, or none.",
    "membership": _IMAGES,
    "content": _IMAGES,
    "average_look": _IMAGES,
    "identity": "Removing names does not hide senders: share sums over clients, or add noise.",
}
_MAX_NAMED = 3  # arms in one sentence
_MORE_CLIENTS = "test more clients (--clients; of what takes no training, also --units-per-domain)"
_NEXT_STEPS = {  # by reason of an inconclusive verdict
    "weak_attack": "try stronger attacks or a larger preset",
    "failed": "mend the attack that failed, and continue with --resume",
    "too_coarse": _MORE_CLIENTS,
    "not_after_correction": _MORE_CLIENTS,
}


@dataclass(frozen=True)
class Advice:
    """Recommendations for one artifact.

    Attributes:
        verdict: The worst verdict on it, which colours it.
        artifact: The artifact in words.
        result: What the audit shows of it.
        lines: The recommendations, one sentence each.
    """

    verdict: str
    artifact: str
    result: str
    lines: tuple[str, ...]


def advice(runs: Sequence[Run]) -> tuple[Advice, ...]:
    """One entry for each artifact that a question is about, leaking ones first."""
    questions: dict[str, list[tuple[Run, Question]]] = {}
    for run in runs:
        for question in run.questions:
            questions.setdefault(artifact_of(question), []).append((run, question))
    arms_differ = len(arms(runs)) > 1
    entries = [_artifact_advice(name, asked, arms_differ) for name, asked in questions.items()]
    return tuple(sorted(entries, key=lambda entry: WORST_FIRST.index(entry.verdict)))


def _artifact_advice(name: str, asked: Sequence[tuple[Run, Question]], arms_differ: bool) -> Advice:
    verdict = min((q.verdict for _, q in asked), key=WORST_FIRST.index)
    leaks = [(run, q) for run, q in asked if q.verdict == "leak"]
    lines = []
    if leaks:
        result = f"tells {_learnt([q for _, q in leaks])}"
        if arms_differ:
            result += f" ({_leaking_arms([run for run, _ in leaks], [run for run, _ in asked])})"
        about_client = {q.secret for _, q in leaks if q.scope == "client"}
        causes = {q.secret if q.secret in about_client else "domain" for _, q in leaks}
        lines = unique(_REMEDIES[secret] for secret in _REMEDIES if secret in causes)
    elif verdict == "inconclusive":
        result = "shown neither to leak nor to be safe"
    elif verdict == "no_leak_found":
        result = "no leak found"
        lines.append("Nothing to do on this evidence, which is no proof: only a proved epsilon is.")
    else:
        result = "not tested"
    return Advice(verdict, upper(artifact(name)), result, (*lines, *_open_questions([q for _, q in asked])))


def _leaking_arms(leaking: Sequence[Run], asked: Sequence[Run]) -> str:
    """The arms of the leaking runs: up to three by name, more by number."""
    all_arms, leaks = arms(asked), {id(run) for run in leaking}
    names = [arm.name for arm in all_arms if any(id(run) in leaks for run in arm.runs)]
    if len(names) <= _MAX_NAMED:
        return joined(names)
    return f"in all {len(all_arms)}" if len(names) == len(all_arms) else f"in {len(names)} of {len(all_arms)}"


def _open_questions(asked: Sequence[Question]) -> Iterator[str]:
    """One sentence on inconclusive questions and what would decide them, the commonest reason first."""
    steps = Counter(_NEXT_STEPS[q.inconclusive_because] for q in asked if q.inconclusive_because)
    if n := steps.total():
        verb, tested = "is" if n == 1 else "are", sum(q.verdict != "not_applicable" for q in asked)
        yield f"{n} of {tested} questions on it {verb} open: {joined([step for step, _ in steps.most_common()])}."


def _learnt(leaks: Sequence[Question]) -> str:
    """Which adversaries learn which secrets; those that learn the same are named together."""
    roles: dict[str, list[str]] = {}
    for name in role_order(name for q in leaks for name in q.adversaries):
        secrets = {q.secret for q in leaks if name in q.adversaries}
        roles.setdefault(joined([LEARNT[secret] for secret in LEARNT if secret in secrets]), []).append(role(name))
    return "; ".join(f"{joined(names)} {secrets}" for secrets, names in roles.items())


def sentence(results: Results) -> str:
    """The whole report in one sentence."""
    answers = arm_answers(results.runs)
    if not answers:
        return "No run finished, so there is nothing to judge."
    if len(answers) == 1:
        return _sentence_on_one(answers[0], results.dataset.name)
    attacked = [arm for arm in answers if arm.asked]
    if not attacked:
        methods = joined(unique(arm.arm.method for arm in answers))
        return f"Nothing was attacked, so this says nothing about what {methods} give away."
    greatest, fewest = max(arm.leaks for arm in attacked), min(arm.leaks for arm in attacked)
    one_method = len({arm.arm.method for arm in answers}) == 1
    dataset = results.dataset.name
    subject = f"{answers[0].arm.method} on {dataset}" if one_method else f"On {dataset}"
    preposition = "under" if one_method else "for"
    if not greatest:
        counts = f"{sum(arm.inconclusive for arm in attacked)} of {sum(arm.asked for arm in attacked)}"
        return (
            f"{subject}: no leak was shown {preposition} any of {len(attacked)} compared; {counts} questions stay open."
        )
    if greatest == fewest:
        return (
            f"{subject}: {greatest} questions are answered with a leak {preposition} each of {len(attacked)} compared."
        )
    unproved = any(arm.leaks == fewest and not arm.proves for arm in attacked)
    end = f"fewest {preposition} {_arms_with_leaks(attacked, fewest)}"
    end += ", which proves nothing" if not fewest and unproved else ""
    return f"{subject}: most questions are answered with a leak {preposition} {_arms_with_leaks(attacked, greatest)}, {end}."


def _arms_with_leaks(answers: Sequence[ArmAnswers], leaks: int) -> str:
    """The arms with exactly this number of leaks: up to three by name, more by number."""
    names = [f"{arm.arm.name} ({leaks} of {arm.asked})" for arm in answers if arm.leaks == leaks]
    return joined(names) if len(names) <= _MAX_NAMED else f"{len(names)} of them ({leaks} each)"


def _sentence_on_one(answers: ArmAnswers, dataset: str) -> str:
    """The sentence of a report with a single arm."""
    arm, n_seeds = answers.arm, len({run.seed for run in answers.arm.runs})
    subject = f"{arm.method} on {dataset}" + ("" if arm.defense == "none" else f" with {defense(arm.defense)}")
    if arm.runs[0].ended is not None and not answers.asked:
        return f"Training of {subject} failed, so nothing was attacked."
    if not answers.asked:
        return f"Nothing was attacked, so this says nothing about what {arm.method} gives away."
    seeds = f" ({n_seeds} seeds, each question by its worst answer)" if n_seeds > 1 else ""
    verb = "are" if answers.leaks > 1 else "is"
    grades = f" ({answers.leaks_by_grade})" if answers.grades else ""
    counts = (
        f"{answers.leaks} {verb} answered with a leak{grades}, {answers.no_leak_found or 'none'} with no leak found"
    )
    rest = f"{answers.inconclusive} could not be decided" if answers.inconclusive else "none is undecided"
    leaking = "leaks" if answers.leaks else "was not shown to leak, which is no proof of privacy"
    utility = "" if answers.accuracy is None else f"; accuracy on the unseen domain is {percent(answers.accuracy, 1)}"
    questions = f"of {answers.asked} questions about what crossed the wire{seeds}"
    return f"{subject} {leaking}: {questions}, {counts}, and {rest}{utility}."
