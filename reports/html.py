"""report.html: one file that needs no network and no script, light and dark, on paper and on a phone."""

import base64
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fdgpriv.report import Report
from fdgpriv.results.finding import Results

from ._dots import NOTES
from ._story import story
from ._words import MEANINGS, NOT_ATTACKED, VERDICTS

PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_PICTURE = 8 * 2**20  # bytes
COLUMN = 900  # pixels that a picture may fill


class Html(Report):
    """The whole report as one page; every text is escaped by the template, every picture lies inside the file."""

    filename: ClassVar[str] = "report.html"

    def render(self, results: Results, folder: Path) -> str:
        """The page; pictures that the findings name are read from `folder`."""
        template = _environment().get_template("report.html")
        words = {"verdicts": VERDICTS, "meanings": MEANINGS, "notes": NOTES, "not_attacked": NOT_ATTACKED}
        page = template.render(story=story(results), picture=lambda name: picture(folder, name), **words)
        return page.rstrip() + "\n"


@cache
def _environment() -> Environment:
    templates = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=templates, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@dataclass(frozen=True)
class Picture:
    """A PNG as a data URI, and the size at which it is shown."""

    uri: str
    width: int
    height: int
    enlarged: bool


def picture(folder: Path, name: str) -> Picture | None:
    """A PNG of `folder`, small ones enlarged by a whole number; None where there is none, or it lies elsewhere."""
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
    return Picture(uri, width * factor, height * factor, factor > 1)
