"""What a guarantee says if its noise was made too small on purpose (--inject-bug)."""

from fdgpriv.utils.defaults import Bug


def warning(bug: Bug | None) -> str:
    """The start of the statement; empty without a bug."""
    return "" if bug is None else f"BUG INJECTED ({bug}): the noise is too small for this claim. "
