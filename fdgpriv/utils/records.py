"""Pydantic types of stored JSON: known names only, finite numbers, sanitised text, sorted tables."""

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

    Domain and class names come from untrusted folders and files and are printed in reports.
    """
    return _UNSAFE.sub("�", text) if isinstance(text, str) else text


def sorted_by_name(table: dict[str, V]) -> dict[str, V]:
    """`table` sorted by name, so that equal runs write equal bytes."""
    return dict(sorted(table.items()))


def valid_interval(value: tuple[float, float]) -> tuple[float, float]:
    """`value` if low <= high; ValueError otherwise."""
    if value[0] > value[1]:
        raise ValueError(f"want an interval [low, high], got [{value[0]}, {value[1]}]")
    return value


def relative_name(name: str) -> str:
    """`name` if it is a relative path below the run's folder; ValueError otherwise."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or name in ("", "."):
        raise ValueError(f"want a file name relative to the folder of the run, got {name!r}")
    return name


def sanitised(value: JsonValue) -> JsonValue:
    """A JSON value with sanitised text and every object sorted by name; ValueError for NaN or infinity."""
    if isinstance(value, dict):
        return sanitised_object(value)
    if isinstance(value, list):
        return [sanitised(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"want a finite number, got {value}")
    return _UNSAFE.sub("�", value) if isinstance(value, str) else value


def sanitised_object(table: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """`sanitised` for a JSON object."""
    return sorted_by_name({_UNSAFE.sub("�", name): sanitised(entry) for name, entry in table.items()})


Text = Annotated[str, BeforeValidator(clean)]


Word = Annotated[str, BeforeValidator(clean), Field(min_length=1)]


FileName = Annotated[str, BeforeValidator(clean), AfterValidator(relative_name)]


Count = Annotated[int, Field(ge=0)]


Probability = Annotated[float, Field(ge=0.0, le=1.0)]


Amount = Annotated[float, Field(ge=0.0)]


IntervalEnds = Annotated[tuple[float, float], AfterValidator(valid_interval)]


ByName = Annotated[dict[Word, V], AfterValidator(sorted_by_name)]


Json = Annotated[dict[str, JsonValue], AfterValidator(sanitised_object)]


def one_line(error: ValidationError) -> str:
    """The first error with its location, and the number of further ones, in one line."""
    errors = error.errors(include_url=False, include_context=False)
    first = errors[0]
    where = ""
    for step in first["loc"]:
        where += f"[{step}]" if isinstance(step, int) else f".{step}"
    message = first["msg"].removeprefix("Value error, ")
    rest = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return " ".join(f"{where.lstrip('.')[:200] or 'file'}: {message[:300]}{rest}".split())
