"""The console script: fdgpriv audit, fdgpriv selftest."""

import sys
from importlib import import_module

COMMANDS = {"audit": "fdgpriv.audit", "selftest": "fdgpriv.selftest"}


def main() -> int:
    """Run the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print(f"fdgpriv: want a command of {', '.join(COMMANDS)}; got {name!r}", file=sys.stderr)
        return 2
    code: int = import_module(COMMANDS[name]).main(sys.argv[2:])
    return code


if __name__ == "__main__":
    sys.exit(main())
