"""Types of what lies on disk as JSON: known names only, finite numbers, clean text, tables in one order."""

import math
import re
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

V = TypeVar("V")


_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Entry(BaseModel):
    """One entry of results.json: frozen, no unknown names, no NaN and no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


def clean(text: object) -> object:
    """`text` with control characters, lone surrogates and direction overrides replaced by U+FFFD.

    Domain and class names come from folders and files that others made; a report must not be steered by them.
    """
    return _UNSAFE.sub("�", text) if isinstance(text, str) else text


def in_order(table: dict[str, V]) -> dict[str, V]:
    """`table` sorted by name, so that two equal runs write equal bytes."""
    return dict(sorted(table.items()))


def ordered(value: tuple[float, float]) -> tuple[float, float]:
    """`value` where its first number is at most its second; a ValueError otherwise."""
    if value[0] > value[1]:
        raise ValueError(f"want an interval [low, high], got [{value[0]}, {value[1]}]")
    return value


def inside(name: str) -> str:
    """`name` where it is a file below the folder of the run; a ValueError otherwise."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or name in ("", "."):
        raise ValueError(f"want a file name relative to the folder of the run, got {name!r}")
    return name


def settled(value: JsonValue) -> JsonValue:
    """A JSON value with clean text, every object sorted by name, and no NaN or infinity (a ValueError)."""
    if isinstance(value, dict):
        return settled_table(value)
    if isinstance(value, list):
        return [settled(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"want a finite number, got {value}")
    return _UNSAFE.sub("�", value) if isinstance(value, str) else value


def settled_table(table: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """`settled` for a whole object."""
    return in_order({_UNSAFE.sub("�", name): settled(entry) for name, entry in table.items()})


Text = Annotated[str, BeforeValidator(clean)]


Word = Annotated[str, BeforeValidator(clean), Field(min_length=1)]


FileName = Annotated[str, BeforeValidator(clean), AfterValidator(inside)]


Count = Annotated[int, Field(ge=0)]


Probability = Annotated[float, Field(ge=0.0, le=1.0)]


Amount = Annotated[float, Field(ge=0.0)]


Interval = Annotated[tuple[float, float], AfterValidator(ordered)]


Table = Annotated[dict[Word, V], AfterValidator(in_order)]


Json = Annotated[dict[str, JsonValue], AfterValidator(settled_table)]


def one_line(error: ValidationError) -> str:
    """The first thing wrong, where it stands, and how many more there are: one line."""
    wrong = error.errors(include_url=False, include_context=False)
    first = wrong[0]
    where = ""
    for step in first["loc"]:
        where += f"[{step}]" if isinstance(step, int) else f".{step}"
    said = first["msg"].removeprefix("Value error, ")
    rest = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return " ".join(f"{where.lstrip('.')[:200] or 'file'}: {said[:300]}{rest}".split())
