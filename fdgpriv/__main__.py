"""The console script: fdgpriv audit, fdgpriv compare, fdgpriv selftest."""

import sys
from importlib import import_module

from fdgpriv.cli.utf8 import restart_in_utf8

COMMANDS = {
    "audit": "train a federation, attack the shared artifacts, report the leaks",
    "compare": "what became better or worse since a baseline audit; can fail a build",
    "selftest": "check that verdicts are calibrated: A/A reports, planted leaks, simulated draws",
}


def main() -> int:
    """Run the command named by the first argument; without arguments, list the commands."""
    restart_in_utf8()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        lines = [f"  fdgpriv {command:10} {what}" for command, what in COMMANDS.items()]
        print("\n".join(["commands, each with a --help of its own:", *lines]))
        return 0
    if name not in COMMANDS:
        print(f"fdgpriv: want a command of {', '.join(COMMANDS)}; got {name!r}", file=sys.stderr)
        return 2
    code: int = import_module(f"fdgpriv.{name}").main(sys.argv[2:])
    return code


if __name__ == "__main__":
    sys.exit(main())
