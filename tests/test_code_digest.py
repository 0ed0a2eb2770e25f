"""The digest of a function follows what it uses, and nothing else: closures, globals, defaults, objects, user modules."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fdgpriv.utils.code_digest import CodeDigest, class_digest, file_digest


def defined(source: str, **names: Any) -> Any:
    """The function ``f`` of a file of a user with this source."""
    names["__name__"] = "test"  # also the name of one of Python's modules
    exec(compile(source, "/home/user/test.py", "exec"), names)
    return names["f"]


def text(value: object) -> str:
    return CodeDigest.of(value).text


CHANGES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("f = lambda x: x - .5", {}, "f = lambda x: x - .4", {}),
    ("f = lambda x: x - m", {"m": 0.5}, "f = lambda x: x - m", {"m": 0.4}),
    ("f = lambda x: x - m[0]", {"m": [0.5]}, "f = lambda x: x - m[0]", {"m": [0.4]}),
    ("f = lambda x: x - m.a", {"m": SimpleNamespace(a=1)}, "f = lambda x: x - m.a", {"m": SimpleNamespace(a=2)}),
    ("f = lambda x: x - m", {"m": torch.ones(3)}, "f = lambda x: x - m", {"m": torch.zeros(3)}),
    ("f = lambda x: x - m", {"m": torch.ones(3)}, "f = lambda x: x - m", {"m": torch.ones(3).double()}),
    ("f = lambda x: x - m", {"m": np.ones(3)}, "f = lambda x: x - m", {"m": np.full(3, 2.0)}),
    ("def f(x, lr=.1): return x * lr", {}, "def f(x, lr=.2): return x * lr", {}),
    ("def f(x, *, lr=.1): return x * lr", {}, "def f(x, *, lr=.2): return x * lr", {}),
    ("def g(x): return x\nf = lambda x: g(x)", {}, "def g(x): return -x\nf = lambda x: g(x)", {}),
    ("def g(m): return lambda x: x - m\nf = g(1)", {}, "def g(m): return lambda x: x - m\nf = g(2)", {}),
    ("f = lambda x: [y + m for y in x]", {"m": 1}, "f = lambda x: [y + m for y in x]", {"m": 2}),
    ("f = lambda x: x.relu()", {}, "f = lambda x: x.tanh()", {}),
    ("f = lambda x: x in {'a', 'b'}", {}, "f = lambda x: x in {'a', 'c'}", {}),
    (
        "class T:\n  def __init__(s, m): s.m = m\n  def __call__(s, x): return x - s.m\nf = T(1)",
        {},
        "class T:\n  def __init__(s, m): s.m = m\n  def __call__(s, x): return x - s.m\nf = T(2)",
        {},
    ),
    ("class T:\n  m = 1\n  def g(s, x): return x\nf = T().g", {}, "class T:\n  m = 1\n  def g(s, x): return -x\nf = T().g", {}),
    (
        "class T:\n  def __call__(s, x): return x\nf = T()",
        {},
        "class T:\n  def __call__(s, x): return -x\nf = T()",
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "names", "other_source", "other_names"), CHANGES)
def test_a_change_of_what_is_used_changes_the_digest(
    source: str, names: dict[str, Any], other_source: str, other_names: dict[str, Any]
) -> None:
    before, after = defined(source, **names), defined(other_source, **other_names)
    assert text(before) == text(defined(source, **names))
    assert text(before) != text(after)
    assert CodeDigest.of(before).unread == []


UNCHANGED = [
    ("f = lambda x: x - m", {"m": 1, "other": 1}, "f = lambda x: x - m", {"m": 1, "other": 2}),
    ("def f(x): return x - 1", {}, "# a comment\n\ndef f(x):\n    # another\n    return x - 1", {}),
    ("f = lambda x: x in {'a', 'b', 'c'}", {}, "f = lambda x: x in {'c', 'b', 'a'}", {}),
]


@pytest.mark.parametrize(("source", "names", "other_source", "other_names"), UNCHANGED)
def test_what_is_not_used_does_not_count(
    source: str, names: dict[str, Any], other_source: str, other_names: dict[str, Any]
) -> None:
    assert text(defined(source, **names)) == text(defined(other_source, **other_names))


def test_parts_of_functions_count() -> None:
    def scaled(x: Tensor, scale: float) -> Tensor:
        return x * scale

    partials: list[Callable[[Tensor], Tensor]] = [functools.partial(scaled, scale=s) for s in (1.0, 2.0, 2.0)]
    assert text(partials[0]) != text(partials[1]) == text(partials[2])
    assert text(torch.no_grad()(scaled)) == text(torch.no_grad()(scaled))
    assert text(functools.cache(scaled)) != text(scaled)


def test_a_module_of_the_user_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for mean in (0.5, 0.4):
        (tmp_path / "of_user.py").write_text(f"mean = {mean}\nunused = {mean}\n")
        sys.modules.pop("of_user", None)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        digests.append(text(defined("import of_user\nf = lambda x: x - of_user.mean")))
    assert digests[0] != digests[1]


def test_weights_of_a_network_count_only_where_they_are_wanted() -> None:
    torch.manual_seed(0)
    networks = [nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)) for _ in range(2)]
    assert text(networks[0]) != text(networks[1])
    without = [CodeDigest.of(network, True).text for network in networks]
    wider = CodeDigest.of(nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)), True).text
    strided = CodeDigest.of(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4)), True).text
    assert without[0] == without[1]
    assert len({without[0], wider, strided}) == 3


def test_what_cannot_be_read_is_named() -> None:
    compiled = torch.jit.script(nn.ReLU())
    assert CodeDigest.of(compiled).unread == ["a compiled function"]
    iterator = iter([1])
    assert CodeDigest.of(lambda x: (iterator, x)).unread == ["builtins.list_iterator"]


def test_values_that_refer_to_themselves_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert text(loop) == text(loop)
    assert CodeDigest.of(lambda: loop).unread == []


def test_comments_of_a_file_do_not_count() -> None:
    assert file_digest("a = 1") == file_digest("# one\na  =  1\n") != file_digest("a = 2")


def test_a_part_of_fdgpriv_counts_by_its_file() -> None:
    from fdgpriv.attack import Attack
    from fdgpriv.method import Method

    digests = [class_digest(kind) for kind in (Attack.named("membership"), Method.named("fedavg"))]
    assert digests[0] != digests[1]
    assert all(digests)
