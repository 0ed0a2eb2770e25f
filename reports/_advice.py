"""The sentence that opens a report, and what to do about its leaks and open questions, with commands to paste."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question
from fdgpriv.results.run import MeasuredCost, Remedy, Run
from fdgpriv.results.tally import Tally
from fdgpriv.statistics.grades import GRADES, Grade, highest

from ._arms import Arm, ArmAnswers, arm_answers
from ._command import AuditCommand
from ._numbers import in_points, percent, plain, quantity
from ._tradeoff import TradeoffRow, tradeoff
from ._words import BECAUSE, LEARNT, artifact, artifact_of, defense, guaranteed, joined, role, role_order, unique, upper

_MAX_NAMED = 3  # arms in one sentence
_NOTHING = "Nothing to do on this evidence, which is no proof: only a proved epsilon is"
_HIDDEN = "Measured here: not seen by anyone but its client."
_SHARE_LESS = "Share it from more images, less often, or not at all"
_UNSHARED = "no client shares anything, so there is nothing to attack"


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        verdict, grade: The worst that it is for, which colours it.
        title: What to do: an option of the command line, or words.
        lines: What it is for, what it does, and what it costs in accuracy.
        command: The command line to paste; empty if there is none.
    """

    verdict: str
    grade: Grade | None
    title: str
    lines: tuple[str, ...]
    command: str = ""


def advice(results: Results) -> tuple[Step, ...]:
    """What to do: against leaks by grade, of equal grade first what was measured here; then what decides open questions.

    Empty if nothing was attacked.
    """
    questions = [question for run in results.runs for question in run.questions]
    if not Tally.of(questions).asked:
        return ()
    steps = [*_against_leaks(results), *_open_questions(results, questions)]
    nothing = Step("no_leak_found", None, _NOTHING, ("No leak was shown, and no question is open.",))
    return tuple(steps) or (nothing,)


@dataclass(frozen=True)
class _Leaks:
    """The leaks from one artifact of one method, without a defense if the report has that.

    Attributes:
        artifact: The artifact.
        grade: The highest of its leaks.
        words: What it tells whom, after the method if there are several.
    """

    artifact: str
    grade: Grade
    words: str


@dataclass(frozen=True)
class _Plan:
    """An option against leaks, and what it does or would do about each artifact.

    Attributes:
        title: The option, or words.
        effects: By artifact and method, in words.
        end: The line on its cost.
        command: To paste.
        last: Whether it stands after all others: measured elsewhere, it ended the training.
    """

    title: str
    effects: dict[tuple[str, str], str]
    end: str
    command: str = ""
    last: bool = False


def _against_leaks(results: Results) -> Iterator[Step]:
    """Steps against leaks, the highest grade first; what an artifact tells is said in the first step that is about it."""
    rows = tradeoff(results)
    by_method = {
        method: [row for row in rows if row.arm.method == method] for method in unique(r.arm.method for r in rows)
    }
    base = {method: next((row for row in of if row.arm.defense == "none"), of[0]) for method, of in by_method.items()}
    leaks = {
        (method, leak.artifact): leak
        for method, row in base.items()
        for leak in _leaks(row.arm, f"{method}: " if len(base) > 1 else "")
    }
    plans = [*_measured(by_method, base, leaks), *_suggested(results, base, leaks)]
    helped = {key for plan in plans for key in plan.effects}
    unhelped = dict.fromkeys((key for key in leaks if key not in helped), "")
    others = "No other defense that applies" if len(rows) > len(base) else "No defense that applies"
    plans += [_Plan(_SHARE_LESS, unhelped, f"{others} is recorded to protect it.")] if unhelped else []
    described: set[tuple[str, str]] = set()

    def order(plan: _Plan) -> tuple[bool, int]:
        return plan.last, -max(GRADES.index(leaks[key].grade) for key in plan.effects)

    for plan in sorted(plans, key=order):
        lines = []
        for key in sorted(plan.effects, key=lambda key: -GRADES.index(leaks[key].grade)):
            words = leaks[key].words if key not in described else upper(artifact(leaks[key].artifact))
            lines.append(f"{words}. {plan.effects[key]}".rstrip())
            described.add(key)
        grade = highest([leaks[key].grade for key in plan.effects])
        yield Step("leak", grade, plan.title, (*lines, *([plan.end] if plan.end else [])), plan.command)


