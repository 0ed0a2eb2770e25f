"""Tests of names that users give: no name of a client or domain changes what is computed, and equal names are one."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import refused
from torch import Tensor

import fdgpriv
from fdgpriv.artifacts.artifact import SERVER, client_name
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.defense import Defense
from fdgpriv.external.recorded_population import GivenFederation, given_federation, recorded_population
from fdgpriv.federation.participant import client_stream, stream
from fdgpriv.federation.partition import Population, populate
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.simulation.honest_mean import HONEST_MEAN
from fdgpriv.simulation.shared_model import GLOBAL_MODEL
from fdgpriv.utils.user_names import by_plain_name, check_case, plain, shadow_names, unused, without_case

Bank: Any = import_module("fdgpriv.methods._ccst_bank").Bank

ODD = (
    *("shadow-00", "shadow-01", "SHADOW-02", "all", "none", "global", "public", "calibration", "an unnamed domain"),
    *(
        "../x",
        "a/b",
        "C:\\x",
        "two words",
        "\N{SNOWMAN}",
        "\N{MAN}\u200d\N{WOMAN}",
        "7",
        "__proto__",
        "CON",
        "<b>&amp;</b>",
    ),
    *("$x_1$", "masks", "peer-2", "x" * 200),
)


def images_of(number: int, count: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(number)
    return torch.rand(count, 3, 8, 8, generator=rng), torch.arange(count) % 3


def federation(names: tuple[str, ...], domains: tuple[str, str] = ("day", "night")) -> GivenFederation:
    """Clients of these names and two domains, with public images of both."""
    clients = {name: (*images_of(i, 9), domains[i % 2]) for i, name in enumerate(names)}
    return given_federation(clients, {domain: images_of(90 + i, 60) for i, domain in enumerate(domains)}, None)


def tensors(population: Population) -> list[Tensor]:
    """All images of clients, held out, shadow clients and adversaries, in order."""
    data = [*population.clients.values(), *population.shadows.values()]
    pixels = [part for client in data for part in (client.pixels, client.held_out_pixels)]
    domains = [population.domain_of[client.client] for client in data]
    return [*pixels, *domains, *(domain.pixels for domain in population.auxiliary.values()), population.target.pixels]


def style(client: str) -> StyleStatistics:
    ones = torch.ones(2)
    moments = {"mean": ones, "std": ones, "mean_var": ones, "std_var": ones}
    return StyleStatistics(client=client, round=0, granularity="client", at="layer", rule="unknown", **moments)


def equal(population: Population, other: Population) -> bool:
    return all(torch.equal(a, b) for a, b in zip(tensors(population), tensors(other), strict=True))


def test_clients_names_change_no_population() -> None:
    expected = recorded_population(federation(tuple(f"client {i}" for i in range(len(ODD)))), 3, 0, 16)
    population = recorded_population(federation(ODD), 3, 0, 16)
    assert expected.shadows
    assert tuple(population.clients) == ODD
    assert equal(population, expected)


def test_clients_names_change_no_division_of_a_dataset() -> None:
    domains = [
        Domain(name, *images_of(number, 80), torch.arange(80) % 2 + 2 * number)
        for number, name in enumerate(("day", "night", "dusk"))
    ]
    named, expected = (
        populate(
            Dataset("folder", ("0", "1", "2"), tuple(domains), "dusk", "", "", clients=names), "dusk", "given", 4, 0
        )
        for names in (("shadow-00", "Shadow-01", "none", "all", "x", "y"), tuple("abcdef"))
    )
    assert expected.shadows
    assert equal(named, expected)


@pytest.mark.parametrize("domains", [("none", "None (2)"), ("an unnamed domain", "all"), ("shadow-00", "none")])
def test_domains_names_change_no_population(domains: tuple[str, str]) -> None:
    expected = recorded_population(federation(("a", "b", "c", "d")), 3, 0, 10)
    population = recorded_population(federation(("a", "b", "c", "d"), domains), 3, 0, 10)
    assert population.sources == domains
    assert len(population.target) == 0
    assert equal(population, expected)


def test_clients_without_a_domain_have_one_that_no_other_has() -> None:
    clients = {"a": (*images_of(0, 9), "an unnamed domain"), "b": images_of(1, 9)}
    assert set(given_federation(clients, {}, None).domain_of.values()) == {"an unnamed domain", "an unnamed domain (2)"}


@pytest.mark.parametrize(
    ("clients", "public", "message"),
    [
        (["cafe\u0301", "caf\u00e9"], ["d"], "clients: want different names, got .*, which are one name"),
        (["a", "a\u200b"], ["d"], "clients: want different names"),
        (["a", "b"], ["d", " d"], "public: want different names"),
        (["a", "b"], ["D"], "want names that differ by more than upper and lower case, got 'D' and 'd'"),
        (["a", " \u2060"], ["d"], "clients: want names of visible characters"),
        (["a", 7.5], ["d"], "clients: want names of visible characters, got 7.5"),
        (["a", "b\x1b[2J"], ["d"], "clients: want a name without control characters"),
    ],
)
def test_two_names_that_look_the_same_are_one_line(clients: list[Any], public: list[str], message: str) -> None:
    with refused(message):
        given_federation(
            {name: (*images_of(0, 9), "d") for name in clients}, {name: images_of(1, 9) for name in public}, None
        )


def test_a_domain_is_the_same_however_it_is_written() -> None:
    given = given_federation({"a": (*images_of(0, 9), "cafe\u0301 ")}, {"caf\u00e9": images_of(1, 9)}, None)
    assert list(given.public) == list(given.domain_of.values()) == ["caf\u00e9"]


def test_a_recorded_client_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "rec") as wire:
        for name in ("cafe\u0301", "caf\u00e9 ", "\ufeffcaf\u00e9"):
            wire.up(name, ("cafe\u0301", "caf\u00e9 ", "\ufeffcaf\u00e9").index(name), n=3)
    assert {record.sender for record in Transcript.load(tmp_path / "rec").records} == {"caf\u00e9"}
    given = given_federation({"cafe\u0301": images_of(0, 9)}, {}, None)
    assert list(given.named_as(["caf\u00e9"]).clients) == ["caf\u00e9"]
    assert list(given.named_as(["cafe\u0301"]).domain_of) == ["cafe\u0301"]
    with refused("want different names of recorded clients, got .*, which are one name"):
        given.named_as(["cafe\u0301", "caf\u00e9"])


def test_a_client_keeps_its_name_among_pseudonyms() -> None:
    styles = [style(name) for name in ("a", "b", "peer-2")]
    wire = Wire({"a": 1, "b": 1, "peer-2": 1}, Defense.named("none")())
    received = wire.down("peer-2", "fit", styles)
    assert [part.client for part in received] == ["peer", "peer-3", "peer-2"]
    assert [part.client for part in wire.down("a", "fit", styles)] == ["a", "peer", "peer-2"]


def test_a_client_called_as_the_server_s_styles_is_a_domain_of_its_own() -> None:
    names = (SERVER, "server 0", "server 2")
    styles = [style(name) for name in names]
    assert len(Bank.of(styles, "server 0", True).domains) == 3
    assert len(Bank.of(styles, "server 0", False).domains) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (" e\u0301 ", "\u00e9"),
        ("real\u00a0\u3000world", "real world"),
        ("c\u200bat\u00ad\ufeff", "cat"),
        ("\u200dcat\u200d", "cat"),
        ("\N{MAN}\u200d\N{WOMAN}", "\N{MAN}\u200d\N{WOMAN}"),
        ("\u3164\u2800", ""),
    ],
)
def test_a_plain_name(name: str, expected: str) -> None:
    assert plain(name) == expected == plain(plain(name))


def test_a_client_s_name_may_be_anything_that_is_printed() -> None:
    assert [client_name(name, "here") for name in ODD] == list(ODD)
    for refused_name in ("", "\u200b", "x" * 201, "a\x07", "server", " peer", 3):
        with refused("here: want a client's name"):
            client_name(refused_name, "here")


def test_a_recorded_kind_is_none_that_is_asked_about(tmp_path: Path) -> None:
    kinds = (GLOBAL_MODEL, HONEST_MEAN, "model_state")
    with fdgpriv.record(tmp_path / "rec") as wire:
        for kind in (*kinds, "none"):
            wire.up("a", 0, kind=kind, rows=torch.ones(2))
    transcript = Transcript.load(tmp_path / "rec")
    assert {record.kind for record in transcript.records}.isdisjoint(kinds)
    assert len(transcript.records) + len(transcript.omissions) == 4


@pytest.mark.parametrize("name", ["masks", "defense of a", "data of a"])
def test_a_client_draws_other_numbers_than_a_purpose(name: str) -> None:
    draws = [torch.randn(4, generator=of(0, name)) for of in (client_stream, stream)]
    assert not torch.equal(*draws)
    assert torch.equal(*(torch.randn(4, generator=of(0, "client-00")) for of in (client_stream, stream)))


def test_unused_names_are_new() -> None:
    taken = ["shadow-00", "SHADOW-01", "none", "None (2)"]
    names = shadow_names(3, taken)
    assert names == ["shadow-02", "shadow-03", "shadow-04"]
    assert without_case(unused("none", taken)) not in map(without_case, taken)
    assert unused("none", []) == "none"


def test_names_that_differ_by_case() -> None:
    check_case(["A", "a", "b"], "classes", [{"A", "a"}])
    with refused("classes: want names that differ by more than upper and lower case, got 'STRASSE' and 'stra\u00dfe'"):
        check_case(["STRASSE", "stra\u00dfe"], "classes")
    assert by_plain_name({"A": 1, "a": 2}, "clients") == {"A": 1, "a": 2}
