"""The command line of the comparison: reads audits, prints changes, writes reports, and fails on request."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv.cli.command_line import BadUsage, Parser, check_out, exit_code, once, say
from fdgpriv.results.leak_gate import LEAK_CONDITIONS, WANTED
from fdgpriv.utils.files import write_texts
from fdgpriv.utils.suggestions import did_you_mean

if TYPE_CHECKING:  # what needs torch is imported in functions, after the audits are read
    from fdgpriv.results.comparison import Comparison

FAILED, FAILED_ON = 1, 4
CONDITIONS = (*LEAK_CONDITIONS, "worse")
MEANINGS = (
    f"{WANTED}: a question of the last RUN leaks, of at least that grade by the point estimate; "
    "worse: a figure of a later RUN is worse after correction, a verdict moved to leak, or a training failed; "
    "a RUN of another preset, other clients or images is not comparable, and gates nothing"
)
EXAMPLES = """examples:
  fdgpriv compare runs/main runs/branch
  fdgpriv compare runs/main runs/branch --out runs/compared --fail-on leak:moderate worse
"""


def parser() -> Parser:
    """The argument parser of the comparison."""
    p = Parser(
        prog="fdgpriv compare",
        description="Compare audits with a baseline: accuracy, leakage, verdicts, bytes sent and epsilon.",
        epilog=EXAMPLES,
    )
    p.usage = "%(prog)s RUN RUN [RUN ...] [options]"
    p.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="an audit's --out, or its results.json; first the baseline"
    )
    p.add_argument("--out", type=Path, metavar="DIR", help="write compare.html, compare.md and compare.json there")
    p.add_argument("--fail-on", nargs="+", dest="fail_on", metavar="WHAT", help=f"exit with 4 if {MEANINGS}")
    p.add_argument(
        "--allow-missing",
        action="store_true",
        help="let --fail-on pass where a later RUN leaves out, or failed at, what the baseline asks",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 success, 1 a report failed, 2 invalid usage, 3 interrupted, 4 --fail-on is met; bugs raise."""
    return exit_code("compare", lambda: _main(_options(argv)), "nothing is half-written")


def _options(argv: Sequence[str] | None) -> dict[str, Any]:
    """The options on the command line, checked."""
    options = parser().options(argv)
    conditions = options.setdefault("fail_on", [])
    for condition in conditions:
        if condition not in CONDITIONS:
            suggestion = did_you_mean(condition, CONDITIONS)
            raise BadUsage(f"--fail-on: want {WANTED}, or worse, after the runs; got {condition!r}{suggestion}")
    once("--fail-on", conditions)
    if "allow_missing" in options and not conditions:
        raise BadUsage("--allow-missing: has no effect without --fail-on")
    if "out" in options:
        check_out(options["out"])
    return options


def _main(options: dict[str, Any]) -> int:
    from fdgpriv.compare.audits import read

    audits = read(options.get("runs", []))
    about_leaks = [condition for condition in options["fail_on"] if condition in LEAK_CONDITIONS]
    if about_leaks and not audits[-1].results.questions():
        raise BadUsage(
            f"--fail-on {about_leaks[0]}: want an audit that was attacked, got {audits[-1].name}, which asks no question"
        )
    from fdgpriv.compare.comparison import compared
    from fdgpriv.compare.gate import failures, missing, not_gated
    from fdgpriv.compare.summary import summary

    comparison = compared(audits)
    paths, failed_reports = _written(comparison, options["out"]) if "out" in options else ([], [])
    print(summary(comparison))
    if paths:
        print(f"report: {', '.join(map(str, paths))}")
    for failure in failed_reports:
        say("compare", f"failed: {failure}")
    for sentence in not_gated(comparison) if options["fail_on"] else []:
        say("compare", f"--fail-on: {sentence}")
    reasons = failures(options["fail_on"], comparison, audits[-1])
    lost = missing(comparison) if options["fail_on"] else []
    if lost and "allow_missing" not in options:
        reasons += [f"{'; '.join(lost)}; --allow-missing accepts that"]
    elif lost:
        say("compare", f"--allow-missing: {'; '.join(lost)}")
    if reasons:
        say("compare", f"--fail-on: {'; '.join(reasons)}")
        return FAILED_ON
    return FAILED if failed_reports else 0


def _written(comparison: "Comparison", out: Path) -> tuple[list[Path], list[str]]:
    """Writes the comparison as JSON and in every report format that has one; the paths, and a line for each that failed."""
    from fdgpriv.report import documents

    texts, failures = documents("compare", lambda report: report.compared(comparison))
    return write_texts(out, {"compare.json": comparison.text(), **texts}), failures
