"""Registry: finds and configures parts, each one class in one file of its role's folder.

`Attack.named("gan")` finds the class Gan in attacks/gan.py, in the entry-point group ``fdgpriv.attacks`` of an installed
third-party package, or among the classes registered in this process.
"""

import os
import pkgutil
import re
from abc import ABC
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, NamedTuple, Self

from fdgpriv.utils.failures import one_line
from fdgpriv.utils.fields import check, kinds
from fdgpriv.utils.suggestions import did_you_mean

JOIN = "+"  # between the specifications of defenses that are applied one after the other


class Role(ABC):
    """Base class of the roles (attack, defense, method, report), with the folder of their parts."""

    folder: ClassVar[str]
    installed_as: ClassVar[str]
    also_called: ClassVar[tuple[str, ...]] = ()  # names in the literature, for the error about an unknown name

    def __post_init__(self) -> None:
        """Checks every field against its annotated type; overriding methods call this first."""
        check(self, self.name())

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all parts of this role, as on the command line."""
        return names_in(cls.folder)

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """The part called `name`.

        Raises:
            ValueError: There is none, with the known ones; or it cannot be imported, with the reason.
        """
        check_part(cls.folder, name)
        for point in installed(f"fdgpriv.{cls.folder}"):
            if point.name == name:
                with importing(f"{cls.folder} {name}"):
                    loaded = point.load()
                part_class: type[Self] = _checked_class(loaded, cls, name)
                part_class.installed_as = name
                return part_class
        with importing(f"{cls.folder}/{name}.py"):
            module = import_module(f"fdgpriv.{cls.folder}.{name}")
        for attribute, part in vars(module).items():
            if is_class_of(attribute, name) and isinstance(part, type) and issubclass(part, cls):
                return part
        raise ValueError(f"want a class in {cls.folder}/{name}.py whose name in snake case is {name}; found none")

    @classmethod
    def importable(cls) -> dict[str, type[Self]]:
        """By name, all importable parts of this role."""
        parts = {}
        for name in cls.names():
            with suppress(ValueError):
                parts[name] = cls.named(name)
        return parts

    @classmethod
    def name(cls) -> str:
        """This part's name: its file name, or the name under which it was installed."""
        return cls.__dict__.get("installed_as") or cls.__module__.rpartition(".")[2]

    @classmethod
    def register(cls) -> str:
        """Registers a user-defined class in this process; returns its name, the class name in snake case.

        Raises:
            ValueError: Another part has this name.
        """
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        registered_parts = _REGISTERED.setdefault(f"fdgpriv.{cls.folder}", {})
        if name not in registered_parts and name in names_in(cls.folder):
            raise ValueError(f"want a name that no other of the {cls.folder} has, got {name!r}")
        cls.installed_as = name
        registered_parts[name] = Registered(name, cls)
        return name

    def spec(self) -> str:
        """Its specification ``name:field=value,...``, with the fields that differ from their defaults.

        Registers the class if necessary.
        """
        name = self.name()
        if name not in names_in(self.folder) or self.named(name) is not type(self):
            name = self.register()
        part_fields: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        changed = [f for f in part_fields if getattr(self, f.name) != f.default]
        settings = ",".join(f"{f.name}={written(getattr(self, f.name))}" for f in changed)
        return f"{name}:{settings}" if settings else name

    @classmethod
    def parse(cls, spec: str) -> Self:
        """The part of the specification ``name`` or ``name:field=value,field=value``."""
        part, settings = cls.described(spec)
        return part.configured(settings)

    @classmethod
    def described(cls, spec: str) -> tuple[type[Self], dict[str, str]]:
        """The class and the field texts of a specification."""
        name, settings = split(spec)
        return cls.named(name), settings

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Self:
        """The part with these fields; text is converted to the field's type. ValueError for unknown fields."""
        types, values = kinds(cls), {}
        for name, value in settings.items():
            check_field(cls.name(), name, types)
            values[name] = types[name].read(value, f"{cls.name()}.{name}")
        return cls(**values)


class Registered(NamedTuple):
    """A part registered in this process, with the interface of an entry point."""

    name: str
    part: type[Any]

    @property
    def module(self) -> str:
        """The module that defines its class."""
        return self.part.__module__

    def load(self) -> type[Any]:
        """Its class."""
        return self.part


