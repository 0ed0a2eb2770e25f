"""Runs the self test as ``python -m fdgpriv.selftest``."""

from fdgpriv.selftest.command import main

if __name__ == "__main__":
    raise SystemExit(main())
