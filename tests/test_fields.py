"""Every field of every part refuses what its type forbids, in one line that says what was wanted and what came."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from factories import refused
from pydantic import AfterValidator

from fdgpriv.attack import Attack
from fdgpriv.defense import Defense
from fdgpriv.method import Method, Role
from fdgpriv.report import Report
from fdgpriv.utils.fields import Fraction, PositiveInt, check, kinds, words

ROLES: tuple[type[Role], ...] = (Method, Attack, Defense, Report)


WANTED = (
    (Method, "stablefdg:rounds=ten", "a whole number of at least 1,"),
    (Method, "stablefdg:participants=0", "a whole number of at least 1 or none,"),
    (Method, "stablefdg:received=-1", "a whole number of at least 0,"),
    (Attack, "gan:batch_size=1", "a whole number of at least 2,"),
    (Method, "stablefdg:exploration=nan", "a finite number,"),
    (Defense, "gaussian:epsilon=inf", "a finite number above 0,"),
    (Method, "lsi:norm_weight=-0.1", "a finite number of at least 0,"),
    (Method, "stablefdg:p=2", "a finite number of at least 0 and at most 1,"),
    (Method, "hfedf:ema_decay=0", "a finite number above 0 and at most 1,"),
    (Defense, "gaussian:delta=1", "a finite number above 0 and below 1,"),
    (Attack, "label_histogram:alphas=0.5+-1", "a finite number above 0, or several joined by +;"),
    (Method, "pardon:contrastive=perhaps", "true or false,"),
    (Method, "pardon:codec=jpeg", "one of digits, photo, adain_vgg;"),
    (Method, "hfedf:buffers=freeze", "share,"),
)


@pytest.mark.parametrize(("role", "spec", "wanted"), WANTED)
def test_errors_name_what_was_wanted_and_came(role: type[Role], spec: str, wanted: str) -> None:
    name, field_name, value = re.split("[:=]", spec)
    with refused(f"^{re.escape(f'{name}.{field_name}: want {wanted} got {value!r}')}$"):
        role.parse(spec)


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


@pytest.mark.parametrize("role", ROLES, ids=lambda role: str(role.folder))
def test_each_field_refuses_what_its_type_forbids(role: type[Role]) -> None:
    """Or what the type of the same field in a base class forbids."""
    for name in role.names():
        part = role.named(name)
        declared = [(name, kind.annotation) for base in part.__mro__ for name, kind in kinds(base).items()]
        for field_name, value in (
            (field_name, value) for field_name, annotation in declared for value in bad(annotation)
        ):
            for make in (part.configured, lambda settings, part=part: part(**settings)):
                with refused(f"got {re.escape(repr(value))}$") as caught:
                    make({field_name: value})
                wanted = words(kinds(part)[field_name].annotation)
                assert str(caught.value).startswith(f"{name}.{field_name}: want {wanted}")


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
    check(Config(rounds=3, share=1, noise=Noise(0.5)), "config")
    for wrong, reason in (
        (Config(rounds=True), "config.rounds: want a whole number of at least 1, got True"),
        (Config(share=2.0), "config.share: want a finite number of at least 0 and at most 1 or none, got 2.0"),
        (Config(noise=1), "config.noise: want Noise, got 1"),  # type: ignore[arg-type]
        (Config(pairs=3), "config.pairs: want a whole number, got 3 (Value error, even numbers only)"),
        (Config(rounds="a\nb"), r"config.rounds: want a whole number of at least 1, got 'a\nb'"),  # type: ignore[arg-type]
    ):
        with refused(f"^{re.escape(reason)}$"):
            check(wrong, "config")
