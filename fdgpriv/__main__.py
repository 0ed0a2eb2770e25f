"""The console script: fdgpriv audit, fdgpriv compare, fdgpriv leaderboard, fdgpriv verify, fdgpriv selftest."""

import sys
from importlib import import_module

from fdgpriv._version import __version__
from fdgpriv.cli.utf8 import restart_in_utf8
from fdgpriv.utils.suggestions import did_you_mean, same_name

COMMANDS = {
    "audit": "train a federation, attack the shared artifacts, report the leaks",
    "compare": "what became better or worse since a baseline audit; can fail a build",
    "leaderboard": "methods by secrets from the runs of several audits, with accuracy beside",
    "verify": "judge a run again from its stored scores, and compare with its results and reports",
    "selftest": "check that verdicts are calibrated: A/A reports, planted leaks, simulated draws",
}


def main() -> int:
    """Run the command named by the first argument; without arguments, list the commands."""
    restart_in_utf8()
    word = sys.argv[1] if len(sys.argv) > 1 else "--help"
    name = same_name(word, (*COMMANDS, "help", "version")) or word
    if name in ("-h", "--help", "help"):
        lines = [f"  fdgpriv {command:11} {what}" for command, what in COMMANDS.items()]
        print("\n".join(["commands, each with a --help of its own:", *lines, "  fdgpriv --version"]))
        return 0
    if name in ("--version", "version"):
        print(f"fdgpriv {__version__}")
        return 0
    if name not in COMMANDS:
        suggestion = did_you_mean(word, COMMANDS)
        if word.startswith("-"):
            suggestion = f"; options follow a command: fdgpriv {next(iter(COMMANDS))} {' '.join(sys.argv[1:])}"
        print(f"fdgpriv: want a command of {', '.join(COMMANDS)}; got {word!r}{suggestion}", file=sys.stderr)
        return 2
    code: int = import_module(f"fdgpriv.{name}").main(sys.argv[2:])
    return code


if __name__ == "__main__":
    sys.exit(main())
