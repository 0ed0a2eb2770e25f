"""Checks that verdicts are calibrated: false alarms where nothing leaks, and how often planted leaks are found.

Run `python -m fdgpriv.selftest`; it ends with 0 if all is as it should be, else with 1.
"""

from fdgpriv.selftest.command import main

__all__ = ["main"]
