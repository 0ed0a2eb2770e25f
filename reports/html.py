"""report.html: one file that needs no network and no script, light and dark, on paper and on a phone."""

from functools import cache, partial
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fdgpriv.report import Report
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results
from fdgpriv.results.leaderboard import Leaderboard

from ._bars import LeadBar
from ._comparison import comparison_content
from ._content import report_content
from ._figures import Drawing
from ._leaderboard import leaderboard_content
from ._pictures import GridPart, as_sent, grid, picture
from ._reconstructions import Reconstruction
from ._words import GRADE_MEANINGS, MEANINGS, NOT_ATTACKED, OUTCOMES, verdict_words

STRIP_SIDE = 48  # pixels of an image on the first screen


class Html(Report):
    """The whole report as one page; the template escapes every text, and every picture is embedded."""

    filename: ClassVar[str] = "report.html"

    def render(self, results: Results, folder: Path) -> str:
        """The page; its pictures are read from `folder`."""
        template = _environment().get_template("report.html")
        page = template.render(
            content=report_content(results),
            picture=partial(picture, folder),
            grid=partial(grid, folder),
            strip=partial(_strip, folder),
            inline=_inline,
            words=verdict_words,
            meanings=MEANINGS,
            grades=GRADE_MEANINGS,
            example=LeadBar(2.2, (1.4, 3.0)),
            not_attacked=NOT_ATTACKED,
        )
        return page.rstrip() + "\n"

    def compared(self, comparison: Comparison) -> str:
        """The comparison as a page in the same style, without pictures."""
        template = _environment().get_template("compare.html")
        page = template.render(
            content=comparison_content(comparison), outcomes=OUTCOMES, picture=None, grid=None, inline=None
        )
        return page.rstrip() + "\n"

    def ranked(self, leaderboard: Leaderboard, folder: Path) -> str:
        """The leaderboard as a page in the same style; its cells lead to the evidence in the audits' reports."""
        template = _environment().get_template("leaderboard.html")
        page = template.render(
            content=leaderboard_content(leaderboard, folder),
            words=verdict_words,
            meanings=MEANINGS,
            grades=GRADE_MEANINGS,
            picture=None,
            grid=None,
            inline=None,
        )
        return page.rstrip() + "\n"


@cache
def _environment() -> Environment:
    templates = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _strip(folder: Path, entry: Reconstruction) -> tuple[GridPart, ...]:
    """The pictures of one reconstruction, side by side."""
    return as_sent(grid(folder, entry.file, entry.columns, STRIP_SIDE, across=True), entry.level)


def _inline(drawing: Drawing) -> Markup:
    """The SVG unescaped: matplotlib and `_figures` have escaped every text in it."""
    return Markup(drawing.svg)
