"""One screen about an audit, as text and as HTML for notebooks: accuracy, leaks by grade, and what to do next."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question, worst_first
from fdgpriv.results.run import Run
from fdgpriv.results.summary import UNINFORMATIVE, count, line
from fdgpriv.results.tally import Tally
from fdgpriv.statistics.grades import GRADES
from fdgpriv.statistics.measured import Measured

MAX_LEAKS, MAX_RUNS = 12, 10  # lines
_DECIDES = {  # the arguments of run_audit that would decide an inconclusive question, by its reason
    "weak_attack": 'preset="thorough"',
    "too_coarse": "more clients=, units_per_domain=",
    "not_after_correction": "more clients=, units_per_domain=, or fewer attacks=",
    "failed": "resume=True after the failed attack is mended",
}
_RECORDING_DECIDES = _DECIDES | {  # the same for audit_recording, whose clients are those that were recorded
    "too_coarse": "more recorded clients",
    "not_after_correction": "more recorded clients, or fewer attacks=",
}
_SHADES = {  # red, green, blue, opacity: legible on light and on dark pages
    "severe": "200, 30, 30, 0.55",
    "moderate": "200, 30, 30, 0.32",
    "trace": "200, 30, 30, 0.12",
    "no_leak_found": "30, 140, 60, 0.18",
    "sent_in_clear": "30, 90, 160, 0.18",
    "inconclusive": "128, 128, 128, 0.22",
}


def text(results: Results) -> str:
    """At most some 30 lines: what was audited, accuracy, the strongest leaks, what is open, and what to do next."""
    runs = results.runs
    if not runs:
        return f"{_title(results)}\nno run finished"
    if len(runs) == 1:
        lines = [_title(results), *(f"  {part}" for part in _outcome(runs[0]))]
    else:
        lines = [_title(results), *(f"  {_name(run)}: {'; '.join(_outcome(run))}" for run in runs[:MAX_RUNS])]
        lines += [f"  and {len(runs) - MAX_RUNS} more runs: results.frontier()"] if len(runs) > MAX_RUNS else []
    leaks = _leaks(runs)
    lines += ["strongest leaks:"] if leaks else []
    for run, question in leaks[:MAX_LEAKS]:
        lines.append(f"  {line(question)}" + (f" ({_name(run)})" if len(runs) > 1 else ""))
    lines += [f"  and {len(leaks) - MAX_LEAKS} more: results.questions()"] if len(leaks) > MAX_LEAKS else []
    return "\n".join([*lines, "next:", *(f"  {step}" for step in _next_steps(results))])


def html(results: Results) -> str:
    """A heading, a table of secrets by adversary and artifact (of runs by verdict where there are several), next steps."""
    runs = results.runs
    table = _matrix(runs[0]) if len(runs) == 1 else _runs_by_verdict(runs)
    summary = f"<p>{escape('; '.join(_outcome(runs[0])))}</p>" if len(runs) == 1 else ""
    steps = "".join(f"<li>{escape(step)}</li>" for step in _next_steps(results)) if runs else "<li>no run finished</li>"
    return f"<div><p><b>{escape(_title(results))}</b></p>{summary}{table}<ul>{steps}</ul></div>"


def _title(results: Results) -> str:
    """What was audited: methods, dataset, targets, seeds, preset; then what limits the conclusions."""
    runs, preset = results.runs, results.config.get("preset")
    methods = ", ".join(dict.fromkeys(run.method for run in runs)) or "nothing"
    named = {
        "target": dict.fromkeys(run.target for run in runs if run.target),
        "seed": dict.fromkeys(str(run.seed) for run in runs),
        "defense": dict.fromkeys(run.defense for run in runs),
    }
    parts = [
        f"{name}{'s' * (len(values) > 1)} {', '.join(values)}"
        for name, values in named.items()
        if 0 < len(values) <= MAX_RUNS
    ]
    ending = [f"preset {preset}"] if isinstance(preset, str) else []
    ending += ["interrupted"] if results.interrupted else []
    return ", ".join([f"{methods} on {results.dataset.name}", *parts, *ending])


def _name(run: Run) -> str:
    target = f", {run.target}" if run.target else ""
    return f"{run.method}{target}, seed {run.seed}, {run.defense}"


def _outcome(run: Run) -> Iterator[str]:
    """Accuracy and number of questions by verdict, or why there are none."""
    if run.ended is not None:
        yield f"failed: {run.ended}"
        return
    utility = run.utility
    if utility and utility.target_accuracy.value is not None:
        recomputed = " (BatchNorm statistics of its unlabelled images)" if utility.recomputed_statistics else ""
        yield f"accuracy on the unseen domain {_share(utility.target_accuracy)}{recomputed}"
    if utility and utility.not_learned:
        yield f"NOT LEARNED: {utility.not_learned}; {UNINFORMATIVE}"
    if utility and utility.adapted_accuracy:
        yield f"adapted at test time {_share(utility.adapted_accuracy)}"
    if run.privacy.proved:
        yield f"proved: {run.privacy.proved}"
    yield from (f"note: {check.sentence}" for check in run.checks if check.outcome == "note")
    nothing = "nothing crossed the wire" if run.shares_nothing else "nothing was attacked"
    yield count(run.questions) if run.questions else nothing


def _share(accuracy: Measured) -> str:
    ends = f" [{accuracy.ci95[0]:.3f}, {accuracy.ci95[1]:.3f}]" if accuracy.ci95 else ""
    return f"{accuracy.value:.3f}{ends}"


def _leaks(runs: Sequence[Run]) -> list[tuple[Run, Question]]:
    """The worse scope of each leak, the highest grade first, then the largest lead in multiples of what matters."""
    leaks = [(run, question) for run in runs for question in run.questions if question.grade is not None]
    by_place: dict[tuple[str, ...], tuple[Run, Question]] = {}
    for run, q in sorted(leaks, key=lambda leak: worst_first(leak[1])):
        by_place.setdefault((_name(run), q.artifact, q.level, q.adversary, q.secret), (run, q))
    return list(by_place.values())


def _next_steps(results: Results) -> Iterator[str]:
    """What would make the answers firmer, what protects, and where the details are."""
    runs, preset = results.runs, results.config.get("preset")
    if results.interrupted:
        function = "audit_recording" if results.recorded else "run_audit"
        yield f"the audit was interrupted: {function}(..., out=FOLDER, resume=True) continues"
    if failed := sum(len(list(run.failed_parts())) for run in runs):
        yield f"{failed} measurement{'s' * (failed > 1)} failed: run.failed_parts() of results.runs"
    if preset == "quick":
        yield 'quick runs try the set-up and carry no conclusion: preset="default"'
    reasons = Counter(q.inconclusive_because for run in runs for q in run.questions if q.inconclusive_because)
    for reason, number in reasons.most_common():
        yield f"{number} open ({reason.replace('_', ' ')}): {_deciding(reason, preset, results.recorded)}"
    leaks, defended = any(run_leaks := _leaks(runs)), any(run.defense != "none" for run in runs)
    if leaks and results.recorded:
        yield "what protecting costs: train under a defense, record that training too, and compare both audits"
    elif leaks and not defended:
        method = run_leaks[0][0].method
        yield f'what protecting costs: run_audit({method!r}, defenses=["none", ...]); fdgpriv audit --list has the names'
    elif defended:
        yield 'leakage against accuracy: results.frontier(), results.figure("frontier")'
    yield 'details: results.report("report.html"), .questions(), .matrix(), .to_pandas()'


def _deciding(reason: str, preset: object, recorded: bool) -> str:
    """The arguments that would decide a question that is open for this reason: a longer preset before anything else."""
    if preset == "quick" and reason != "failed":
        return 'preset="default"'
    if preset == "thorough" and reason == "weak_attack":
        return "more public images" if recorded else "more auxiliary="
    return (_RECORDING_DECIDES if recorded else _DECIDES)[reason]


def _matrix(run: Run) -> str:
    """A row for each adversary and artifact, a column for each secret: the worst verdict of both scopes."""
    cells: dict[tuple[str, str], dict[str, list[Question]]] = {}
    for question in run.questions:
        for adversary in question.adversaries:
            row = cells.setdefault((adversary, f"{question.artifact} {question.level}"), {})
            row.setdefault(question.secret, []).append(question)
    secrets = list(dict.fromkeys(question.secret for question in run.questions))
    rows = []
    for (adversary, artifact), by_secret in cells.items():
        worst = (min(by_secret[secret], key=worst_first) if secret in by_secret else None for secret in secrets)
        rows.append([_cell(adversary), _cell(artifact), *(_verdict_cell(question) for question in worst)])
    return _table(["adversary", "artifact", *secrets], rows) if rows else ""


def _verdict_cell(question: Question | None) -> str:
    if question is None or question.verdict == "not_applicable":
        return _cell("–")
    return _cell(question.grade or question.verdict.replace("_", " "), question.grade or question.verdict)


def _runs_by_verdict(runs: Sequence[Run]) -> str:
    """A row for each run: accuracy, and the number of leaks by grade and of questions by verdict."""
    heads = ["run", "accuracy", *reversed(GRADES), "no leak found", "inconclusive", "sent in clear"]
    rows = []
    for run in runs:
        accuracy = run.utility.target_accuracy.value if run.utility else None
        tally = Tally.of(run.questions)
        numbers: dict[str, int] = {grade: dict(tally.grades).get(grade, 0) for grade in reversed(GRADES)}
        numbers |= {name: getattr(tally, name) for name in ("no_leak_found", "inconclusive", "sent_in_clear")}
        counts = [_cell(str(number), kind if number else "") for kind, number in numbers.items()]
        rows.append([_cell(_name(run)), _cell("–" if accuracy is None else f"{accuracy:.3f}"), *counts])
    return _table(heads, rows) if rows else ""


def _cell(words: str, shade: str = "") -> str:
    style = f' style="background: rgba({_SHADES[shade]})"' if shade else ""
    return f"<td{style}>{escape(words)}</td>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{chr(10).join(row)}</tr>' for row in rows)}</table>"
