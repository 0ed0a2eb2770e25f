"""Where the images lie in a grid of reconstructions, stored in its PNG, so that reports can show single images."""

from collections.abc import Sequence
from typing import Annotated

from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from pydantic import Field, ValidationError

from fdgpriv.utils.records import Entry, Word

COLUMNS = {  # headings by name of the column, in order
    "truth": "truth",
    "attack": "reconstruction",
    "autoencoder": "from its own style",
    "nearest_own": "nearest own image",
    "mean_image": "public mean",
    "domain_mean": "domain mean",
    "other_client": "other client",
    "random_style": "random style",
    "unconditional": "unconditional",
}
_KEY = "fdgpriv grid"  # of the PNG's text chunk
Names = Annotated[tuple[Word, ...], Field(min_length=1, max_length=64)]
Pixels = Annotated[float, Field(ge=0, le=10_000)]


class PictureGrid(Entry):
    """Images of one size in rows and columns.

    Attributes:
        columns: The name of each column.
        rows: The label of each row.
        left, top: Where the first image begins, in pixels of the PNG.
        step: From one image to the next, in pixels of the PNG.
        shown: Side of an image, in pixels of the PNG.
        side: Side of an image before it was enlarged or reduced.
    """

    columns: Names
    rows: Names
    left: Pixels
    top: Pixels
    step: Annotated[float, Field(gt=0, le=10_000)]
    shown: Annotated[float, Field(gt=0, le=10_000)]
    side: Annotated[int, Field(gt=0, le=10_000)]

    def metadata(self) -> dict[str, str]:
        """The text chunk of the PNG, by its key."""
        return {_KEY: self.model_dump_json()}

    @classmethod
    def read(cls, picture: Image.Image) -> "PictureGrid | None":
        """The grid in this picture; None if it has none, or one that does not fit into it."""
        text = picture.text.get(_KEY) if isinstance(picture, PngImageFile) else None
        try:
            grid = None if text is None else cls.model_validate_json(text)
        except ValidationError:
            return None
        if grid is None or len(set(grid.columns)) < len(grid.columns):
            return None
        right = grid.left + (len(grid.columns) - 1) * grid.step + grid.shown
        bottom = grid.top + (len(grid.rows) - 1) * grid.step + grid.shown
        return grid if right <= picture.width and bottom <= picture.height else None

    def images(
        self, picture: Image.Image, name: str, rows: Sequence[int], largest: int, across: bool = False
    ) -> Image.Image:
        """The images of a column in these rows, one below the other, or side by side if `across`.

        Their side is `self.side`, or `largest` if that is smaller; enlarged images are read at their pixels' centres.
        """
        side = min(self.side, largest)
        exact = side == self.side and self.shown >= self.side
        resampling = Image.Resampling.NEAREST if exact else Image.Resampling.LANCZOS
        x = self.left + self.columns.index(name) * self.step
        joined = Image.new(picture.mode, (side * len(rows), side) if across else (side, side * len(rows)))
        for place, row in enumerate(rows):
            y = self.top + row * self.step
            image = picture.resize((side, side), resampling, (x, y, x + self.shown, y + self.shown))
            joined.paste(image, (place * side, 0) if across else (0, place * side))
        return joined
