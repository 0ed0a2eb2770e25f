"""Every field of every part refuses what its type forbids, in one line that says what was wanted and what came."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import AfterValidator

from fdgpriv.attack import Attack
from fdgpriv.defense import Defense
from fdgpriv.method import Method, Role
from fdgpriv.report import Report
from fdgpriv.utils.fields import Fraction, PositiveInt, check, kinds, words

ROLES: tuple[type[Role], ...] = (Method, Attack, Defense, Report)
PARTS = [(role, name) for role in ROLES for name in role.names() if kinds(role.named(name))]


@pytest.mark.parametrize(
    ("role", "spec", "wanted"),
    [
        (Method, "stablefdg:rounds=ten", "a whole number of at least 1,"),
        (Method, "stablefdg:rounds=0", "a whole number of at least 1,"),
        (Method, "stablefdg:participants=0", "a whole number of at least 1 or none,"),
        (Method, "stablefdg:received=-1", "a whole number of at least 0,"),
        (Attack, "gan:batch_size=1", "a whole number of at least 2,"),
        (Attack, "importance_membership:draws=7", "a whole number of at least 8,"),
        (Method, "stablefdg:exploration=nan", "a finite number,"),
        (Defense, "gaussian:epsilon=", "a finite number above 0,"),
        (Defense, "gaussian:epsilon=much", "a finite number above 0,"),
        (Defense, "gaussian:epsilon=0", "a finite number above 0,"),
        (Defense, "gaussian:epsilon=inf", "a finite number above 0,"),
        (Method, "lsi:norm_weight=-0.1", "a finite number of at least 0,"),
        (Method, "stablefdg:p=2", "a finite number of at least 0 and at most 1,"),
        (Method, "hfedf:ema_decay=0", "a finite number above 0 and at most 1,"),
        (Defense, "gaussian:delta=1", "a finite number above 0 and below 1,"),
        (Method, "ccst:window=0.6", "a finite number of at least 0 and at most 0.5,"),
        (Attack, "label_histogram:alphas=0.5+-1", "a finite number above 0, or several joined by +;"),
        (Method, "pardon:contrastive=perhaps", "true or false,"),
        (Method, "pardon:codec=jpeg", "one of digits, photo, adain_vgg;"),
        (Method, "hfedf:buffers=freeze", "share,"),
    ],
)
def test_the_line_says_what_was_wanted_and_what_came(role: type[Role], spec: str, wanted: str) -> None:
    name, _, setting = spec.partition(":")
    written, _, value = setting.partition("=")
    with pytest.raises(ValueError) as caught:
        role.parse(spec)
    assert str(caught.value) == f"{name}.{written}: want {wanted} got {value!r}"


def bad(annotation: Any) -> Iterator[Any]:
    """Values that this type forbids."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from bad(inner[0])
        for rule in inner[1].metadata:
            for name, step in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)):
                if hasattr(rule, name):
                    yield getattr(rule, name) + step
    elif origin is Literal:
        yield "no such choice"
    elif origin in (Union, UnionType):
        yield from bad(inner[0])
    elif origin is tuple:
        yield from ((value,) for value in bad(inner[0]))
    else:
        yield from {int: [1.5], float: [float("nan"), float("inf")], bool: ["perhaps"]}.get(annotation, [5])


@pytest.mark.parametrize(("role", "name"), PARTS, ids=[f"{role.folder}/{name}" for role, name in PARTS])
def test_each_field_refuses_what_its_type_or_that_of_a_base_forbids(role: type[Role], name: str) -> None:
    part = role.named(name)
    for base in part.__mro__:
        for written, kind in kinds(base).items():
            for value in bad(kind.annotation):
                for make in (lambda settings: part.configured(settings), lambda settings: part(**settings)):
                    with pytest.raises(ValueError) as caught:
                        make({written: value})
                    said = str(caught.value)
                    assert said.startswith(f"{name}.{written}: want {words(kinds(part)[written].annotation)}")
                    assert said.endswith(f"got {value!r}")
                    assert len(said.splitlines()) == 1


def even(value: int) -> int:
    if value % 2:
        raise ValueError("even numbers only")
    return value


@dataclass(frozen=True)
class Noise:
    std: float = 1.0


@dataclass(frozen=True)
class Config:
    """No part; fields of types that only others know."""

    rounds: PositiveInt = 1
    share: Fraction | None = None
    noise: Noise = Noise()
    pairs: Annotated[int, AfterValidator(even)] = 2
    kept: dict[str, object] = field(default_factory=dict, init=False)


def test_any_dataclass_can_be_checked() -> None:
    for right in (Config(), Config(rounds=3, share=1, noise=Noise(0.5))):
        check(right, "config")
    for wrong, told in (
        (Config(rounds=True), "config.rounds: want a whole number of at least 1, got True"),
        (Config(rounds="3"), "config.rounds: want a whole number of at least 1, got '3'"),  # type: ignore[arg-type]
        (Config(share=2.0), "config.share: want a finite number of at least 0 and at most 1 or none, got 2.0"),
        (Config(noise=1), "config.noise: want Noise, got 1"),  # type: ignore[arg-type]
        (Config(pairs=3), "config.pairs: want a whole number, got 3 (Value error, even numbers only)"),
        (Config(rounds="a\nb"), r"config.rounds: want a whole number of at least 1, got 'a\nb'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError) as caught:
            check(wrong, "config")
        assert str(caught.value) == told


def test_types_of_fields_are_known_without_torch() -> None:
    asked = "import sys, fdgpriv.utils.fields; raise SystemExit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", asked], check=True)
