"""The role Report: renders the results of an audit as one document."""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from fdgpriv.registry import Role
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results


class Report(Role):
    """Renders the findings as one document."""

    folder = "reports"
    filename: ClassVar[str]

    @abstractmethod
    def render(self, results: "Results", folder: Path) -> str:
        """The document; `folder` contains the figures that the findings refer to."""

    def compared(self, comparison: Comparison) -> str | None:
        """A comparison of audits as a document of the same format; None where the format has none."""
        return None
