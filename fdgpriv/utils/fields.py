"""Types of configuration fields, their validation, and one-line error messages."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from fdgpriv.utils.suggestions import did_you_mean, same_name

PositiveInt: TypeAlias = Annotated[int, Field(ge=1)]
NonNegativeInt: TypeAlias = Annotated[int, Field(ge=0)]
TwoOrMore: TypeAlias = Annotated[int, Field(ge=2)]
PositiveFloat: TypeAlias = Annotated[float, Field(gt=0)]
NonNegativeFloat: TypeAlias = Annotated[float, Field(ge=0)]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
PositiveFraction: TypeAlias = Annotated[float, Field(gt=0, le=1)]
OpenFraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]

_WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    NoneType: "none",
}
_BOUNDS = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}
_RULES = ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True)


class Kind(NamedTuple):
    """The annotated type of one field, and pydantic's validator of it."""

    annotation: Any
    adapter: TypeAdapter[Any]

    def read(self, value: Any, where: str, strict: bool = False) -> Any:
        """The value converted to this type.

        Args:
            value: Text as on the command line, or a value of the type.
            where: Name of the field, for the error.
            strict: Accept only values that already have the type.

        Raises:
            ValueError: The value is not of this type.
        """
        try:
            if strict or not isinstance(value, str):
                return self.adapter.validate_python(value, strict=strict)
            several, optional = (kind in _parts(self.annotation) for kind in (tuple, NoneType))
            if optional and value.lower() == "none":
                return None
            value = same_name(value, _choices(self.annotation)) or value
            return self.adapter.validate_python(value.split("+")) if several else self.adapter.validate_strings(value)
        except ValidationError as error:
            wanted = words(self.annotation)
            custom = [f" ({e['msg']})" for e in error.errors() if e["type"] in ("value_error", "assertion_error")]
            suggestion = did_you_mean(value, _choices(self.annotation)) if isinstance(value, str) else ""
            message = (
                f"{where}: want {wanted}{';' if ',' in wanted else ','} got {value!r}{''.join(custom)}{suggestion}"
            )
            raise ValueError(" ".join(message.split())) from None


def check(part: Any, name: str) -> None:
    """Raises ValueError if a field of the dataclass instance `part`, called `name`, has an invalid value."""
    for field, kind in kinds(part.__class__).items():
        kind.read(getattr(part, field), f"{name}.{field}", strict=True)


@cache
def kinds(cls: type[Any]) -> Mapping[str, Kind]:
    """The types of a dataclass's fields; empty for any other class."""
    if not is_dataclass(cls):
        return {}
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: kind_of(hints[field.name]) for field in fields(cls) if field.init}


def words(annotation: Any) -> str:
    """The values that a field of this type accepts, in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        rules = [rule for item in inner[1:] for rule in getattr(item, "metadata", [item])]
        bounds_of_rules = [(text, getattr(rule, name, None)) for rule in rules for name, text in _BOUNDS.items()]
        bounds = " and ".join(f"{text} {bound}" for text, bound in bounds_of_rules if bound is not None)
        return f"{words(inner[0])} {bounds}".rstrip()
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else str(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(map(words, inner))
    if origin is tuple:
        return f"{words(inner[0])}, or several joined by +"
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The type without its annotations, or the members of a union."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _parts(inner[0])
    if origin in (Union, UnionType):
        return tuple(part for kind in inner for part in _parts(kind))
    return (origin or annotation,)


def _choices(annotation: Any) -> tuple[str, ...]:
    """The words that a field of this type accepts, where it accepts only some."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return tuple(choice for choice in inner if isinstance(choice, str))
    if origin is Annotated:
        return _choices(inner[0])
    return tuple(choice for part in inner for choice in _choices(part)) if origin in (Union, UnionType) else ()


def kind_of(annotation: Any) -> Kind:
    """This annotated type with its validator."""
    try:
        return Kind(annotation, TypeAdapter(annotation, config=_RULES))
    except PydanticUserError:  # a dataclass or a model, which has its own configuration
        return Kind(annotation, TypeAdapter(annotation))
