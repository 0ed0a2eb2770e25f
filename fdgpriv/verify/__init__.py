"""Verifies a run: judges it again from its stored scores and checksums, without training, and compares it with its report.

Run `python -m fdgpriv.verify RUN`.
"""

from fdgpriv.verify.command import main

__all__ = ["main"]
