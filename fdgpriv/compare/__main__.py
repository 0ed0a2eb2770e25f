"""Runs the comparison as ``python -m fdgpriv.compare``."""

import sys

from fdgpriv.compare.command import main

if __name__ == "__main__":
    sys.exit(main())
