"""The four score tables of a run, their columns, and their Parquet files.

``scores`` has one row for each scored prediction, ``candidates`` one for each candidate image of a membership question,
``aggregates`` one for each figure of many predictions, ``evaluations`` one for each attack by one adversary on one kind of
artifact. The column ``evaluation`` joins them. Columns are declared here only, and checked when a file is read.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, get_args, get_origin

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.question import Secret
from fdgpriv.results.score_rows import rows_file, write_rows
from fdgpriv.utils.failures import ends_the_run, one_line
from fdgpriv.utils.files import read_bytes, write_bytes
from fdgpriv.utils.records import Amount, Count, Entry, FileName, Text, Word

if TYPE_CHECKING:
    import pandas as pd

LARGEST_FILE = 2**30  # bytes of one table that are read
_COLUMN_OF = {"role": "adversary", "kind": "artifact"}  # fields whose columns have other names
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the date of a file in a ZIP archive, so that equal tables give equal bytes


class RunKey(NamedTuple):
    """What identifies one training of an audit."""

    method: str
    dataset: str
    target: str | None
    seed: int
    defense: str


class EvaluationRow(Entry):
    """One attack by one adversary on one kind of artifact: a row of ``evaluations``, without what identifies it.

    Attributes:
        attack: Its name.
        task: Its name; secret, metric, higher_leaks, bounds, perfect, scopes, relevant, relative_to and exact are the task's.
        budget: The attack's settings, in words.
        single_images: Whether it is evaluated on single images.
        threat: The adversary.
        kind: Of the artifact.
        level: Of the artifact on the wire: image, client or group.
        shared: Whether that artifact is on the wire at all.
        rounds_read, clients_read: How many rounds, and the artifacts of how many clients, the attack read to predict.
        auxiliary_images: Number of images that the adversary held.
        chance: Expected score of a random prediction, where that is one number.
        fingerprint: SHA-256 of the predictions that the verdict is about, of each repeat; empty where they are not known.
        not_applicable: Why nothing was evaluated, or None.
        failed: Whether that is an exception, or an answer that is no prediction.
        figures: Image files, relative to the run's folder.
        attack_s: Duration in seconds.
    """

    attack: Word
    task: Word
    secret: Secret
    metric: Word
    higher_leaks: bool
    bounds: tuple[float, float] | None
    perfect: float | None = None
    scopes: tuple[Word, ...]
    relevant: Amount
    relative_to: tuple[Word, ...] = ()
    exact: bool
    budget: Text
    single_images: bool
    threat: Threat
    kind: Word
    level: Word = "client"
    shared: bool = False
    rounds_read: Count = 1
    clients_read: Count = 1
    auxiliary_images: Count = 0
    chance: float | None = None
    fingerprint: str = Field(default="", pattern="^([0-9a-f]{64}( [0-9a-f]{64})*)?$")
    not_applicable: Text | None = None
    failed: bool = False
    figures: tuple[FileName, ...] = ()
    attack_s: Amount = 0.0

    def columns(self) -> dict[str, Any]:
        """The row's values by column: those of the threat model and the bounds have columns of their own."""
        values = self.model_dump(include=set(EvaluationRow.model_fields) - {"threat", "bounds"})
        lowest, highest = self.bounds or (None, None)
        values |= {**self.threat.model_dump(), "lowest": lowest, "highest": highest}
        return {_COLUMN_OF.get(name, name): value for name, value in values.items()}

    @classmethod
    def read(cls, columns: Mapping[str, Any], **more: Any) -> Self:
        """The row with these values by column, and further fields of a subclass.

        Raises:
            ValidationError: A value is missing, unknown or out of range.
        """
        fields = {column: name for name, column in _COLUMN_OF.items()}
        values = {fields.get(column, column): value for column, value in columns.items()}
        threat = {name: values.pop(name) for name in Threat.model_fields}
        bounds = (values.pop("lowest"), values.pop("highest"))
        return cls.model_validate({**values, "threat": threat, "bounds": None if None in bounds else bounds, **more})


def _arrow_type(annotation: Any) -> pa.DataType:
    """The column type of a field: text, number, truth value, or a list of texts; None is a null."""
    if get_origin(annotation) is UnionType:
        (annotation,) = [choice for choice in get_args(annotation) if choice is not type(None)]
    if get_origin(annotation) is tuple:
        return pa.list_(pa.string())
    return {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}.get(annotation, pa.string())


