"""Summaries and fields of parts, parsed from their source without importing them.

Importing a part imports torch, which takes seconds; listing parts or rejecting a misspelt field should be immediate. Only
parts of other installed packages are imported, and only for their summaries.
"""

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import Any

from fdgpriv.registry import check_field, check_part, importing, installed, is_class_of, split
from fdgpriv.utils.fields import kind_of

LIGHT = (
    "typing",
    "collections.abc",
    "pathlib",
    "pydantic",
    "fdgpriv.utils.fields",
)  # modules without torch, which are imported to resolve types


@dataclass(frozen=True)
class Field:
    """A field of a part.

    Attributes:
        type: Source text of the annotation.
        default: Source text of the default; empty if there is none.
        kind: The resolved type; Any if it cannot be resolved without importing the part.
    """

    type: str
    default: str
    kind: Any


def summary(folder: str, name: str) -> str:
    """The first line of the docstring of the part's file."""
    check_part(folder, name)
    for point in installed(f"fdgpriv.{folder}"):
        if point.name == name:
            with importing(f"{folder} {name}"):
                text = import_module(point.module).__doc__
            break
    else:
        text = ast.get_docstring(_tree(f"fdgpriv.{folder}.{name}"))
    return (text or "").partition("\n")[0]


def fields(folder: str, name: str) -> Mapping[str, Field] | None:
    """The fields of the part by name, in order; None for parts of other installed packages."""
    check_part(folder, name)
    if any(point.name == name for point in installed(f"fdgpriv.{folder}")):
        return None
    module = f"fdgpriv.{folder}.{name}"
    classes = [node.name for node in _tree(module).body if isinstance(node, ast.ClassDef)]
    part = next((called for called in classes if is_class_of(called, name)), None)
    return {} if part is None else dict(_fields(module, part))  # without a class, the import says what is wrong


def check(folder: str, spec: str) -> None:
    """Raises ValueError if ``name:field=value,...`` has an unknown part or field, or a value of the wrong type."""
    name, settings = split(spec)
    check_settings(folder, name, settings)


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
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            written = ast.unparse(line.annotation)
            default = "" if line.value is None else ast.unparse(line.value)
            if not written.startswith("ClassVar") and "init=False" not in default:
                yield line.target.id, Field(written, default, _kind(home, line.annotation))


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
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return module, node
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module is not None:
                    source = f"{module.rpartition('.')[0]}.{node.module}" if node.level else node.module
                    if source in LIGHT:
                        return source, None
                    return _find(source, alias.name) if source.startswith("fdgpriv.") else None
    return None


@cache
def _tree(module: str) -> ast.Module:
    """The syntax tree of a module of fdgpriv; empty if its source is not available."""
    spec = find_spec(module)
    with importing("/".join(module.split(".")[1:]) + ".py"):
        source = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
        return ast.parse(source or "")
