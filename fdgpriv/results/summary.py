"""The printed summary of an audit: accuracies, and one line for each question."""

from collections.abc import Iterator, Sequence

from fdgpriv.results.accuracy import accuracies, is_averaged
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question, Strongest
from fdgpriv.results.run import Run
from fdgpriv.results.tally import NOT_TESTED, Tally
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.defaults import BASELINE

UNINFORMATIVE = "what such a model leaks or hides says nothing about one that works"
_ROUNDING = 1e-9  # the mean of thirds is not exactly one


def verdicts(results: Results) -> str:
    """Each run, with one line per question; then accuracies over several trainings, and warnings about the data."""
    lines = [line for run in results.runs for line in _run(run)]
    if results.runs and not any(run.attacks or run.shares_nothing for run in results.runs):
        lines.append("nothing was attacked")
    if is_averaged(results):
        lines += ["accuracy over targets and seeds:", *_over_trainings(results)]
    lines += [f"warning: {warning}" for warning in results.dataset.warnings]
    return "\n".join(lines)


def _run(run: Run) -> Iterator[str]:
    target = f", target {run.target}" if run.target else ""
    yield f"{run.method} on {run.dataset}{target}, seed {run.seed}, defense {run.defense}"
    if run.ended is not None:
        yield f"  failed: {run.ended}"
    if run.utility is not None:
        yield f"  accuracy: {_accuracy(run.utility.source_accuracy, run.utility.target_accuracy)}"
        if reason := run.utility.not_learned:
            yield f"  NOT LEARNED: {reason}; {UNINFORMATIVE}"
        if run.utility.recomputed_statistics:
            yield "    with BatchNorm statistics recomputed on the target's unlabelled images"
        if (adapted := run.utility.adapted_accuracy) is not None:
            yield f"  adapted at test time: target {_share(adapted)}"
        if (personal := run.utility.personal) is not None:
            accuracy = _accuracy(personal.source_accuracy, personal.target_accuracy)
            yield f"  each client with its own model: {accuracy}"
    if run.privacy.proved:
        yield f"  proved: {run.privacy.proved}"
    yield from (f"  note: {check.sentence}" for check in run.checks if check.outcome == "note")
    if run.questions:
        yield f"  {count(run.questions)}"
    elif run.shares_nothing:
        yield "  nothing crossed the wire: there is nothing to attack"
    for question in run.questions:
        yield f"  {line(question)}"
    yield from (f"  failed: {failure}" for failure in run.failed_parts())


def count(questions: Sequence[Question]) -> str:
    """How many questions leak, by grade, how many do not, and how many are open: ``3 questions: 1 leak (1 trace), ...``."""
    return Tally.of(questions).in_words


def line(question: Question) -> str:
    """One question in one line: artifact, adversary, secret and scope, the verdict, and the decisive attack."""
    adversaries = ", ".join(question.adversaries)
    name = f"{question.artifact:22} {adversaries:12} {question.secret:12} {question.scope:7}"
    if question.verdict in NOT_TESTED:
        return f"{name} {question.graded:14} {question.reason}"
    result = "" if question.strongest is None else _attack_and_control(question.strongest, question.lead)
    if question.inconclusive_because:
        result = f"{question.inconclusive_because.replace('_', ' ')}; {result}".rstrip("; ")
    return f"{name} {question.graded:14} {result}".rstrip()


def _attack_and_control(attack: Strongest, lead_figure: Measured | None) -> str:
    """The figures of the attack and its strongest control, and the lead if both print alike."""
    score, control = _number(attack.value), _number(attack.control_value)
    value = (lead_figure.value if lead_figure else None) or 0.0
    lead = (
        f", {'leads' if value > 0 else 'is behind'} by {abs(value):.2g}"
        if score == control and abs(value) > _ROUNDING
        else ""
    )
    return f"{attack.attack}: {attack.metric} {score}, {attack.control} {control}{lead}"


def _number(figure: Measured) -> str:
    return "–" if figure.value is None else f"{figure.value:.3g}"


def _accuracy(source: Measured, target: Measured) -> str:
    return f"source {_share(source)}, target {_share(target)}"


def _over_trainings(results: Results) -> Iterator[str]:
    for row in accuracies(results):
        over = f"{row.target.n} seeds" if row.target.ci95 else row.target.reason
        each = ", ".join(f"{target} {_share(figure)}" for target, figure in row.by_target.items())
        yield (
            f"  {row.method}, defense {row.defense}{row.model and f', {row.model}'}: "
            f"target {_share(row.target)}{_ends(row.target)} ({over}); {each}; source {_share(row.source)}"
        )
        if row.by_rule:
            yield "    target by rule: " + ", ".join(
                f"{_rule(n)} {_share(f)}{_ends(f)}" for n, f in row.by_rule.items()
            )
        if row.base:
            leads = ", ".join(f"{_rule(name)} {_lead(figure)}{_ends(figure)}" for name, figure in row.leads.items())
            seeds = max(figure.n or 0 for figure in row.leads.values())
            yield f"    minus {row.base}, by pairs over {seeds} seed{'' if seeds == 1 else 's'}: {leads}"
        if row.unmatched:
            yield f"    minus {BASELINE}: not available: {row.unmatched}"
        if row.left_out:
            seeds = (row.target.n or 0) + len(row.left_out)
            yield f"    {len(row.left_out)} of {seeds} seeds left out of the means; missing: {'; '.join(row.missing)}"


def _rule(name: str) -> str:
    return name.replace("_", " ")


def _ends(figure: Measured) -> str:
    return f" [{figure.ci95[0]:.3f}, {figure.ci95[1]:.3f}]" if figure.ci95 else ""


def _lead(figure: Measured) -> str:
    return "not available" if figure.value is None else f"{figure.value:+.3f}"


def _share(figure: Measured) -> str:
    return "not available" if figure.value is None else f"{figure.value:.3f}"
