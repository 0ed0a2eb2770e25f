"""Summaries, fields and presets of parts, parsed from their source without importing them.

Importing a part imports torch, which takes seconds; listing parts or rejecting a misspelt field should be immediate. Only
parts of other installed packages are imported, and only for their summaries.
"""

import ast
import builtins
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import Any

from fdgpriv.registry import check_field, check_part, importing, installed, is_class_of, names_in, split
from fdgpriv.utils.fields import kind_of
from fdgpriv.utils.suggestions import same_name

LIGHT = (
    "typing",
    "collections.abc",
    "pathlib",
    "pydantic",
    "fdgpriv.utils.fields",
)  # modules without torch, which are imported to resolve types
UNKNOWN = object()  # a value that only an import could compute
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8,}.*)*)", re.MULTILINE)  # of a docstring's section "Attributes"


@dataclass(frozen=True)
class Field:
    """A field of a part.

    Attributes:
        type: Source text of the annotation.
        default: Source text of the default; empty if there is none.
        kind: The resolved type; Any if it cannot be resolved without importing the part.
        about: What it means, from the docstring of the class; empty if that does not say.
        value: The default; UNKNOWN if it cannot be computed without importing the part.
    """

    type: str
    default: str
    kind: Any
    about: str = ""
    value: Any = UNKNOWN


def summary(folder: str, name: str) -> str:
    """The first line of the docstring of the part's file."""
    check_part(folder, name)
    if is_installed(folder, name):
        text = import_module(imported_class(folder, name).__module__).__doc__
    else:
        text = ast.get_docstring(_tree(f"fdgpriv.{folder}.{name}"))
    return (text or "").partition("\n")[0]


def fields(folder: str, name: str) -> Mapping[str, Field] | None:
    """The fields of the part by name, in order; None for parts of other installed packages."""
    check_part(folder, name)
    if is_installed(folder, name):
        return None
    part = _class_of(folder, name)
    if part is None:  # its import will say what is wrong
        return {}
    by_name: dict[str, Field] = {}
    for field, described in _fields(*part):
        inherited = by_name[field].about if field in by_name else ""
        by_name[field] = replace(described, about=described.about or inherited)
    return by_name


def is_installed(folder: str, name: str) -> bool:
    """Whether this part is of another package, or registered in this process: only an import knows its fields."""
    return any(point.name == name for point in installed(f"fdgpriv.{folder}"))


def imported_class(folder: str, name: str) -> type[Any]:
    """The class of a part for which `is_installed` is true, imported."""
    with importing(f"{folder} {name}"):
        part: type[Any] = next(point for point in installed(f"fdgpriv.{folder}") if point.name == name).load()
    return part


def class_value(folder: str, name: str, attribute: str) -> Any:
    """The value of an attribute of the part's class; UNKNOWN if the class has none, or only an import could compute it."""
    part = None if is_installed(folder, name) else _class_of(folder, name)
    return UNKNOWN if part is None else _class_attribute(*part, attribute)


def check(folder: str, spec: str) -> None:
    """Raises ValueError if ``name:field=value,...`` has an unknown part or field, or a value of the wrong type."""
    name, settings = split(spec)
    if others := also_called(folder, name):
        names = " or ".join([", ".join(others[:-1]), others[-1]] if others[1:] else others)
        raise ValueError(f"want one of the {folder} {', '.join(names_in(folder))}; got {name!r}; did you mean {names}?")
    check_settings(folder, name, settings)


def also_called(folder: str, word: str) -> list[str]:
    """The parts for which the literature has this name, where it is that of no part."""
    known = names_in(folder)
    if word in known:
        return []
    values = {name: class_value(folder, name, "also_called") for name in known}
    return [name for name, words in values.items() if words is not UNKNOWN and same_name(word, words)]


def check_settings(folder: str, name: str, settings: Mapping[str, str]) -> None:
    """Raises ValueError if the part has no such field, or a value is not of the field's type."""
    known_fields = fields(folder, name)
    if known_fields is None:
        return
    for field, value in settings.items():
        check_field(name, field, known_fields)
        if known_fields[field].kind is not Any:
            kind_of(known_fields[field].kind).read(value, f"{name}.{field}")


def _fields(module: str, name: str) -> Iterator[tuple[str, Field]]:
    """The fields of the dataclass `name` in this module, base classes first; none if it is not a dataclass."""
    home, node = _find(module, name) or (module, None)
    if not isinstance(node, ast.ClassDef):
        return
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            yield from _fields(home, base.id)
    if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return
    about = _attributes(node)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            written, field = ast.unparse(line.annotation), line.target.id
            default = "" if line.value is None else ast.unparse(line.value)
            if not written.startswith("ClassVar") and "init=False" not in default:
                value = UNKNOWN if line.value is None else _value(home, line.value)
                yield field, Field(written, default, _kind(home, line.annotation), about.get(field, ""), value)