_REGISTERED: dict[str, dict[str, Registered]] = {}


def registered() -> tuple[type[Role], ...]:
    """The classes registered in this process."""
    return tuple(entry.part for parts in _REGISTERED.values() for entry in parts.values())


def names_in(folder: str) -> tuple[str, ...]:
    """The names of the parts in this folder and of installed ones, as on the command line."""
    package = import_module(f"fdgpriv.{folder}")
    in_folder = {name for path in package.__path__ for name in _modules(path, os.stat(path).st_mtime_ns)}
    from_packages = {point.name for point in installed(f"fdgpriv.{folder}")}
    return tuple(sorted(in_folder | from_packages))


@cache
def _modules(path: str, changed: int) -> frozenset[str]:
    """The names of the parts in a folder; cached until the folder's time of change, `changed`, differs."""
    return frozenset(module.name for module in pkgutil.iter_modules([path]) if not module.name.startswith("_"))


def is_class_of(attribute: str, name: str) -> bool:
    """Whether this is the class name of the part `name`; a trailing _ is ignored, as in None_."""
    return attribute.lower().rstrip("_") == name.replace("_", "")


def check_part(folder: str, name: str) -> None:
    """Raises ValueError, with the known names, if no part in this folder has this name."""
    if name not in (known := names_in(folder)):
        raise ValueError(f"want one of the {folder} {', '.join(known)}; got {name!r}{did_you_mean(name, known)}")


def check_field(part: str, name: str, names: Collection[str]) -> None:
    """Raises ValueError, with the known names, if the part has no such field."""
    if name not in names:
        raise ValueError(
            f"{part}: want a field of {', '.join(names) or '(none)'}; got {name!r}{did_you_mean(name, names)}"
        )


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Context in which any exception of an imported file becomes a ValueError of one line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ValueError(f"want {what} to be importable, got {one_line(error)}") from error


def split(spec: str) -> tuple[str, dict[str, str]]:
    """The name and the settings in ``name`` or ``name:field=value,field=value``."""
    name, _, rest = spec.partition(":")
    settings: dict[str, str] = {}
    for item in filter(None, rest.split(",")):
        field, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals or not field:
            raise ValueError(f"want name:field=value,field=value; got {spec!r}")
        if field in settings:
            raise ValueError(f"want each field once, got {field} twice in {spec!r}")
        settings[field] = value
    return name, settings


def plain_number(text: str) -> str:
    """A number in its shortest form, so that 4, 4.0 and 4e0 are one; other text as it is.

    Example:
        >>> plain_number("4.0"), plain_number("0.10"), plain_number("all")
        ('4', '0.1', 'all')
    """
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return str(int(text)) if len(text) < 100 else text
    if not re.fullmatch(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?", text):
        return text
    number = float(text)
    if number.is_integer() and abs(number) < 1e15:
        return str(int(number))
    return text if number in (float("inf"), float("-inf")) else repr(number)


def with_plain_numbers(spec: str) -> str:
    """The specification, also of joined parts, with numbers in their shortest form; as it is where it is not one."""
    parts = []
    for part in spec.split(JOIN):
        name, colon, rest = part.partition(":")
        pairs = (item.partition("=") for item in rest.split(","))
        parts.append(name + colon + ",".join(field + equals + plain_number(value) for field, equals, value in pairs))
    return JOIN.join(parts)


def installed(group: str) -> tuple[EntryPoint | Registered, ...]:
    """The parts of this group from installed packages, and registered ones."""
    return (*_entry_points(group), *_REGISTERED.get(group, {}).values())


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of this group, read once."""
    return tuple(entry_points(group=group))


def written(value: Any) -> str:
    """A field's value as command line text."""
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return plain_number(str(value)) if isinstance(value, float) else str(value)


def _checked_class(part: Any, role: type[Any], name: str) -> Any:
    """The part; ValueError if it is no class of this role."""
    if not (isinstance(part, type) and issubclass(part, role)):
        raise ValueError(f"want {name!r} of the {role.folder} to be a {role.__name__}, got {part!r}")
    return part
