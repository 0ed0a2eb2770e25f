"""Partitioners of flwr-datasets: each image once, by their own rules, the same again, and every fault one line."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from factories import refused, seeded

from fdgpriv.cli.options import Options
from fdgpriv.data.dataset import Domain
from fdgpriv.federation.schemes import Assignment, partitioner

SIZES = (120, 90, 150)
DOMAINS = [Domain(f"d{d}", torch.zeros(n, 3, 1, 1), torch.arange(n) % 5) for d, n in enumerate(SIZES)]


def dealt(spec: str, clients: int, seed: int = 0) -> Assignment:
    return partitioner(f"flwr:{spec}")(DOMAINS, clients, seeded(seed))


def assert_each_image_once(assignment: Assignment, clients: int) -> None:
    for by_client, size in zip(assignment, SIZES, strict=True):
        assert len(by_client) == clients
        assert sorted(torch.cat(by_client).tolist()) == list(range(size))


def label_counts(assignment: Assignment) -> np.ndarray:
    """(clients, labels)."""
    labels = [
        torch.cat([domain.labels[i] for domain, i in zip(DOMAINS, parts, strict=True)])
        for parts in zip(*assignment, strict=True)
    ]
    return np.array([of_client.bincount(minlength=5).tolist() for of_client in labels])


@pytest.fixture
def package() -> None:
    pytest.importorskip("flwr_datasets")


@pytest.mark.usefixtures("package")
def test_a_domain_is_one_client_s() -> None:
    assignment = dealt("NaturalIdPartitioner:partition_by=domain", 3)
    assert_each_image_once(assignment, 3)
    assert [[len(part) for part in by_client] for by_client in assignment] == [[120, 0, 0], [0, 90, 0], [0, 0, 150]]


@pytest.mark.usefixtures("package")
def test_a_small_alpha_makes_clients_differ() -> None:
    even, uneven = (
        label_counts(dealt(f"DirichletPartitioner:alpha={alpha},min_partition_size=2", 6)) for alpha in (1e4, 0.1)
    )
    assert (even.sum(), uneven.sum()) == (sum(SIZES), sum(SIZES))
    assert np.abs(even - 12).max() <= 2
    assert (uneven == 0).sum() > 5


@pytest.mark.usefixtures("package")
def test_sizes_in_a_list_are_kept() -> None:
    assignment = dealt("SizePartitioner:partition_sizes=100+100+160", 3)
    assert_each_image_once(assignment, 3)
    assert label_counts(assignment).sum(axis=1).tolist() == [100, 100, 160]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("spec", ["IidPartitioner", "DirichletPartitioner:alpha=0.5"])
def test_the_seed_decides(spec: str) -> None:
    first, again, other = dealt(spec, 6), dealt(spec, 6), dealt(spec, 6, seed=1)
    assert_each_image_once(first, 6)
    flat = [[part.tolist() for parts in assignment for part in parts] for assignment in (first, again, other)]
    assert flat[0] == flat[1] != flat[2]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("spec", "clients", "wanted"),
    [
        ("NaturalIdPartitioner:partition_by=domain", 4, "want the 3 clients that flwr:NaturalIdPartitioner makes, got 4"),
        ("Dirichlet:alpha=1", 6, "got 'Dirichlet'; did you mean 'DirichletPartitioner'?"),
        ("DirichletPartitioner:alfa=1", 6, "want fields of flwr:DirichletPartitioner: num_.*'alfa'; did you mean 'alpha'"),
        ("DirichletPartitioner", 6, "want flwr:DirichletPartitioner:alpha=VALUE, got no alpha"),
        ("DirichletPartitioner:alpha=-1", 6, "--partition flwr:DirichletPartitioner: Alpha values should be strictly greater"),
        ("DirichletPartitioner:alpha=1,partition_by=colour", 6, "want partition_by=label or domain .*, got 'colour'"),
        ("SizePartitioner:partition_sizes=100+100", 2, "gives each image to one client, .* gives 200 of 360 images"),
    ],
)  # fmt: skip
def test_what_a_partitioner_refuses_is_one_line(spec: str, clients: int, wanted: str) -> None:
    with refused(wanted):
        dealt(spec, clients)


class Table(dict[str, list[Any]]):
    """In place of the package's table."""

    @classmethod
    def from_dict(cls, columns: dict[str, list[Any]]) -> "Table":
        return cls(columns)


class ByLabel:
    """In place of a partitioner: label k is client k's; `lose` images of the first are no client's, `twice` the last's too."""

    dataset: Table

    def __init__(self, num_partitions: int, partition_by: str, lose: int = 0, twice: int = 0) -> None:
        self.num_partitions, self.column, self.lose, self.twice = num_partitions, partition_by, lose, twice

    def load_partition(self, number: int) -> Table:
        rows = [
            row for row, label in zip(self.dataset["row"], self.dataset[self.column], strict=True) if label == number
        ]
        if number == 0:
            rows = rows[self.lose :]
        return Table(row=rows + ([0] * self.twice if number == self.num_partitions - 1 else []))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with `ByLabel` alone."""
    package, partitioners, tables = (ModuleType(name) for name in ("flwr_datasets", "partitioner", "datasets"))
    for module, values in (
        (partitioners, {"__all__": ["ByLabel", "Partitioner"], "ByLabel": ByLabel}),
        (package, {"partitioner": partitioners}),
        (tables, {"Dataset": Table}),
    ):
        vars(module).update(values)
    monkeypatch.setitem(sys.modules, "flwr_datasets", package)
    monkeypatch.setitem(sys.modules, "datasets", tables)


@pytest.mark.usefixtures("stand_in")
def test_rows_lead_back_to_their_images() -> None:
    assignment = dealt("ByLabel", 5)
    assert_each_image_once(assignment, 5)
    for domain, by_client in zip(DOMAINS, assignment, strict=True):
        for client, part in enumerate(by_client):
            assert sorted(part.tolist()) == (domain.labels == client).nonzero().flatten().tolist()


@pytest.mark.usefixtures("stand_in")
def test_an_image_of_no_client_or_of_two_is_refused() -> None:
    for fields, counts in (("lose=2", "358 of 360 images, 358 times"), ("twice=1", "360 of 360 images, 361 times")):
        with refused(f"want a partitioner that gives each image to one client, got flwr:ByLabel, which gives {counts}"):
            dealt(f"ByLabel:{fields}", 5)


def test_without_the_package_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgpriv.utils.extras.find_spec", lambda name: None)
    with refused(r"want the package flwr_datasets, got none; to install it: pip install 'fdgpriv\[partition\]'"):
        Options(partition="flwr:IidPartitioner").check()
    for spec in ("flwr", "flwr:", "flwr:Iid:alpha"):
        with refused("want "):
            Options(partition=spec).check()
