"""The role Report: renders the results of an audit as one document."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fdgpriv.registry import Role
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results

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
        """By name, what draws each figure that results have, for a paper; empty where the format has none.

        Args:
            results: Of an audit.
            folder: Its pictures and score tables.
        """
        return {}

    def compared(self, comparison: Comparison) -> str | None:
        """A comparison of audits as a document of the same format; None where the format has none."""
        return None