def _leaks(arm: Arm, prefix: str = "") -> list[_Leaks]:
    """The leaks of all runs by artifact."""
    questions: dict[str, list[Question]] = {}
    for run in arm.runs:
        for question in run.questions:
            if question.verdict == "leak":
                questions.setdefault(artifact_of(question), []).append(question)
    leaks = []
    for name, of_artifact in questions.items():
        grade = highest([question.grade for question in of_artifact if question.grade])
        words = f"{prefix}{upper(artifact(name))} ({grade}) tells {_learnt(of_artifact)}"
        leaks.append(_Leaks(name, grade, words))
    return leaks


Rows = Mapping[str, TradeoffRow]  # by method
Keyed = Mapping[tuple[str, str], _Leaks]  # by method and artifact


def _measured(by_method: Mapping[str, Sequence[TradeoffRow]], base: Rows, leaks: Keyed) -> Iterator[_Plan]:
    """The defenses of this report that lowered a grade."""
    for method, rows in by_method.items():
        of = f" for {method}" if len(by_method) > 1 else ""
        for row in rows:
            if row is base[method] or not row.attacked:
                continue
            changes = {key: _change(leak, row.arm) for key, leak in leaks.items() if key[0] == method}
            effects = {key: c for key, c in changes.items() if c and (c == _HIDDEN or not row.guesses)}
            if effects:
                yield _Plan(f"--defense {row.arm.defense}{of}", effects, _cost(row, base[method]))


def _suggested(results: Results, base: Rows, leaks: Keyed) -> Iterator[_Plan]:
    """The defenses that apply and would hide a leaking artifact, or prove a guarantee of it.

    Those of which a training ended wherever it was measured are named, without a command.
    """
    by_option: dict[tuple[str, tuple[str, ...]], list[tuple[str, Remedy]]] = {}
    tried = {run.defense for run in results.runs}
    for method, row in base.items():
        remedies = {(remedy.defense, remedy.settings): remedy for run in row.arm.runs for remedy in run.remedies}
        for key, remedy in remedies.items():
            if remedy.defense not in tried or remedy.settings:
                by_option.setdefault(key, []).append((method, remedy))
    for (spec, settings), of_methods in by_option.items():
        effects = {
            key: effect
            for method, remedy in of_methods
            for key, leak in leaks.items()
            if key[0] == method and (effect := _effect(remedy, leak.artifact))
        }
        if not effects:
            continue
        costs = {cost: None for _, remedy in of_methods for cost in remedy.costs}
        ended = all(remedy.ended_training for _, remedy in of_methods)
        command = _command(results, spec, settings, len(base)) if not ended else ""
        option = " ".join([*(f"--set {setting}" for setting in settings), f"--defense {spec}"])
        title = f"Train under {spec}, record that training, and compare both audits" if results.recorded else option
        yield _Plan(title, effects, _known_costs(list(costs), base, bool(command)), command, last=ended)


def _command(results: Results, spec: str, settings: Sequence[str], methods: int) -> str:
    """The command that measures a defense; empty where the audit's is not known, or no option of it says that."""
    command = AuditCommand.of(results)
    if results.recorded or (settings and methods > 1):
        return ""
    if settings:
        command = command.replacing("--set", settings, keep=True)
    return command.with_values("--defense", ["none", spec])


def _known_costs(costs: Sequence[MeasuredCost], methods: Collection[str], measurable: bool) -> str:
    """That the costs were not measured here, and what they were in earlier trainings, with this method or with others."""
    end = "; this measures it, and what it leaves:" if measurable else "."
    if not costs:
        return f"What it costs in accuracy was not measured here{end}"
    phrases = []
    for cost in costs[:_MAX_NAMED]:
        other = (
            "" if cost.method.partition(":")[0] in {m.partition(":")[0] for m in methods} else f" with {cost.method}"
        )
        ended = " it ended the training:" if cost.ended else ""
        trainings = quantity(cost.seeds, "training")
        phrases.append(
            f"on {cost.setting}{other}{ended} accuracy on the unseen domain {percent(cost.under)}, without it "
            f"{percent(cost.without)} ({trainings})"
        )
    return f"Not measured here; {'; '.join(phrases)}{end}"


