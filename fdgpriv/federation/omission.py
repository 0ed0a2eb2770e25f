"""What a recording lacks: content that could not be recorded, and clients that failed."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.utils.failures import one_line

ENDED = "the run ended first"  # why a client did not answer
_SHOWN = 3  # omissions that a sentence names
_LENGTH = 200  # maximum characters of a content, a name or a reason


@dataclass(frozen=True)
class Omission:
    """Content that crossed the wire, or should have, and that a recording does not have.

    Attributes:
        sender, receiver: Names; one of them is ``"server"``, the other one of any form.
        round: None if it is not known.
        content: A kind, a tensor of it, or "answer" of a client that failed.
        reason: Why it is missing.
        failed: Whether the client failed; else the recorder could not record the content.
    """

    sender: str
    receiver: str
    round: int | None
    content: str
    reason: str
    failed: bool = False

    def __str__(self) -> str:
        place = "" if self.round is None else f" in round {self.round}"
        return f"{self.content} from {self.sender} to {self.receiver}{place} ({self.reason})"


def printable(text: object) -> str:
    """The object as text of one line, cut where it is long; the name of its type if it has no text."""
    try:
        shown = str(text)
    except Exception:
        shown = type(text).__name__
    return "".join(c if c.isprintable() else "?" for c in " ".join(shown.split()))[:_LENGTH]


def reason(error: Exception) -> str:
    """Why content could not be recorded, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if type(error) is ValueError else one_line(error)


def sentences(omissions: Sequence[Omission]) -> list[str]:
    """What is missing, for a report: a sentence on content that was not recorded, and one on clients that failed."""
    groups = [
        ("The recording is incomplete: not recorded", [omission for omission in omissions if not omission.failed]),
        ("Clients failed", [omission for omission in omissions if omission.failed]),
    ]
    return [f"{start} ({_number(members)}): {_listed(members)}." for start, members in groups if members]


def _number(omissions: Sequence[Omission]) -> str:
    rounds = sorted({omission.round for omission in omissions if omission.round is not None})
    place = f", in round {rounds[0]}" if len(rounds) == 1 else f", in {len(rounds)} rounds" if rounds else ""
    return f"{len(omissions)}{place}"


def _listed(omissions: Sequence[Omission]) -> str:
    """The first omission of each content and reason, and how many more there are."""
    first = {(omission.content, omission.reason): omission for omission in reversed(omissions)}
    shown = [str(omission) for omission in reversed(first.values())][:_SHOWN]
    more = len(omissions) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])
