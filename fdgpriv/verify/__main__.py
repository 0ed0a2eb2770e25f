"""Runs the verification as ``python -m fdgpriv.verify``."""

import sys

from fdgpriv.cli.utf8 import restart_in_utf8
from fdgpriv.verify.command import main

if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