def _change(was: _Leaks, arm: Arm) -> str:
    """How a defense changed the leaks from one artifact, in words; empty if their highest grade is not lower."""
    questions = [q for run in arm.runs for q in run.questions if artifact_of(q) == was.artifact]
    if not questions:
        return _HIDDEN
    left = next((leak for leak in _leaks(arm) if leak.artifact == was.artifact), None)
    if left is None:
        open_ = sum(question.verdict == "inconclusive" for question in questions)
        return "Measured here: no leak shown" + (f", {quantity(open_, 'question')} open." if open_ else ".")
    if GRADES.index(left.grade) >= GRADES.index(was.grade):
        return ""
    return f"Measured here: {left.grade}."


def _cost(row: TradeoffRow, base: TradeoffRow) -> str:
    """What a measured defense costs in accuracy: by pairs, or the difference of two runs."""
    if row.cost is not None and row.cost.value is not None:
        return f"Accuracy on the unseen domain: {in_points(row.cost)} points."
    if row.mean_accuracy is None or base.mean_accuracy is None:
        return "What it costs in accuracy was not measured."
    return (
        f"Accuracy on the unseen domain: {percent(row.mean_accuracy, 1)}, without it {percent(base.mean_accuracy, 1)}."
    )


def _effect(remedy: Remedy, name: str) -> str:
    """What a remedy that was not measured would do about leaks from this artifact; empty if it does not protect it."""
    kind, _, level = name.partition(":")
    if kind in remedy.hides and level != "group":
        return "The server would see sums over clients only."
    if kind not in remedy.proves:
        return ""
    about, rest = guaranteed(remedy.unit, remedy.not_covered)
    at = "" if remedy.delta is None else f" at δ {plain(remedy.delta)}"
    return f"An ε of {plain(remedy.epsilon)}{at}, {about}, would be proved for it{f'; {rest}' if rest else ''}."


def _open_questions(results: Results, questions: Sequence[Question]) -> Iterator[Step]:
    """One step for each reason of open questions, with the command that may decide them, the commonest first."""
    reasons = Counter(q.inconclusive_because for q in questions if q.inconclusive_because)
    steps: dict[str, tuple[list[str], str]] = {}
    for reason, n in reasons.most_common():
        title, command = _deciding(reason, results)
        lines, _ = steps.setdefault(title, ([], command))
        lines.append(f"{upper(quantity(n, 'question'))} open: {BECAUSE[reason]}.")
    for title, (lines, command) in steps.items():
        yield Step("inconclusive", None, title, tuple(lines), command)


def _deciding(reason: str, results: Results) -> tuple[str, str]:
    """What would decide a question that is open for this reason, and the command: a longer preset before anything else."""
    command, clients, preset = AuditCommand.of(results), _clients(results), results.config.get("preset")
    if reason == "failed":
        return "Mend the attack that failed, and continue with --resume", ""
    if preset == "quick":
        return "Run the default preset, which asks with more clients, images and rounds", command.with_values(
            "--preset", ["default"]
        )
    if reason == "weak_attack" and preset == "thorough":
        return "Give the adversary more public images, or stronger attacks", ""
    if reason == "weak_attack":
        return "Attack harder", command.with_values("--preset", ["thorough"])
    if results.recorded:
        return "Record more clients", ""
    return "Test more clients, or more units", command.with_values("--clients", [str(2 * clients)]) if clients else ""


def _clients(results: Results) -> int:
    """The largest number of clients of a method's set-up; 0 if it is not recorded."""
    setups = results.config.get("setup")
    counts = (
        [setup.get("clients") for setup in setups.values() if isinstance(setup, dict)]
        if isinstance(setups, dict)
        else []
    )
    return max((count for count in counts if isinstance(count, int)), default=0)


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
    return f"{_sentence_on_several(results, answers)}{_sent_in_clear(results.runs)}."


