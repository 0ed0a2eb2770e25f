"""The command line of the comparison: reads audits, prints what changed, writes the reports, and fails where asked to."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv.cli.command_line import BadUsage, Parser, once, say
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.files import write_text
from fdgpriv.utils.streams import lenient

if TYPE_CHECKING:  # what needs torch is imported in functions, after the audits are read
    from fdgpriv.results.comparison import Comparison

FAILED, USAGE, INTERRUPTED, FAILED_ON = 1, 2, 3, 4
CONDITIONS = {
    "leak": "a question of the last RUN leaks",
    "worse": "a figure of a later RUN is worse after correction, a verdict moved to leak, or a training failed",
}
EXAMPLES = """examples:
  fdgpriv compare runs/main runs/branch
  fdgpriv compare runs/main runs/branch --out runs/compared --fail-on leak worse
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
    conditions = "; ".join(f"{name}: {what}" for name, what in CONDITIONS.items())
    p.add_argument("--fail-on", nargs="+", dest="fail_on", metavar="WHAT", help=f"exit with 4 if {conditions}")
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
            return _main(_given(argv))
        except (ValueError, OSError) as error:
            say("compare", str(error))
            return USAGE
        except KeyboardInterrupt:
            say("compare", "interrupted; nothing is half-written")
            return INTERRUPTED


def _given(argv: Sequence[str] | None) -> dict[str, Any]:
    """The options that were given, checked."""
    given = vars(parser().parse_args(argv))
    conditions = given.setdefault("fail_on", [])
    for one in conditions:
        if one not in CONDITIONS:
            raise BadUsage(f"--fail-on: want {' or '.join(CONDITIONS)}, after the runs; got {one!r}")
    once("--fail-on", conditions)
    if "allow_missing" in given and not conditions:
        raise BadUsage("--allow-missing: has no effect without --fail-on")
    if (out := given.get("out")) is not None:
        check_name(str(out), "--out")
        taken = next((path for path in (out, *out.parents) if path.exists()), out)
        if taken.exists() and not taken.is_dir():
            raise BadUsage(f"--out: want a folder, got the file {taken}")
    return given


def _main(given: dict[str, Any]) -> int:
    from fdgpriv.compare.audits import read

    audits = read(given.get("runs", []))
    if "leak" in given["fail_on"] and not audits[-1].results.questions():
        raise BadUsage(
            f"--fail-on leak: want an audit that was attacked, got {audits[-1].name}, which asks no question"
        )
    from fdgpriv.compare.comparison import compared
    from fdgpriv.compare.gate import failures, missing
    from fdgpriv.compare.summary import summary

    comparison = compared(audits)
    unwritten: list[str] = []
    written = _written(comparison, given["out"], unwritten) if "out" in given else []
    print(summary(comparison))
    if written:
        print(f"report: {', '.join(map(str, written))}")
    for failure in unwritten:
        say("compare", f"failed: {failure}")
    said = failures(given["fail_on"], comparison, audits[-1])
    lost = missing(comparison) if given["fail_on"] else []
    if lost and "allow_missing" not in given:
        said += [f"{'; '.join(lost)}; --allow-missing accepts that"]
    elif lost:
        say("compare", f"--allow-missing: {'; '.join(lost)}")
    if said:
        say("compare", f"--fail-on: {'; '.join(said)}")
        return FAILED_ON
    return FAILED if unwritten else 0


def _written(comparison: "Comparison", out: Path, failures: list[str]) -> list[Path]:
    """Writes the comparison as JSON and in every format of the reports that has one; returns the paths.

    A report that fails is left out, and has a line in `failures`.
    """
    from fdgpriv.report import Report

    texts = {"compare.json": comparison.text()}
    for name in Report.names():
        found = attempt(partial(_rendered, name, comparison))
        if isinstance(found, Failed):
            failures.append(f"report {name}: {found.line}")
        elif found is not None:
            texts[found[0]] = found[1]
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def _rendered(name: str, comparison: "Comparison") -> tuple[str, str] | None:
    """The file name and text of this report on the comparison; None where it has none."""
    from fdgpriv.report import Report

    report = Report.named(name)()
    text = report.compared(comparison)
    return None if text is None else (f"compare{Path(report.filename).suffix}", text)
