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
_RUN_ARGUMENTS = ("num_partitions", "partition_by", "seed")  # set by the run unless the specification sets them
_COLUMNS = ("label", "domain")  # permitted values of partition_by


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
        rng: Random numbers of the order and the seed.

    Raises:
        ValueError: flwr-datasets is not installed, has no such partitioner, or refuses its arguments; or the partitioner makes
            another number of clients, or does not give each image to one of them.
    """
    name, settings = split(spec)
    rows = [(d, i) for d, domain in enumerate(domains) for i in range(len(domain))]
    rows = [rows[position] for position in torch.randperm(len(rows), generator=rng).tolist()]
    seed = int(torch.randint(2**31, (), generator=rng))
    table: dict[str, list[Any]] = {
        "row": list(range(len(rows))),
        "label": [int(domains[d].labels[i]) for d, i in rows],
        "domain": [domains[d].name for d, _ in rows],
    }
    client_rows = _client_rows(name, settings, table, clients, seed)
    _check_assignment(name, client_rows, clients, len(rows))
    return [
        [torch.tensor([rows[row][1] for row in part if rows[row][0] == d], dtype=torch.int64) for part in client_rows]
        for d in range(len(domains))
    ]


def _client_rows(
    name: str, settings: dict[str, str], table: dict[str, list[Any]], clients: int, seed: int
) -> list[list[int]]:
    """By client, the table's rows that the partitioner `name` assigns to it.

    Raises:
        ValueError: flwr-datasets is not installed, has no such partitioner, or refuses its arguments or the images.
    """
    os.environ |= _NO_TELEMETRY
    partitioners = optional("flwr_datasets", EXTRA, f"--partition flwr:{name}").partitioner
    dataset = optional("datasets", EXTRA, f"--partition flwr:{name}").Dataset.from_dict(table)
    arguments = _arguments(name, settings, partitioners, clients, seed)
    try:
        with redirect_stderr(StringIO()), warnings_ignored():  # progress, and images without a client: checked later
            partitioner = getattr(partitioners, name)(**arguments)
            partitioner.dataset = dataset
            return [partitioner.load_partition(number)["row"] for number in range(partitioner.num_partitions)]
    except Exception as error:  # raised by the package, which checks arguments and images
        raise ValueError(f"--partition flwr:{name}: {' '.join(str(error).split())}") from error


def _check_assignment(name: str, client_rows: Sequence[Sequence[int]], clients: int, images: int) -> None:
    """Raises ValueError unless there are so many clients, and each image is in the rows of one of them."""
    if len(client_rows) != clients:
        raise ValueError(f"--clients: want the {len(client_rows)} clients that flwr:{name} makes, got {clients}")
    assigned = sorted(row for part in client_rows for row in part)
    if assigned != list(range(images)):
        raise ValueError(
            f"--partition: want a partitioner that gives each image to one client, got flwr:{name}, which gives "
            f"{len(set(assigned))} of {images} images, {len(assigned)} times in all"
        )


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
    if missing := [field for field in required if field not in (*settings, *_RUN_ARGUMENTS)]:
        raise ValueError(f"--partition: want flwr:{name}:{missing[0]}=VALUE, got no {missing[0]}")
    run_arguments = dict(zip(_RUN_ARGUMENTS, (clients, column, seed), strict=True))
    return {
        **{field: value for field, value in run_arguments.items() if field in fields},
        **{field: _value(text) for field, text in settings.items()},
    }


def _value(text: str) -> Any:
    """A number, true or false, the text itself, or a list of these for parts joined by ``+``."""
    if "+" in text:
        return [_value(part) for part in text.split("+")]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
