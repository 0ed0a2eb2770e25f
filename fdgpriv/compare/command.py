"""The command line of the comparison: reads audits, prints changes, writes reports, and fails on request."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv.cli.command_line import BadUsage, Parser, once, say
from fdgpriv.results.leak_gate import LEAK_CONDITIONS, WANTED
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.files import write_text
from fdgpriv.utils.streams import lenient
from fdgpriv.utils.suggestions import did_you_mean

if TYPE_CHECKING:  # what needs torch is imported in functions, after the audits are read
    from fdgpriv.results.comparison import Comparison

FAILED, USAGE, INTERRUPTED, FAILED_ON = 1, 2, 3, 4
CONDITIONS = (*LEAK_CONDITIONS, "worse")
MEANINGS = (
    f"{WANTED}: a question of the last RUN leaks, of at least that grade by the point estimate; "
    "worse: a figure of a later RUN is worse after correction, a verdict moved to leak, or a training failed"
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
    with lenient():
        try:
            return _main(_options(argv))
        except (ValueError, OSError) as error:
            say("compare", str(error))
            return USAGE
        except KeyboardInterrupt:
            say("compare", "interrupted; nothing is half-written")
            return INTERRUPTED


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
    if (out := options.get("out")) is not None:
        check_name(str(out), "--out")
        existing = next((path for path in (out, *out.parents) if path.exists()), out)
        if existing.exists() and not existing.is_dir():
            raise BadUsage(f"--out: want a folder, got the file {existing}")
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
    from fdgpriv.compare.gate import failures, missing
    from fdgpriv.compare.summary import summary

    comparison = compared(audits)
    failed_reports: list[str] = []
    written = _written(comparison, options["out"], failed_reports) if "out" in options else []
    print(summary(comparison))
    if written:
        print(f"report: {', '.join(map(str, written))}")
    for failure in failed_reports:
        say("compare", f"failed: {failure}")
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


def _written(comparison: "Comparison", out: Path, failures: list[str]) -> list[Path]:
    """Writes the comparison as JSON and in every report format that supports it; returns the paths.

    A report that fails is omitted and adds a line to `failures`.
    """
    from fdgpriv.report import Report

    texts = {"compare.json": comparison.text()}
    for name in Report.names():
        rendered = attempt(partial(_rendered, name, comparison))
        if isinstance(rendered, Failed):
            failures.append(f"report {name}: {rendered.line}")
        elif rendered is not None:
            filename, text = rendered
            texts[filename] = text
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def _rendered(name: str, comparison: "Comparison") -> tuple[str, str] | None:
    """The file name and text of the comparison in this format; None if it has no comparisons."""
    from fdgpriv.report import Report

    report = Report.named(name)()
    text = report.compared(comparison)
    return None if text is None else (f"compare{Path(report.filename).suffix}", text)
