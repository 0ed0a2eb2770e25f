"""The role Report: turns the results of an audit into one document."""

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from fdgpriv.registry import Role
from fdgpriv.results.finding import Results


class Report(Role):
    """Findings in, one document out."""

    folder = "reports"
    filename: ClassVar[str]

    @abstractmethod
    def render(self, results: "Results", folder: Path) -> str:
        """The document; `folder` holds the figures that the findings name."""
