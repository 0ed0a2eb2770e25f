"""The results that `run_audit` returns, with data frames, figures and reports from the folder of the audit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import PrivateAttr

from fdgpriv.report import Report
from fdgpriv.results import overview
from fdgpriv.results.finding import Results
from fdgpriv.results.records import FlatRow, by_question, by_run
from fdgpriv.utils.file_names import expanded
from fdgpriv.utils.files import write_bytes, write_text
from fdgpriv.utils.suggestions import did_you_mean

if TYPE_CHECKING:  # imported when a table is read or a figure is drawn
    import pandas as pd

    from fdgpriv.results.score_tables import ScoreFrames
    from fdgpriv.utils.drawing import Figure

FILE = "results.json"
_TABLES = ("evaluations", "scores", "candidates", "aggregates")


class AuditResults(Results):
    """The results of an audit, as `fdgpriv.Results`, with the folder of its score tables and pictures.

    In an interactive session they show themselves on one screen; in a notebook, as a table.

    Example:
        >>> results = fdgpriv.Results.load("runs/mine")  # doctest: +SKIP
        >>> results.figure("frontier").savefig("frontier.pdf")  # doctest: +SKIP
    """

    _folder: Path | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path | None:
        """The folder of score tables and pictures; None for results without a folder."""
        return self._folder

    @classmethod
    def of(cls, results: Results, folder: Path | None) -> "AuditResults":
        """The same results, with the folder of their audit."""
        audited = cls.model_construct(**{name: getattr(results, name) for name in Results.model_fields})
        audited._folder = folder
        return audited

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Reads the results of an audit.

        Args:
            path: The folder of the audit, or its results.json.

        Raises:
            ValueError: There are none, or they violate the schema.
        """
        path = expanded(path)
        file = path / FILE if path.is_dir() else path
        if not file.exists():
            raise ValueError(f"want the folder of a finished audit, or its {FILE}; got {path}, which {_lack(path)}")
        results = super().load(file)
        results._folder = file.parent
        return results

    def save(self, path: Path | str) -> None:
        """Writes results.json, score tables and pictures into a folder, so that `load` finds all of it there.

        Args:
            path: The folder, which is created where there is none; with the suffix .json, a file of the results alone.
        """
        path = expanded(path)
        if path.suffix != ".json":
            path.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and self._folder is not None and self._folder.resolve() != path.resolve():
            for name in self._files():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                write_bytes(path / name, (self._folder / name).read_bytes())
        super().save(path)

    def matrix(self) -> "pd.DataFrame":
        """A row for each question of each run, with its evidence, and for what was sent in clear.

        A question that is the same measurement for several adversaries has one row: `adversary`, and the others in `also`.
        """
        return _frame(by_question(self.runs))

    def frontier(self) -> "pd.DataFrame":
        """A row for each run: accuracy on the unseen domain, proved epsilon, number of verdicts, leakage by secret."""
        return _frame(by_run(self.runs))

    def to_pandas(self) -> "ScoreFrames":
        """The four score tables as data frames: evaluations, scores, candidates, aggregates.

        Raises:
            ValueError: The results have no folder, or its tables are damaged.
        """
        from fdgpriv.results.score_tables import ScoreTables

        return ScoreTables.load(self._known_folder("score tables")).to_pandas()

    def figures(self) -> "Mapping[str, Callable[[], Figure]]":
        """By name, a function that draws each figure that these results have."""
        folder = self._known_folder("figures")
        drawings: dict[str, Callable[[], Figure]] = {}
        for report in Report.importable().values():
            drawings |= report().figures(self, folder)
        return drawings

    def figure(self, name: str) -> "Figure":
        """A figure for a paper, of matplotlib.

        Args:
            name: ``frontier``: accuracy against leakage, by defense; ``curves``: leakage against the number of images;
                ``reconstructions``: private images and their reconstructions; ``roc``: of membership attacks.

        Raises:
            ValueError: These results have no such figure, with those that they have.
        """
        drawings = self.figures()
        if name not in drawings:
            known = ", ".join(drawings) or "none"
            raise ValueError(
                f"want a figure that these results have: {known}; got {name!r}{did_you_mean(name, drawings)}"
            )
        return drawings[name]()

    def report(self, path: Path | str) -> Path:
        """Writes a report; its format follows from the suffix.

        Args:
            path: A file with the suffix of a report: .html, .md, .csv, .tex.

        Returns: the path.

        Raises:
            ValueError: No report has this suffix.
        """
        path = expanded(path)
        by_suffix = {Path(report.filename).suffix: report for report in Report.importable().values()}
        if path.suffix.lower() not in by_suffix:
            raise ValueError(f"want a file that ends in {', '.join(sorted(by_suffix))}; got {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, by_suffix[path.suffix.lower()]().render(self, self._folder or path.parent))
        return path

    def _known_folder(self, content: str) -> Path:
        if self._folder is None:
            raise ValueError(f"want results of a folder for their {content}: Results.load(FOLDER); got results of none")
        return self._folder

    def _files(self) -> list[str]:
        """The existing score tables and pictures, relative to the folder."""
        pictures = [figure.file for run in self.runs for figure in run.figures]
        pictures += [file for run in self.runs for attack in run.attacks for file in attack.figures]
        names = dict.fromkeys([*(f"{table}.parquet" for table in _TABLES), *pictures])
        return [name for name in names if self._folder is not None and (self._folder / name).is_file()]

    def __eq__(self, other: object) -> bool:
        """Whether both have equal content, wherever their files are."""
        return isinstance(other, Results) and self.text() == other.text()

    def __repr__(self) -> str:
        return overview.text(self)

    def __str__(self) -> str:
        return overview.text(self)

    def _repr_html_(self) -> str:
        return overview.html(self)


def _lack(path: Path) -> str:
    """Why a path has no results, for an error."""
    if not path.exists():
        return "does not exist"
    return f"has no {FILE}" + ("; its audit is not finished" if (path / "config.json").exists() else "")


def _frame(rows: list[FlatRow]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame.from_records(rows)
