"""A seed is a whole number from 0 to 2^63 - 1, of whatever type; anything else is one line before anything is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from factories import refused

import fdgpriv
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.cli.options import Options
from fdgpriv.federation.participant import stream
from fdgpriv.results.score_tables import RunKey, check_writable
from fdgpriv.utils.seed_values import LARGEST_SEED, seed_value, seed_values

GOOD = [0, 7, LARGEST_SEED, np.int64(7), np.uint8(7), np.uint64(LARGEST_SEED), np.array(7), torch.tensor(7)]
BAD = [
    True,
    np.bool_(True),
    torch.tensor(True),
    1.0,
    np.float32(1),
    "0",
    "x",
    b"0",
    None,
    -1,
    2**63,
    np.uint64(2**63),
    10**40,
]
BAD += [[1], torch.tensor(1.0)]  # fmt: skip


@pytest.mark.parametrize("given", GOOD)
def test_whole_numbers_of_any_type_are_seeds(given: Any) -> None:
    assert type(seed_value(given)) is int
    assert seed_value(given) == int(given)
    assert seed_values(given) == (int(given),)


@pytest.mark.parametrize("given", BAD)
def test_anything_else_is_refused(given: Any) -> None:
    with refused(r"^--seed: want a whole number from 0 to 2\^63 - 1, got "):
        seed_value(given)


def test_a_number_without_end_is_shown_in_part() -> None:
    with refused(r"got 1000+\.\.\.$"):
        seed_value(10**300)


@pytest.mark.parametrize("given", [range(3), np.arange(3), [0, np.int64(1), 2], (i for i in range(3)), torch.arange(3)])
def test_sequences_of_seeds(given: Any) -> None:
    assert seed_values(given) == (0, 1, 2)
    assert all(type(seed) is int for seed in Options(seeds=range(3)).seeds)  # type: ignore[arg-type]


def test_no_seed_is_refused() -> None:
    with refused("want at least one seed"):
        seed_values([])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda seed: fdgpriv.run_audit("fedavg", seeds=seed), "seeds"),
        (lambda seed: fdgpriv.run_audit("fedavg", seeds=[0, seed]), "seeds"),
        (lambda seed: fdgpriv.audit_recording("none", network=torch.nn.Identity(), clients={}, seed=seed), "seed"),
    ],
)
@pytest.mark.parametrize("seed", ["0", True, 1.5, 2**63])
def test_every_entry_refuses_alike(call: Callable[[Any], Any], name: str, seed: Any) -> None:
    with refused(rf"^{name}: want a whole number from 0 to 2\^63 - 1, got "):
        call(seed)


def test_the_largest_seed_serves_everywhere(tmp_path: Path) -> None:
    stream(LARGEST_SEED, SERVER)
    check_writable([RunKey("fedavg", "digits", None, LARGEST_SEED, "none")])
    with refused("want runs that can be written as score tables with pyarrow"):
        check_writable([RunKey("fedavg", "digits", None, LARGEST_SEED + 1, "none")])
