"""How samples are dealt: each one once, by each of the four partitions, and the same again for the same seed."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import shortened
from factories import equal, refused, seeded
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.federation.held_out import SHARE as HELD_OUT_SHARE
from fdgpriv.federation.partition import AUXILIARY_SHARE, Population, populate
from fdgpriv.federation.reserve import MIN_UNITS, UNITS_PER_DOMAIN, reserve
from fdgpriv.federation.schemes import Assignment, partitioner

SIZES = st.lists(st.integers(30, 400), min_size=1, max_size=6)
CLIENTS = st.integers(1, 24)
SEED = st.integers(0, 2**31)


def dealt(spec: str, sizes: list[int], clients: int, seed: int) -> Assignment:
    domains = [Domain(f"d{d}", torch.zeros(size, 3, 1, 1), torch.zeros(size).long()) for d, size in enumerate(sizes)]
    return partitioner(spec)(domains, clients, seeded(seed))


def counts(assignment: Assignment) -> np.ndarray:
    """(domains, clients)."""
    return np.array([[len(part) for part in by_client] for by_client in assignment])


def assert_each_sample_once(assignment: Assignment, sizes: list[int], clients: int) -> None:
    assert len(assignment) == len(sizes)
    for by_client, size in zip(assignment, sizes, strict=True):
        assert len(by_client) == clients
        assert sorted(torch.cat(by_client).tolist()) == list(range(size))


@given(SIZES, CLIENTS, SEED, st.sampled_from(["single", "heterogeneity:0", "domains:1", "domains:2", "domains:6"]))
def test_each_client_has_so_many_domains(sizes: list[int], clients: int, seed: int, spec: str) -> None:
    """One domain, or as many as are asked for, each of them dealt evenly to its clients."""
    per_client = int(spec[8:]) if spec.startswith("domains") else 1
    assume(per_client <= len(sizes) <= clients * per_client)
    assignment = dealt(spec, sizes, clients, seed)
    assert_each_sample_once(assignment, sizes, clients)
    table = counts(assignment)
    assert ((table > 0).sum(axis=0) == per_client).all()
    for row in table:
        assert row[row > 0].max() - row[row > 0].min() <= 1
    holders = (table > 0).sum(axis=1)
    assert spec != "single" or holders.max() - holders.min() <= 1


@given(SIZES, CLIENTS, SEED, st.sampled_from([0.1, 0.5, 1.0, 10.0]))
def test_dirichlet_deals_everybody_two_or_more(sizes: list[int], clients: int, seed: int, alpha: float) -> None:
    told = ""
    assignment: Assignment = []
    try:
        assignment = dealt(f"dirichlet:{alpha}", sizes, clients, seed)
    except ValueError as error:
        told = str(error)
    assert not told or "use fewer clients" in told or "at least 2 samples per client" in told
    assume(not told)
    assert_each_sample_once(assignment, sizes, clients)
    assert counts(assignment).sum(axis=0).min() >= 2


@given(SIZES, CLIENTS, SEED, st.floats(0, 1))
def test_heterogeneity_deals_each_sample_once(sizes: list[int], clients: int, seed: int, share: float) -> None:
    assume(clients >= len(sizes))
    assignment = dealt(f"heterogeneity:{share!r}", sizes, clients, seed)
    assert_each_sample_once(assignment, sizes, clients)


@given(SIZES, CLIENTS, SEED)
def test_heterogeneity_1_is_even(sizes: list[int], clients: int, seed: int) -> None:
    assume(clients >= len(sizes))
    table = counts(dealt("heterogeneity:1", sizes, clients, seed))
    assert (table.max(axis=1) - table.min(axis=1) <= 1).all()


def test_heterogeneity_has_the_shares_it_says() -> None:
    """PARDON: (1 - lambda) / k of the main domain and lambda / N of every domain."""
    table = counts(dealt("heterogeneity:0.4", [1000, 1000], 4, 0))
    expected = {0: 0.6 / 2 + 0.1, 1: 0.1}
    for row in table:
        assert sorted(row.tolist()) == [100, 100, 400, 400]
    main = table.argmax(axis=0)
    for client in range(4):
        assert table[main[client], client] == round(1000 * expected[0])
        assert table[1 - main[client], client] == round(1000 * expected[1])


def test_larger_domains_have_more_clients() -> None:
    table = counts(dealt("heterogeneity:0", [900, 100, 100], 5, 0))
    assert (table > 0).sum(axis=1).tolist() == [3, 1, 1]


def test_domains_of_all_is_even() -> None:
    assert (counts(dealt("domains:3", [90, 120, 60], 6, 1)) == np.array([[15], [20], [10]])).all()


# Dirichlet(0.5) against numpy


@pytest.fixture(scope="module")
def shares() -> np.ndarray:
    """(draws, clients): shares of one domain of 4,000 samples over four clients."""
    drawn = [counts(dealt("dirichlet:0.5", [4000, 4000, 4000], 4, seed))[0] for seed in range(800)]
    return np.array(drawn) / 4000


def test_dirichlet_shares_are_numpy_s(shares: np.ndarray) -> None:
    """Three domains to four clients: nearly no draw is refused for a client without two samples."""
    numpy_s = np.random.default_rng(5).dirichlet([0.5] * 4, size=100_000)
    for client in range(4):
        assert stats.ks_2samp(shares[:, client], numpy_s[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(shares.max(axis=1), numpy_s.max(axis=1)).pvalue > 1e-3
    even = np.random.default_rng(5).dirichlet([2.0] * 4, size=100_000)
    assert stats.ks_2samp(shares[:, 0], even[:, 0]).pvalue < 1e-6  # what another alpha would look like


PARTITIONS = ("single", "dirichlet:0.5", "heterogeneity:0.3", "domains:2")


# What cannot be


def test_what_cannot_be_dealt_is_refused() -> None:
    for spec in (
        *("", "Single", "single:2", "dirichlet", "dirichlet:0", "dirichlet:x", "dirichlet:nan", "heterogeneity:-0.1"),
        *("heterogeneity:1.1", "domains:0", "domains:1.5"),
    ):
        with refused(re.escape(repr(spec))) as caught:
            partitioner(spec)
        assert all(name in str(caught.value) for name in ("single", "dirichlet:", "heterogeneity:", "domains:"))
    for spec, clients, reason in (
        ("single", 2, r"at least one client per source domain \(3\), got 2"),
        ("heterogeneity:0.5", 2, r"at least one client per source domain \(3\), got 2"),
        ("domains:4", 5, "at most 3 domains per client, got 4"),
        ("domains:1", 2, "source domains, got 2"),
        ("dirichlet:0.5", 1000, "2 samples per client, got 300 for 1000"),
        ("dirichlet:0.01", 100, "use fewer clients"),
    ):
        with refused(reason):
            dealt(spec, [100, 100, 100], clients, 0)


# The population


def numbered(sizes: list[int]) -> Dataset:
    """Domains whose every image holds its own number, so that it can be followed."""
    domains, start = [], 0
    for d, size in enumerate(sizes):
        numbers = torch.arange(start, start + size, dtype=torch.float32)
        domains.append(Domain(f"d{d}", numbers[:, None, None, None].expand(-1, 3, 2, 2), torch.arange(size) % 5))
        start += size
    return Dataset("numbered", tuple("abcde"), tuple(domains), "d0", "numbers", "none")


def numbers(images: torch.Tensor) -> list[int]:
    return [int(value) for value in images[:, 0, 0, 0].tolist()]


def by_holder(population: Population) -> dict[str, torch.Tensor]:
    """By client, shadow and public domain, all its images, held out ones too."""
    held = population.clients | population.shadows
    own = {name: torch.cat([data.images, data.held_out_images]) for name, data in held.items()}
    return own | {f"public {name}": domain.images for name, domain in population.auxiliary.items()}


def everybody(population: Population) -> dict[str, list[int]]:
    return {name: numbers(images) for name, images in by_holder(population).items()}


@given(st.lists(st.integers(40, 120), min_size=2, max_size=5), st.integers(1, 14), SEED, st.sampled_from([*PARTITIONS]))
def test_every_source_image_is_in_one_place(sizes: list[int], clients: int, seed: int, partition: str) -> None:
    told, population = "", None
    try:
        population = populate(numbered(sizes), "d0", partition, clients, seed)
    except ValueError as error:
        told = str(error)
    assert not told or "want" in told or "no draw" in told
    assume(not told)
    placed = [number for held in everybody(population).values() for number in held]
    assert sorted(placed) == list(range(sizes[0], sum(sizes)))
    assert numbers(population.target.images) == list(range(sizes[0]))
    assert population.sources == tuple(f"d{d}" for d in range(1, len(sizes)))
    assert list(population.clients) == [f"client-{i:02d}" for i in range(clients)]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_population_knows_who_holds_what(partition: str) -> None:
    sizes = [50, 80, 90, 100]
    population = populate(numbered(sizes), "d0", partition, 6, 2)
    edges = np.cumsum(sizes)
    for name, data in (population.clients | population.shadows).items():
        assert population.data(name) is data
        assert data.client == name
        assert data.classes == 5
        true = [int(np.searchsorted(edges, number, side="right")) - 1 for number in numbers(data.images)]
        assert population.domain_of[name].tolist() == true
        assert population.main_domain(name) == np.bincount(true).argmax()
        assert data.labels.tolist() == [
            (number - int(edges[d])) % 5 for number, d in zip(numbers(data.images), true, strict=True)
        ]
        total = len(data) + len(data.held_out_images)
        assert len(data.held_out_images) == len(data.held_out_labels) == max(1, int(HELD_OUT_SHARE * total))
    for d, name in enumerate(population.sources):
        shadow = [data for data in population.shadows.values() if population.main_domain(data.client) == d]
        apart = sum(len(data) + len(data.held_out_images) for data in shadow)
        assert len(population.auxiliary[name]) + apart == int(AUXILIARY_SHARE * sizes[d + 1])


@pytest.mark.parametrize("clients", [3, 5, 7, 11, 12, 13])
def test_shadows_are_of_domains_with_few_clients(clients: int) -> None:
    population = populate(numbered([50, 200, 200, 200]), "d0", "single", clients, 0)
    own = [population.main_domain(name) for name in population.clients]
    theirs = [population.main_domain(name) for name in population.shadows]
    for d in range(3):
        assert theirs.count(d) == max(0, MIN_UNITS - own.count(d))
    held = everybody(population)
    for name in population.shadows:
        assert len(set(population.domain_of[name].tolist())) == 1
        others = {number for other, mine in held.items() if other != name for number in mine}
        assert not others & set(held[name])
    assert not set(population.shadows) & set(population.clients)


@pytest.mark.parametrize("attacked", [True, False])
@pytest.mark.parametrize(("partition", "clients"), [("single", 3), ("single", 15), ("domains:1", 3), ("domains:2", 3)])
def test_shadows_never_cost_a_client_an_image(partition: str, clients: int, attacked: bool) -> None:
    """CCST's three clients train on .9 of the source images, of .75 of them where attacks want public images."""
    sizes = [50, 200, 240, 280]
    population = populate(numbered(sizes), "d0", partition, clients, 3, attacked)
    edges = np.cumsum(sizes)
    for d, name in enumerate(population.sources):
        size, public = sizes[d + 1], int(AUXILIARY_SHARE * sizes[d + 1]) if attacked else 0

        def of_domain(images: torch.Tensor, d: int = d) -> int:
            return sum(edges[d] <= number < edges[d + 1] for number in numbers(images))

        own, shadows = population.clients.values(), population.shadows.values()
        train, out = sum(of_domain(c.images) for c in own), sum(of_domain(c.held_out_images) for c in own)
        apart = sum(of_domain(c.images) + of_domain(c.held_out_images) for c in shadows)
        assert train + out == size - public
        assert len(population.auxiliary[name]) + apart == public
        assert vars(population.images(name)) == {
            "train": train, "held_out": out, "public": public - apart, "shadow": apart, "unused": 0,
        }  # fmt: skip
        assert bool(apart) is (attacked and clients == 3 and partition != "domains:2")
        assert partition == "domains:2" or abs(out - HELD_OUT_SHARE * (size - public)) <= clients