def _attributes(node: ast.ClassDef) -> dict[str, str]:
    """The description of each attribute by name, from the section "Attributes" of a class's docstring."""
    _, _, section = (ast.get_docstring(node) or "").partition("Attributes:\n")
    entries = _ENTRY.findall(section.partition("\n\n")[0])
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _class_of(folder: str, name: str) -> tuple[str, str] | None:
    """The module of a part in this folder, and the name of its class; None if the module has none of the part's name."""
    module = f"fdgpriv.{folder}.{name}"
    classes = [node.name for node in _tree(module).body if isinstance(node, ast.ClassDef)]
    class_name = next((class_name for class_name in classes if is_class_of(class_name, name)), None)
    return None if class_name is None else (module, class_name)


def _class_attribute(module: str, name: str, attribute: str) -> Any:
    """The value of an attribute of the class `name` in this module, or of its first base that has it; else UNKNOWN."""
    home, node = _find(module, name) or (module, None)
    if not isinstance(node, ast.ClassDef):
        return UNKNOWN
    for line in node.body:
        if attribute in _targets(line) and isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
            return _value(home, line.value)
    inherited = (_class_attribute(home, base.id, attribute) for base in node.bases if isinstance(base, ast.Name))
    return next((value for value in inherited if value is not UNKNOWN), UNKNOWN)


def _value(module: str, expression: ast.expr) -> Any:
    """The value of an expression of literals and names in this module; UNKNOWN if it has anything else.

    A class of fdgpriv stands for its `kind`.
    """
    match expression:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            values = tuple(_value(module, part) for part in parts)
            return UNKNOWN if UNKNOWN in values else values
        case ast.Dict(keys=keys, values=parts):
            merged: dict[Any, Any] = {}
            for key, part in zip(keys, parts, strict=True):
                value = _value(module, part)
                if value is UNKNOWN:
                    return UNKNOWN
                merged |= value if key is None else {_value(module, key): value}
            return merged
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            value = _value(module, operand)
            return UNKNOWN if value is UNKNOWN else _OPERATORS[type(op)](value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            values = (_value(module, left), _value(module, right))
            return UNKNOWN if UNKNOWN in values else _OPERATORS[type(op)](*values)
        case ast.Subscript(value=part, slice=key):
            mapping, index = _value(module, part), _value(module, key)
            return mapping.get(index, UNKNOWN) if isinstance(mapping, Mapping) else UNKNOWN
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return _class_attribute(module, name, attribute)
        case ast.Name(id=name):
            home, node = _find(module, name) or (module, None)
            if isinstance(node, ast.ClassDef):
                return _class_attribute(home, name, "kind")
            return _value(home, node.value) if isinstance(node, ast.Assign | ast.AnnAssign) and node.value else UNKNOWN
    return UNKNOWN


def _kind(module: str, annotation: ast.expr) -> Any:
    """The type of an annotation in this module; Any if one of its names cannot be resolved."""
    names: dict[str, Any] = {}
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            names[node.id] = _named(module, node.id)
            if names[node.id] is Any:
                return Any
    return eval(compile(ast.Expression(annotation), module, "eval"), names)  # annotations of fdgpriv's own parts only


def _named(module: str, name: str) -> Any:
    """The object that a name in an annotation of this module refers to; Any if it cannot be resolved."""
    if hasattr(builtins, name):
        return getattr(builtins, name)
    definition = _find(module, name)
    if definition is None:
        return Any
    home, node = definition
    if node is None:
        return getattr(import_module(home), name, Any)
    return _kind(home, node.value) if isinstance(node, ast.Assign) else Any


def _find(module: str, name: str) -> tuple[str, ast.stmt | None] | None:
    """The module and statement that define a name; no statement for LIGHT modules, None if unknown."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
        if _targets(node) == [name]:
            return module, node
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module is not None:
                    source = f"{module.rpartition('.')[0]}.{node.module}" if node.level else node.module
                    if source in LIGHT:
                        return source, None
                    return _find(source, alias.name) if source.startswith("fdgpriv.") else None
    return None


def _targets(node: ast.stmt) -> list[str]:
    """The names that an assignment binds; none of another statement."""
    if isinstance(node, ast.AnnAssign):
        return [ast.unparse(node.target)]
    return [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []


def _located(module: str) -> ModuleSpec | None:
    """Where a module of fdgpriv lies, found without running the packages that it is in, which may import torch."""
    package = module.rpartition(".")[0]
    if not package.startswith("fdgpriv.") or package in sys.modules:
        return find_spec(module)
    spec = _located(package)
    return PathFinder.find_spec(module, spec.submodule_search_locations) if spec else None


@cache
def _tree(module: str) -> ast.Module:
    """The syntax tree of a module of fdgpriv; empty if its source is not available."""
    spec = _located(module)
    with importing("/".join(module.split(".")[1:]) + ".py"):
        source = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
        return ast.parse(source or "")