def _sentence_on_several(results: Results, answers: Sequence[ArmAnswers]) -> str:
    """The sentence of a report with several arms, without its full stop."""
    attacked = [arm for arm in answers if arm.tally.asked]
    if not attacked and all(run.shares_nothing for run in results.runs):
        return _UNSHARED.capitalize()
    if not attacked:
        methods = joined(unique(arm.arm.method for arm in answers))
        return f"Nothing was attacked, so this says nothing about what {methods} give away"
    most, fewest = max(arm.weight for arm in attacked), min(arm.weight for arm in attacked)
    one_method = len({arm.arm.method for arm in answers}) == 1
    dataset = results.dataset.name
    subject = f"{answers[0].arm.method} on {dataset}" if one_method else f"On {dataset}"
    preposition = "under" if one_method else "for"
    if not any(most):
        open_ = sum(arm.tally.inconclusive for arm in attacked)
        asked = sum(arm.tally.asked for arm in attacked)
        return (
            f"{subject}: no leak was shown {preposition} any of {len(attacked)} compared, which is no proof of privacy; "
            f"{open_} of {asked} questions stay open"
        )
    if most == fewest:
        return f"{subject}: {attacked[0].leaks_in_words} {preposition} each of {len(attacked)} compared"
    unproved = any(arm.weight == fewest and not arm.proves for arm in attacked)
    end = f"least {preposition} {_arms_with_leaks(attacked, fewest)}"
    end += ", which proves nothing" if not any(fewest) and unproved else ""
    return f"{subject}: most leaks {preposition} {_arms_with_leaks(attacked, most)}, {end}"


def _arms_with_leaks(answers: Sequence[ArmAnswers], weight: tuple[int, ...]) -> str:
    """The arms with exactly these leaks: up to three by name, more by number."""
    of_weight = [arm for arm in answers if arm.weight == weight]
    names = [f"{arm.arm.name} ({arm.leaks_in_words})" for arm in of_weight]
    return joined(names) if len(names) <= _MAX_NAMED else f"{len(names)} of them ({of_weight[0].leaks_in_words} each)"


def _sentence_on_one(answers: ArmAnswers, dataset: str) -> str:
    """The sentence of a report with a single arm."""
    arm, n_seeds = answers.arm, len({run.seed for run in answers.arm.runs})
    subject = f"{arm.method} on {dataset}" + ("" if arm.defense == "none" else f" with {defense(arm.defense)}")
    if arm.runs[0].ended is not None and not answers.tally.asked:
        return f"Training of {subject} failed, so nothing was attacked."
    if not answers.tally.asked and all(run.shares_nothing for run in arm.runs):
        return f"{subject}: {_UNSHARED}."
    if not answers.tally.asked and (facts := _sent_in_clear(arm.runs)):
        return f"{subject}: nothing else was put to the test{facts}."
    if not answers.tally.asked:
        return f"Nothing was attacked, so this says nothing about what {arm.method} gives away."
    seeds = f" ({n_seeds} seeds, each question by its worst answer)" if n_seeds > 1 else ""
    no_proof = "" if answers.tally.leaks else ", which is no proof of privacy"
    tally = answers.tally
    rest = (
        f"{tally.no_leak_found or 'none'} with no leak found, {tally.inconclusive or 'none'} inconclusive, of "
        f"{quantity(tally.asked, 'question')} about what crossed the wire{seeds}{_sent_in_clear(arm.runs)}"
    )
    utility = "" if answers.accuracy is None else f"; accuracy on the unseen domain is {percent(answers.accuracy, 1)}"
    return f"{subject}: {answers.leaks_in_words}{no_proof}; {rest}{utility}."


def _sent_in_clear(runs: Sequence[Run]) -> str:
    """What crosses the wire as it is, which is no question: ``; sent in clear, so not tested: its number of images``."""
    facts: dict[str, list[str]] = {}
    for run in runs:
        for secret in unique(q.secret for q in run.questions if q.verdict == "sent_in_clear"):
            facts.setdefault(LEARNT[secret], []).append(run.method)
    several = len({run.method for run in runs}) > 1
    phrases = [fact + (f" ({joined(unique(methods))})" if several else "") for fact, methods in facts.items()]
    return f"; sent in clear, so not tested: {joined(phrases)}" if phrases else ""