def test_shadows_are_of_public_images() -> None:
    for public, clients, classes, kept, apart in (
        (100, [300], 10, 52, [16, 16, 16]),  # half of the public images at most
        (100, [300, 300], 10, 50, [25, 25]),
        (100, [300, 9], 10, 82, [9, 9]),  # no larger than the smallest client
        (100, [300], 80, 82, [9, 9]),  # adversaries keep more images than there are classes
        (100, [300], 92, 100, []),  # none of fewer than eight images
        (100, [3], 92, 100, []),
        (100, [3], 10, 91, [3, 3, 3]),
        (100, [5, 5, 5, 5], 10, 100, []),
        (100, [], 10, 100, []),
    ):
        domain = numbered([public]).domains[0]
        left, parts = reserve(domain, domain.part(0, 0), clients, classes, None, UNITS_PER_DOMAIN)
        assert (len(left), [len(part) for part in parts]) == (kept, apart)
        together = numbers(torch.cat([left.images, *(part.images for part in parts)]))
        assert sorted(together) == list(range(public))


def test_images_left_out_serve_attacks() -> None:
    for left_out, clients, auxiliary, enough, held, apart in (
        (300, [30, 31], None, 10, 100, [30, 31] * 4),  # as large as the clients in turn, up to ten in the domain
        (200, [10, 60], None, 10, 100, [10, 60, 10, 60, 10, 10]),  # those that fit
        (70, [30, 31], None, 10, 100, [30, 31]),  # four with the clients: the public images stay
        (40, [30, 31], None, 10, 70, [30, 30]),  # three with the clients: a fourth one of public images
        (300, [30] * 12, None, 10, 100, []),
        (300, [30], None, 4, 100, [30] * 3),
        (300, [2, 73], None, 6, 100, [73, 73]),  # none of fewer than eight images
        (300, [30, 31], 250, 10, 250, [30, 31, 30, 31]),  # adversaries come first
        (300, [30, 31], 40, 10, 40, [30, 31] * 4),  # public images that they do not hold are left over
        (0, [300, 300], 100, 10, 100, []),  # what they are said to hold is not taken for shadow clients
        (300, [], 150, 10, 150, []),  # clients of several domains
    ):
        every = numbered([100 + left_out]).domains[0]
        public, parts = reserve(every.part(0, 100), every.part(100, 100 + left_out), clients, 10, auxiliary, enough)
        assert (len(public), [len(part) for part in parts]) == (held, apart)
        together = numbers(torch.cat([public.images, *(part.images for part in parts)]))
        assert len(together) == len(set(together)) == held + sum(apart)
        assert together[: min(held, 70)] == list(range(min(held, 70)))  # public ones first, whatever is left out


