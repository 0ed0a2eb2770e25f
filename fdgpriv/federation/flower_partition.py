"""Assigns images to clients by a partitioner of flwr-datasets, over the images of all source domains together."""

import inspect
import os
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import torch

from fdgpriv.data.dataset import Domain
from fdgpriv.registry import split
from fdgpriv.utils.extras import optional
from fdgpriv.utils.suggestions import did_you_mean
from fdgpriv.utils.warnings_filter import warnings_ignored

EXTRA = "partition"
_NO_TELEMETRY = {"FLWR_TELEMETRY_ENABLED": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
_OF_RUN = ("num_partitions", "partition_by", "seed")  # arguments that the run gives unless the specification does
_COLUMNS = ("label", "domain")  # what partition_by may name


def flower_partition(
    spec: str, domains: Sequence[Domain], clients: int, rng: torch.Generator
) -> list[list[torch.Tensor]]:
    """By domain, by client: indices into the domain.

    The images of all domains, in random order, are one table with the columns ``label`` and ``domain``.

    Args:
        spec: ``NAME:field=value,...``, a class of flwr_datasets.partitioner and arguments of its constructor; values of a list
            are joined by ``+``. ``num_partitions`` is the number of clients, ``partition_by`` is label, and ``seed`` is drawn,
            unless given.
        domains: The source domains.
        clients: Number of clients.
        rng: Of the order and the seed.

    Raises:
        ValueError: flwr-datasets is not installed, has no such partitioner, or refuses its arguments; or the partitioner makes
            another number of clients, or does not give each image to one of them.
    """
    name, settings = split(spec)
    rows = [(d, i) for d, domain in enumerate(domains) for i in range(len(domain))]
    rows = [rows[place] for place in torch.randperm(len(rows), generator=rng).tolist()]
    seed = int(torch.randint(2**31, (), generator=rng))
    os.environ |= _NO_TELEMETRY
    partitioners = optional("flwr_datasets", EXTRA, f"--partition flwr:{name}").partitioner
    table = optional("datasets", EXTRA, f"--partition flwr:{name}").Dataset.from_dict(
        {
            "row": list(range(len(rows))),
            "label": [int(domains[d].labels[i]) for d, i in rows],
            "domain": [domains[d].name for d, _ in rows],
        }
    )
    arguments = _arguments(name, settings, partitioners, clients, seed)
    try:
        with redirect_stderr(StringIO()), warnings_ignored():  # progress, and images that no client has: checked below
            partitioner = getattr(partitioners, name)(**arguments)
            partitioner.dataset = table
            parts = [partitioner.load_partition(number)["row"] for number in range(partitioner.num_partitions)]
    except Exception as error:  # of another package, which checks arguments and images
        raise ValueError(f"--partition flwr:{name}: {' '.join(str(error).split())}") from error
    if len(parts) != clients:
        raise ValueError(f"--clients: want the {len(parts)} clients that flwr:{name} makes, got {clients}")
    if sorted(row for part in parts for row in part) != list(range(len(rows))):
        distinct, total = len({row for part in parts for row in part}), sum(map(len, parts))
        raise ValueError(
            f"--partition: want a partitioner that gives each image to one client, got flwr:{name}, which gives "
            f"{distinct} of {len(rows)} images, {total} times in all"
        )
    return [
        [torch.tensor([rows[row][1] for row in part if rows[row][0] == d], dtype=torch.int64) for part in parts]
        for d in range(len(domains))
    ]


def _arguments(name: str, settings: dict[str, str], partitioners: Any, clients: int, seed: int) -> dict[str, Any]:
    """The arguments of the partitioner's constructor.

    Raises:
        ValueError: It or one of its arguments is unknown, or an argument is missing.
    """
    names = [other for other in partitioners.__all__ if other != "Partitioner"]
    if name not in names:
        raise ValueError(
            f"--partition: want flwr: with a partitioner of {', '.join(names)}; got {name!r}{did_you_mean(name, names)}"
        )
    parameters = inspect.signature(getattr(partitioners, name)).parameters
    fields = list(parameters)
    if unknown := [field for field in settings if field not in fields]:
        raise ValueError(
            f"--partition: want fields of flwr:{name}: {', '.join(fields)}; got {unknown[0]!r}"
            f"{did_you_mean(unknown[0], fields)}"
        )
    if (column := settings.get("partition_by", _COLUMNS[0])) not in _COLUMNS:
        raise ValueError(f"--partition: want partition_by={' or '.join(_COLUMNS)} of flwr:{name}, got {column!r}")
    required = [field for field, parameter in parameters.items() if parameter.default is parameter.empty]
    if missing := [field for field in required if field not in (*settings, *_OF_RUN)]:
        raise ValueError(f"--partition: want flwr:{name}:{missing[0]}=VALUE, got no {missing[0]}")
    of_run = dict(zip(_OF_RUN, (clients, column, seed), strict=True))
    values_of = {field: [_value(part) for part in text.split("+")] for field, text in settings.items()}
    return {
        **{field: value for field, value in of_run.items() if field in fields},
        **{field: values if len(values) > 1 else values[0] for field, values in values_of.items()},
    }


def _value(text: str) -> int | float | bool | str:
    """A number, true or false, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
