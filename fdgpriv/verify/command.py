"""The command line of the verification: prints one line for each difference, or what agrees."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fdgpriv.cli.command_line import BadUsage, Parser, exit_code

DIFFERENT = 4


def parser() -> Parser:
    """The argument parser of the verification."""
    p = Parser(
        prog="fdgpriv verify",
        description="Judge a run again from its stored scores, without training, and compare: files with their SHA-256,\n"
        "score tables with each other, results.json with what they give, reports with results.json.",
        epilog="exit code: 0 if all agree, 4 if something differs, 2 for invalid usage, 3 if interrupted\n",
    )
    p.usage = "%(prog)s RUN [options]"
    p.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="an audit's --out")
    p.add_argument("--recording", type=Path, metavar="DIR", help="the recording that RUN is an audit of")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 all agree, 2 invalid usage, 3 interrupted, 4 something differs; bugs raise."""
    return exit_code("verify", lambda: _main(parser().options(argv)), "nothing was written")


def _main(options: dict[str, Any]) -> int:
    if len(folders := options.get("runs", [])) != 1:
        raise BadUsage(f"want one RUN, the folder of an audit; got {' '.join(map(str, folders)) or 'none'}")
    from fdgpriv.verify.verification import verified

    verification = verified(folders[0], options.get("recording"))
    for difference in verification.differences:
        print(difference)
    for note in verification.notes:
        print(f"note: {note}")
    if verification.differences:
        number = len(verification.differences)
        print(f"{folders[0]}: {number} difference{'s' * (number > 1)}; compared were {verification.compared}")
        return DIFFERENT
    print(f"{folders[0]}: all agree: {verification.compared}")
    return 0
