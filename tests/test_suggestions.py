"""Misspelt names get the most similar known one, equal ones but for case are resolved, and strangers get nothing."""

import pytest

from fdgpriv.registry import names_in
from fdgpriv.utils.suggestions import did_you_mean, same_name

METHODS = names_in("methods")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("stabelfdg", METHODS, "stablefdg"),
        ("StabelFDG", METHODS, "stablefdg"),
        ("gausian", names_in("defenses"), "gaussian"),
        ("--methods", ["--seed", "--method"], "--method"),
        ("adit", ["audit", "compare", "selftest"], "audit"),
        ("Domain-Inferense", names_in("attacks"), "domain_inference"),
    ],
)
def test_a_misspelt_name_gets_the_nearest(name: str, known: list[str], meant: str) -> None:
    assert did_you_mean(name, known) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize("known", [METHODS, []])
def test_a_strange_name_gets_no_suggestion(known: list[str]) -> None:
    assert did_you_mean("zzzzzz", known) == ""


def test_a_character_that_only_looks_right_is_named() -> None:
    assert did_you_mean("\u0435lcfs", METHODS) == "; did you mean 'elcfs'? ('\u0435' is CYRILLIC SMALL LETTER IE)"
    assert did_you_mean("Möhr", ["Möhre"]) == "; did you mean 'Möhre'?"


def test_case_and_hyphens_do_not_matter() -> None:
    assert same_name("StableFDG", METHODS) == "stablefdg"
    assert same_name("Domain-Inference", names_in("attacks")) == "domain_inference"
    assert same_name("stabelfdg", METHODS) is None
    assert (same_name("AB", ["ab", "a_b"]), same_name("a_b", ["ab", "a_b"])) == (None, "a_b")
    assert [same_name(name, METHODS) for name in METHODS] == list(METHODS)
