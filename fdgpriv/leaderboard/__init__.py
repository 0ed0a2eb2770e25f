"""Tables of methods by secrets, with accuracy beside them, from the runs of several audits.

Run `python -m fdgpriv.leaderboard RUN [RUN ...]`.
"""

from fdgpriv.leaderboard.command import main

__all__ = ["main"]