def _schema(columns: Mapping[str, pa.DataType], nullable: Sequence[str] = ()) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in nullable) for name, kind in columns.items()])


_TEXT, _NUMBER, _COUNT, _TRUTH = pa.string(), pa.float64(), pa.int64(), pa.bool_()
_RUN = {name: _COUNT if name == "seed" else _TEXT for name in RunKey._fields}
_CONDITION = {"variant": _TEXT, "rounds": _COUNT, "n_images": _COUNT}
_ROW = {
    _COLUMN_OF.get(name, name): _arrow_type(field.annotation)
    for name, field in (EvaluationRow.model_fields | Threat.model_fields).items()
    if name not in ("threat", "bounds")
}

SCHEMAS: Mapping[str, pa.Schema] = {
    "evaluations": _schema(
        {"evaluation": _TEXT, **_RUN, **_ROW, "lowest": _NUMBER, "highest": _NUMBER},
        nullable=("target", "perfect", "chance", "not_applicable", "lowest", "highest"),
    ),
    "scores": _schema(
        {
            "evaluation": _TEXT,
            **_RUN,
            "artifact": _TEXT,
            "level": _TEXT,
            "adversary": _TEXT,
            "attack": _TEXT,
            "secret": _TEXT,
            **_CONDITION,
            "role": _TEXT,
            "crossed_with": _TEXT,
            "unit": _TEXT,
            "client": _TEXT,
            "domain": _TEXT,
            "is_shadow": _TRUTH,
            "trial": _COUNT,
            "repeat": _COUNT,
            "metric": _TEXT,
            "value": _NUMBER,
        },
        nullable=("target", "domain"),
    ),
    "candidates": _schema(
        {"evaluation": _TEXT, "role": _TEXT, "client": _TEXT, "image": _TEXT, "is_member": _TRUTH, "score": _NUMBER}
    ),
    "aggregates": _schema(
        {
            "evaluation": _TEXT,
            **_CONDITION,
            "role": _TEXT,
            "metric": _TEXT,
            "value": _NUMBER,
            "low": _NUMBER,
            "high": _NUMBER,
            "n": _COUNT,
            "direction": _TEXT,
            "reason": _TEXT,
        },
        nullable=("value", "low", "high", "n", "reason"),
    ),
}


class ScoreFrames(NamedTuple):
    """The four tables as pandas data frames."""

    evaluations: "pd.DataFrame"
    scores: "pd.DataFrame"
    candidates: "pd.DataFrame"
    aggregates: "pd.DataFrame"


