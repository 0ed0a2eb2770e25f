"""How parts are found and configured: one class in one file of its role's folder.

No part is imported by name. `Attack.named("gan")` finds the class Gan in attacks/gan.py, or in the entry-point group
``fdgpriv.attacks`` of an installed third-party package.
"""

import math
import pkgutil
from abc import ABC
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Self, get_type_hints

from pydantic import TypeAdapter, ValidationError


class Role(ABC):
    """A kind of part, and the folder where its parts lie."""

    folder: ClassVar[str]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all parts of this role, as the command line writes them."""
        package = import_module(f"fdgpriv.{cls.folder}")
        own = {module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")}
        joined = {point.name for point in installed(f"fdgpriv.{cls.folder}")}
        return tuple(sorted(own | joined))

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """The part called `name`; a ValueError lists the known ones."""
        if name not in cls.names():
            raise ValueError(f"want one of the {cls.folder} {', '.join(cls.names())}; got {name!r}")
        for point in installed(f"fdgpriv.{cls.folder}"):
            if point.name == name:
                joined = point.load()
                joined.installed_as = name
                found: type[Self] = _of_role(joined, cls, name)
                return found
        module = import_module(f"fdgpriv.{cls.folder}.{name}")
        wanted = name.replace("_", "")
        for attribute, part in vars(module).items():  # a class may end in _ where Python has the name: None_
            if attribute.lower().rstrip("_") == wanted and isinstance(part, type) and issubclass(part, cls):
                return part
        raise ValueError(f"want a class in {cls.folder}/{name}.py whose name in snake case is {name}; found none")

    @classmethod
    def name(cls) -> str:
        """This part's own name: its file's, or that under which it was installed."""
        return cls.__dict__.get("installed_as") or cls.__module__.rpartition(".")[2]

    @classmethod
    def parse(cls, spec: str) -> Self:
        """The part that a command line's ``name`` or ``name:field=value,field=value`` means."""
        part, settings = cls.described(spec)
        return part.configured(settings)

    @classmethod
    def described(cls, spec: str) -> tuple[type[Self], dict[str, str]]:
        """The part that such a specification names, and the fields that it sets, as written."""
        name, _, rest = spec.partition(":")
        return cls.named(name), dict(_setting(item, spec) for item in rest.split(",") if item)

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Self:
        """The part with these fields set; text is read as the field's type, an unknown field lists the known ones."""
        if not is_dataclass(cls):
            known: dict[str, Any] = {}
        else:
            types = get_type_hints(cls)
            known = {f.name: types[f.name] for f in fields(cls) if f.init}
        given = {}
        for name, value in settings.items():
            if name not in known:
                near = "".join(f", did you mean {close}?" for close in get_close_matches(name, known, 1))
                raise ValueError(f"{cls.name()}: want a field of {', '.join(known) or '(none)'}; got {name!r}{near}")
            given[name] = _read(known[name], value, f"{cls.name()}.{name}")
        return cls(**given)


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of this group, read from disk once."""
    return tuple(entry_points(group=group))


def _of_role(part: Any, role: type[Any], name: str) -> Any:
    if not (isinstance(part, type) and issubclass(part, role)):
        raise ValueError(f"want {name!r} of the {role.folder} to be a {role.__name__}, got {part!r}")
    return part


def _setting(item: str, spec: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise ValueError(f"want name:field=value,field=value; got {spec!r}")
    return name.strip(), value.strip()


def _read(kind: Any, value: Any, where: str) -> Any:
    adapter = TypeAdapter(kind)
    try:
        if not isinstance(value, str):
            return adapter.validate_python(value)
        if "None" in str(kind) and value.lower() == "none":
            return None
        if str(kind).startswith("tuple"):
            return adapter.validate_python(tuple(value.split("+")))
        read = adapter.validate_strings(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise ValueError(f"{where}: want {getattr(kind, '__name__', kind)}, got {value!r} ({reason})") from None
    if isinstance(read, float) and not math.isfinite(read):
        raise ValueError(f"{where}: want a finite number, got {value!r}")
    return read