def test_no_more_auxiliary_images_than_there_are() -> None:
    few = numbered([50, 200, 200, 300]).few(80)
    for domain, count in (("d1", 140), ("d0", 50)):
        with refused(f"--auxiliary: want at most the {count} images of {domain} that no client holds, got {count + 1}"):
            populate(few, "d0", "single", 3, 0, auxiliary=count + 1)
    assert len(populate(few, "d0", "single", 3, 0, auxiliary=50).auxiliary["d1"]) == 50


def test_third_parties_hold_images_of_the_target() -> None:
    few = numbered([200, 200]).few(80)
    for auxiliary, held in ((None, 80), (30, 30), (120, 120)):
        population = populate(few, "d0", "single", 1, 0, auxiliary=auxiliary)
        found = numbers(population.other_domain.images)
        assert len(set(found)) == len(found) == held
        assert set(found) <= set(range(200))
        evaluated = set(numbers(population.target.images))
        assert len(evaluated & set(found)) == min(held, 80)  # the evaluated ones first
        assert held != 30 or set(found) != set(sorted(evaluated)[:30])  # at random: folders are sorted by class


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("auxiliary", [None, 90])
def test_images_left_out_change_no_client(partition: str, auxiliary: int | None) -> None:
    sizes = [120, 200, 240, 280]
    small = numbered(sizes).few(100)
    alone = populate(replace(small, whole=None), "d0", partition, 6, 5)
    population = populate(small, "d0", partition, 6, 5, auxiliary=auxiliary)
    for name, data in alone.clients.items():
        assert numbers(population.clients[name].images) == numbers(data.images)
        assert numbers(population.clients[name].held_out_images) == numbers(data.held_out_images)
    placed = [number for held in everybody(population).values() for number in held]
    assert len(placed) == len(set(placed))
    for d, name in enumerate(population.sources):
        counts = vars(population.images(name))
        assert sum(counts.values()) == sizes[d + 1]
        assert counts["public"] == len(population.auxiliary[name]) == (auxiliary or 25)
    own = [population.main_domain(name) for name in (*population.clients, *population.shadows)]
    with_shadows = [4, 5, 6] if auxiliary is None else [2, 4, 5]  # of 100, 140, 180 (35, 75, 115) images, 37 or 38 each
    assert partition != "single" or [own.count(d) for d in range(3)] == with_shadows
    assert partition == "single" or not population.shadows


def test_images_left_out_are_unused_without_attacks() -> None:
    population = populate(numbered([50, 200, 200, 200]).few(80), "d0", "single", 3, 0, attacked=False)
    assert not population.shadows
    assert population.images("d1").unused == 120


def test_mixed_domains_have_no_shadows() -> None:
    for partition in PARTITIONS[1:]:
        assert populate(numbered([50, 200, 200, 200]), "d0", partition, 3, 0).shadows == {}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_one_seed_names_one_population(partition: str, digits: Dataset) -> None:
    small = shortened(digits, 60)
    first, again, other = (by_holder(populate(small, "type", partition, 4, seed)) for seed in (0, 0, 1))
    assert equal(first, again)
    assert not equal(first, other)


def test_what_cannot_be_populated_is_refused() -> None:
    for target, partition, clients, reason in (
        ("nowhere", "single", 4, "want a domain of numbered: d0, d1, d2; got 'nowhere'"),
        ("d0", "single", 0, "want at least 1 client, got 0"),
        ("d0", "single", 60, "want at least 2 images per client"),
        ("d0", "bogus", 4, "want a partition of"),
    ):
        with refused(reason):
            populate(numbered([40, 40, 40]), target, partition, clients, 0)
