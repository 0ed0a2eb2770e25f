"""Digests of functions, classes and objects: of their code and of the values that it uses, to notice that they changed.

Code is read as compiled: comments, line numbers and layout do not count. Functions, classes and modules of a user are
followed through closures, defaults, globals and attributes; those of installed packages count by name and version.
"""

import ast
import enum
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fdgpriv.utils.extras import installed_version

LARGEST_WALK = 20_000  # values that are followed
PACKAGE = "fdgpriv"
SHOWN = 16  # characters of a digest in files that people read
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range)
_OF_TORCH = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
_FOLDERS = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_NO_CODE = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__"}
_NO_CODE |= {"__static_attributes__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__", "_abc_impl"}


@dataclass
class CodeDigest:
    """The SHA-256 of a value's code and of what it uses.

    Attributes:
        without_weights: Of networks that are classes' instances, only names and shapes of parameters count.
        unread: The kinds of values whose content is not known, such as compiled functions.
    """

    without_weights: bool = False
    unread: list[str] = field(default_factory=list)
    _total: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _seen: dict[int, int] = field(default_factory=dict)
    _alive: list[object] = field(default_factory=list)  # an id in `_seen` must not be used again
    _packages: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, value: object, without_weights: bool = False) -> "CodeDigest":
        """The digest of this value."""
        digest = cls(without_weights)
        digest._add(value)
        for package in sorted(digest._packages):
            digest._write("package", package, _package_version(package))
        return digest

    @property
    def text(self) -> str:
        """The first characters of the digest."""
        return self._total.hexdigest()[:SHOWN]

    def _write(self, *parts: str) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            self._total.update(f"{len(data)}:".encode() + data)

    def _add(self, value: object) -> None:
        if isinstance(value, enum.Enum):
            self._write("enum", type(value).__qualname__, value.name)
        elif isinstance(value, _PLAIN) and type(value).__module__ == "builtins":
            self._write(type(value).__name__, repr(value))
        elif isinstance(value, _OF_TORCH):
            self._write(type(value).__name__, str(value))
        elif isinstance(value, Path):
            self._write("path", str(value))
        elif id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)]))
        elif len(self._seen) >= LARGEST_WALK:
            self._cannot_read(f"more than {LARGEST_WALK:,} values")
        else:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
            self._follow(value)

    def _follow(self, value: object) -> None:
        """Adds a value that may refer to others."""
        if isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
        elif isinstance(value, CodeType):
            self._code(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._write("method")
            self._all(value.__func__, value.__self__)
        elif isinstance(value, partial):
            self._write("partial")
            self._all(value.func, value.args, value.keywords)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, ModuleType):
            self._module(value, ())
        elif isinstance(value, Mapping):
            self._write(type(value).__name__, str(len(value)))
            self._all(*(part for pair in value.items() for part in pair))
        elif isinstance(value, list | tuple):
            self._write(type(value).__name__, str(len(value)))
            self._all(*value)
        elif isinstance(value, set | frozenset):
            self._write(type(value).__name__, *sorted(self._separate(part) for part in value))
        elif isinstance(value, torch.Generator):
            self._tensor(value.get_state())
        elif isinstance(value, BuiltinFunctionType | np.ufunc) or inspect.isroutine(value):
            self._named(getattr(value, "__module__", None) or "", getattr(value, "__qualname__", repr(type(value))))
        elif isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):  # functools.cache and the like
            self._write("wrapped", type(value).__name__)
            self._add(wrapped)
        else:
            self._object(value)

    def _all(self, *values: object) -> None:
        for value in values:
            self._add(value)

    def _separate(self, value: object) -> str:
        """The digest of a value on its own, for collections without an order."""
        digest = CodeDigest.of(value, self.without_weights)
        self.unread += digest.unread
        return digest._total.hexdigest()

    def _tensor(self, tensor: Tensor) -> None:
        values = tensor.detach().cpu()
        self._write("tensor", str(tensor.dtype), str(tuple(tensor.shape)))
        if values.is_sparse or values.is_quantized:
            self._cannot_read("a sparse or quantised tensor")
        else:
            self._total.update(values.contiguous().flatten().view(torch.uint8).numpy().data)

    def _array(self, array: "np.ndarray[Any, Any]") -> None:
        self._write("array", str(array.dtype), str(array.shape))
        if array.dtype.hasobject:
            self._all(*array.ravel().tolist())
        else:
            self._total.update(np.ascontiguousarray(array).tobytes())

    def _code(self, code: CodeType) -> None:
        self._write("code", code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        self._all(*code.co_consts)

    def _function(self, function: FunctionType) -> None:
        if _of_package(function.__code__.co_filename, function.__module__):
            self._named(function.__module__ or "", function.__qualname__)
            return
        self._write("function")
        self._all(function.__code__, function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self._add(cell.cell_contents)
            except ValueError:  # assigned later
                self._write("empty")
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                used = function.__globals__[name]
                self._write("global", name)
                self._module(used, names) if isinstance(used, ModuleType) else self._add(used)

    def _class(self, kind: type) -> None:
        if _of_library(kind):
            self._named(kind.__module__, kind.__qualname__)
            return
        self._write("class", kind.__qualname__)
        self._all(*kind.__bases__)
        for name, value in sorted(vars(kind).items()):
            if name not in _NO_CODE:
                self._write(name)
                if isinstance(value, staticmethod | classmethod):
                    self._add(value.__func__)
                elif isinstance(value, property):
                    self._all(value.fget, value.fset)
                else:
                    self._add(value)

    def _module(self, module: ModuleType, names: tuple[str, ...] | list[str]) -> None:
        """A module: of a user's, the attributes with these names."""
        self._named(module.__name__, "")
        if not _of_module(module.__name__):
            for name in names:
                if name in vars(module):
                    self._write("attribute", name)
                    self._add(vars(module)[name])

    def _object(self, value: object) -> None:
        self._add(type(value))
        if isinstance(value, nn.Module) and self.without_weights:
            self._network(value)
            return
        attributes = getattr(value, "__dict__", None)
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        if attributes is None and not slots:
            self._cannot_read(f"{type(value).__module__}.{type(value).__qualname__}")
            return
        if isinstance(value, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            self._cannot_read("a compiled function")
            return
        for name, attribute in [*(attributes or {}).items(), *((name, getattr(value, name)) for name in slots)]:
            self._write(str(name))
            self._add(attribute)

    def _network(self, network: nn.Module) -> None:
        """A network by its layers: types, settings, and names and shapes of its tensors."""
        for name, layer in network.named_modules():
            self._write(name, layer.extra_repr())
            self._add(type(layer))
            for key, attribute in vars(layer).items():
                if not key.startswith("_") and not isinstance(attribute, Tensor):
                    self._write(key)
                    self._add(attribute)
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
            self._write(name, str(tensor.dtype), "lazy" if is_lazy(tensor) else str(tuple(tensor.shape)))

    def _named(self, module: str, name: str) -> None:
        """A function, class or module of an installed package."""
        self._write("name", module, name)
        if root := module.partition(".")[0]:
            self._packages.add(root)

    def _cannot_read(self, what: str) -> None:
        self._write("unread", what)
        self.unread.append(what)


def class_digest(kind: type) -> str:
    """The first characters of the digest of a class: of a class of fdgpriv, of the file that defines it."""
    return module_digest(kind.__module__) if _of_library(kind) else CodeDigest.of(kind).text


def module_digest(module: str) -> str:
    """The first characters of the SHA-256 of a module's syntax tree, without comments; "" if it has no source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):
        return ""
    return file_digest(source)


def file_digest(source: str) -> str:
    """The first characters of the SHA-256 of this source's syntax tree: comments and layout do not count."""
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()[:SHOWN]


@cache
def _package_version(package: str) -> str:
    """The version of a package by the name of its module, which that of its distribution may differ from."""
    number = installed_version(package)
    return str(getattr(sys.modules.get(package), "__version__", "")) if number == "none" else number


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes that this code and the functions in it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _of_package(filename: str, module: str | None) -> bool:
    """Whether code of this file belongs to an installed package or to Python, and not to a user."""
    return filename.startswith((*_FOLDERS, "<frozen")) or (module or "").partition(".")[0] == PACKAGE


def _of_library(kind: type) -> bool:
    """Whether a class belongs to an installed package or to Python: by the file of its methods, else by its module.

    The module of a user's file may have the name of one of Python's.
    """
    for value in vars(kind).values():
        function = getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and not function.__code__.co_filename.startswith("<"):
            return _of_package(function.__code__.co_filename, kind.__module__)
    return _of_module(kind.__module__)


def _of_module(name: str) -> bool:
    """Whether a module belongs to an installed package or to Python, and not to a user."""
    root = name.partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return root == PACKAGE if file is None else _of_package(file, name)
