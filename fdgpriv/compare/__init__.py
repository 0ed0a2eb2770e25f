"""Compares audits: what became better or worse since a baseline, with intervals by pairs and one correction over all tests.

Run `python -m fdgpriv.compare RUN RUN [RUN ...]`.
"""

from fdgpriv.compare.command import main

__all__ = ["main"]
