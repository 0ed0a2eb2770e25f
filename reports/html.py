"""report.html: one file that needs no network and no script, light and dark, on paper and on a phone."""

import base64
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fdgpriv.report import Report
from fdgpriv.results.comparison import Comparison
from fdgpriv.results.finding import Results

from ._comparison import comparison_content
from ._content import report_content
from ._figures import Drawing
from ._words import MEANINGS, NOT_ATTACKED, OUTCOMES, VERDICTS

PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_PICTURE = 8 * 2**20  # bytes
COLUMN = 900  # pixels that a picture may fill


class Html(Report):
    """The whole report as one page; the template escapes every text, and every picture is embedded."""

    filename: ClassVar[str] = "report.html"

    def render(self, results: Results, folder: Path) -> str:
        """The page; its pictures are read from `folder`."""
        template = _environment().get_template("report.html")
        page = template.render(
            content=report_content(results),
            picture=lambda name: picture(folder, name),
            inline=_inline,
            verdicts=VERDICTS,
            meanings=MEANINGS,
            not_attacked=NOT_ATTACKED,
        )
        return page.rstrip() + "\n"

    def compared(self, comparison: Comparison) -> str:
        """The comparison as a page in the same style, without pictures."""
        template = _environment().get_template("compare.html")
        page = template.render(content=comparison_content(comparison), outcomes=OUTCOMES, picture=None, inline=None)
        return page.rstrip() + "\n"


@cache
def _environment() -> Environment:
    templates = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _inline(drawing: Drawing) -> Markup:
    """The SVG unescaped: matplotlib and `_figures` have escaped every text in it."""
    return Markup(drawing.svg)


@dataclass(frozen=True)
class Inlined:
    """A PNG as a data URI, and the size at which it is shown."""

    uri: str
    width: int
    height: int
    enlarged: bool


def picture(folder: Path, name: str) -> Inlined | None:
    """A PNG in `folder`, small ones enlarged by an integer; None if it does not exist or lies outside."""
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()) or not path.is_file() or path.stat().st_size > LARGEST_PICTURE:
            return None
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    if not data.startswith(PNG) or len(data) < 24:
        return None
    width, height = struct.unpack(">II", data[16:24])
    factor = max(1, min(4, COLUMN // max(width, 1)))
    uri = f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"
    return Inlined(uri, width * factor, height * factor, factor > 1)
