"""The role Report: renders the results of an audit as one document."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fdgpriv.registry import Role
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results
from fdgpriv.results.leaderboard import Leaderboard
from fdgpriv.utils.failures import Failed, attempt

if TYPE_CHECKING:  # drawing.py imports matplotlib
    from fdgpriv.utils.drawing import Figure


class Report(Role):
    """Renders the findings as one document."""

    folder = "reports"
    filename: ClassVar[str]

    @abstractmethod
    def render(self, results: Results, folder: Path) -> str:
        """The document; `folder` contains the figures that the findings refer to."""

    def figures(self, results: Results, folder: Path) -> Mapping[str, "Callable[[], Figure]"]:
        """By name, a function that draws each of the results' figures for a paper; empty if the format has none.

        Args:
            results: Results of an audit.
            folder: The folder of its pictures and score tables.
        """
        return {}

    def compared(self, comparison: Comparison) -> str | None:
        """A comparison of audits in this format; None if the format has none."""
        return None

    def ranked(self, leaderboard: Leaderboard, folder: Path) -> str | None:
        """A leaderboard in this format; None if the format has none.

        Args:
            leaderboard: The leaderboard of several audits.
            folder: The folder of the document, for relative links to the audits' reports.
        """
        return None


def documents(stem: str, text_of: Callable[[Report], str | None]) -> tuple[dict[str, str], list[str]]:
    """By file name, the document in each report format; and a line for each format that failed.

    Args:
        stem: Stem of the file names.
        text_of: The text in a format; None if the format has none.
    """
    texts: dict[str, str] = {}
    failures = []
    for name in Report.names():
        document = attempt(partial(_document, name, text_of))
        if isinstance(document, Failed):
            failures.append(f"report {name}: {document.line}")
        else:
            suffix, text = document
            if text is not None:
                texts[f"{stem}{suffix}"] = text
    return texts, failures


def _document(name: str, text_of: Callable[[Report], str | None]) -> tuple[str, str | None]:
    """The suffix and the text in this format."""
    report = Report.named(name)()
    return Path(report.filename).suffix, text_of(report)