@dataclass(frozen=True, eq=False)
class ScoreTables:
    """The four score tables of one evaluation or of many.

    Attributes:
        evaluations: One attack by one adversary on one kind of artifact a row.
        scores: One scored prediction a row. `variant` is "" for the attack as configured on the artifacts as shared;
            `rounds` is 0 for the adversary's whole view, else the number of its last rounds that were read; `n_images` is 0
            for whole clients; `role` is ``attack``, a control, a bound, or ``crossed`` where the attack read the artifact of
            the client `crossed_with`; `repeat` numbers repetitions of the attack.
        candidates: One candidate image of a membership question a row; of the first repeat.
        aggregates: One figure of many predictions a row: FID, true positive rates, power, shared variances.
    """

    evaluations: pa.Table
    scores: pa.Table
    candidates: pa.Table
    aggregates: pa.Table

    def __post_init__(self) -> None:
        for name, schema in SCHEMAS.items():
            _check(name, getattr(self, name), schema)

    @classmethod
    def of_rows(cls, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> Self:
        """Tables of these rows, by name of the table; a table that is not named is empty."""
        return cls(**{name: pa.Table.from_pylist(list(rows.get(name, ())), schema) for name, schema in SCHEMAS.items()})

    @classmethod
    def joined(cls, parts: Sequence["ScoreTables"]) -> Self:
        """All rows of these tables, in order."""
        if not parts:
            return cls.of_rows({})
        return cls(**{name: pa.concat_tables([getattr(part, name) for part in parts]) for name in SCHEMAS})

    def to_pandas(self) -> ScoreFrames:
        """The tables as data frames; a null is NaN or None."""
        return ScoreFrames(**{name: getattr(self, name).to_pandas() for name in SCHEMAS})

    def save(self, folder: Path) -> list[str]:
        """Writes ``scores.parquet`` and the three others into the folder, each atomically; equal tables give equal bytes.

        Returns: a line for each table that could not be written as Parquet, with the file that has its rows instead.
        """
        failures = []
        for name in SCHEMAS:
            file, table = folder / f"{name}.parquet", getattr(self, name)
            try:
                write_bytes(file, _parquet(table))
            except Exception as error:
                rows = write_rows(file, {name: table.to_pylist()})
                if ends_the_run(error) or rows is None:
                    raise
                failures.append(f"{file.name}: {one_line(error)}; its rows are in {rows}")
            else:
                rows_file(file).unlink(missing_ok=True)  # of an earlier attempt
        return failures

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The tables in a run's folder.

        Raises:
            ValueError: A file is missing, damaged, or has other columns.
        """
        return cls(**{name: _read(folder / f"{name}.parquet", schema) for name, schema in SCHEMAS.items()})

    def save_archive(self, path: Path) -> None:
        """Writes all four tables into one ZIP archive atomically; equal tables give equal bytes."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name in SCHEMAS:
                archive.writestr(zipfile.ZipInfo(f"{name}.parquet", _EPOCH), _parquet(getattr(self, name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content.getvalue())

    @classmethod
    def load_archive(cls, path: Path) -> Self:
        """The tables in an archive that `save_archive` wrote.

        Raises:
            ValueError: The archive is missing, altered or of another form.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(read_bytes(path, LARGEST_FILE))) as archive:
                files = {name: archive.read(f"{name}.parquet") for name in SCHEMAS}
            tables = {name: _parsed(data, SCHEMAS[name], f"{name} of {path}") for name, data in files.items()}
            return cls(**tables)
        except (ValueError, zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
            text = " ".join(str(error).split())[:300]
            raise ValueError(f"want {path} as it was written, got another file ({text})") from None


def check_writable(keys: Sequence[RunKey]) -> None:
    """Writes tables with one row for each of these runs into memory and reads them, before anything is computed.

    Raises:
        ValueError: A value fits no column, or this version of pyarrow lacks what is used of it.
    """
    example: dict[str, Any] = {
        "evaluation": "e",
        **dict.fromkeys(("artifact", "level", "adversary", "attack", "secret"), "a"),
    }
    example |= {
        "variant": "",
        "rounds": 0,
        "n_images": 0,
        "role": "attack",
        "crossed_with": "",
        "unit": "u",
        "client": "c",
    }
    example |= {"domain": None, "is_shadow": False, "trial": 0, "repeat": 0, "metric": "m", "value": 0.0}
    try:
        tables = ScoreTables.of_rows({"scores": [{**example, **key._asdict()} for key in keys]})
        for name, schema in SCHEMAS.items():
            _parsed(_parquet(getattr(tables, name)), schema, name)
    except Exception as error:
        raise ValueError(
            f"want runs that can be written as score tables with pyarrow {pa.__version__}, got {one_line(error)}"
        ) from error


def _check(name: str, table: pa.Table, schema: pa.Schema) -> None:
    """Checks columns, missing values and infinite numbers.

    Raises:
        ValueError: One line that names the first fault.
    """
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0 or table.schema.field(index).type != field.type:
            came = "none" if index < 0 else table.schema.field(index).type
            raise ValueError(f"want the column {field.name} of {field.type} in {name}, got {came}")
        column = table.column(index)
        if not field.nullable and column.null_count:
            raise ValueError(f"want no missing {field.name} in {name}, got {column.null_count}")
        if pa.types.is_floating(field.type) and not pc.all(pc.is_finite(column)).as_py() and len(column.drop_null()):
            raise ValueError(f"want finite numbers in {field.name} of {name}, got NaN or an infinity")
    if unknown := [column for column in table.column_names if column not in schema.names]:
        raise ValueError(f"want no other columns than {name} has, got also {', '.join(unknown)[:100]}")


def _parquet(table: pa.Table) -> bytes:
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd", write_page_checksum=True)
    return content.getvalue()


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    return _parsed(read_bytes(path, LARGEST_FILE), schema, str(path))


def _parsed(data: bytes, schema: pa.Schema, name: str) -> pa.Table:
    """The table in these bytes; a ValueError names it where they are no such table."""
    try:
        table = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"want a table in {name}, got another file: {' '.join(str(error).split())[:200]}") from None
    _check(name, table, schema)
    return table.cast(schema)
