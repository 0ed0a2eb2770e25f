"""The command line of the leaderboard: reads audits, prints tables of methods by secrets, and writes them as documents."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv.cli.command_line import Parser, check_out, exit_code, once, say
from fdgpriv.utils.defaults import BASELINE, METHOD
from fdgpriv.utils.files import write_texts

if TYPE_CHECKING:  # what needs torch is imported in functions
    from fdgpriv.results.leaderboard import Leaderboard

FAILED = 1
EXAMPLES = f"""examples:
  fdgpriv leaderboard runs/{BASELINE} runs/{METHOD} --out runs/leaderboard
  fdgpriv leaderboard runs/* --defense all --baseline {METHOD}
"""


def parser() -> Parser:
    """The argument parser of the leaderboard."""
    p = Parser(
        prog="fdgpriv leaderboard",
        description="Methods by secrets: the worst grade over all adversaries, artifacts and runs, and accuracy beside it.",
        epilog=EXAMPLES,
    )
    p.usage = "%(prog)s RUN [RUN ...] [options]"
    p.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="a finished audit's --out, or its results.json")
    p.add_argument(
        "--out", type=Path, metavar="DIR", help="write leaderboard.html, leaderboard.md and leaderboard.tex there"
    )
    p.add_argument(
        "--defense",
        nargs="+",
        dest="defenses",
        metavar="SPEC",
        help="rows of runs under these defenses, by name or specification; all (default: none)",
    )
    p.add_argument(
        "--baseline",
        metavar="METHOD",
        help=f"compare accuracies with this method by pairs of trainings (default: {BASELINE})",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 success, 1 a document failed, 2 invalid usage, 3 interrupted; bugs raise."""
    return exit_code("leaderboard", lambda: _main(_options(argv)), "nothing is half-written")


def _options(argv: Sequence[str] | None) -> dict[str, Any]:
    """The options on the command line, checked."""
    options = parser().options(argv)
    once("--defense", options.get("defenses", []))
    if "out" in options:
        check_out(options["out"])
    return options


def _main(options: dict[str, Any]) -> int:
    from fdgpriv.leaderboard.standings import leaderboard, read
    from fdgpriv.leaderboard.summary import summary

    runs = read(options.get("runs", []))
    given = {name: options[name] for name in ("defenses", "baseline") if name in options}
    tables = leaderboard(runs, **given)
    paths, failures = _written(tables, options["out"]) if "out" in options else ([], [])
    print(summary(tables))
    if paths:
        print(f"report: {', '.join(map(str, paths))}")
    for failure in failures:
        say("leaderboard", f"failed: {failure}")
    return FAILED if failures else 0


def _written(leaderboard: "Leaderboard", out: Path) -> tuple[list[Path], list[str]]:
    """Writes the leaderboard in every report format that has one; the paths, and a line for each format that failed."""
    from fdgpriv.report import documents

    texts, failures = documents("leaderboard", lambda report: report.ranked(leaderboard, out))
    return write_texts(out, texts), failures
