"""Quotes of the claims ledger against the texts of the papers, which lie beside the checkout where they are at hand."""

import re
from pathlib import Path

import pytest

from fdgpriv.claims import PAPERS, claim_tests

TEXTS = Path(__file__).resolve().parents[2] / "shared" / "papers"


def plain(text: str) -> str:
    """The text as quotes are compared: words broken by a hyphen at a line's end joined, runs of white space one space.

    Nothing else is changed: case, punctuation, quotation marks and spelling count.
    """
    return re.sub(r"\s+", " ", re.sub(r"(?<=\w)-\s*\n\s*", "", text)).strip()


def test_only_white_space_and_hyphens_are_ignored() -> None:
    assert plain("maintains  the pri-\n\n  vacy\n of clients") == "maintains the privacy of clients"
    assert plain("Client-level Styles, too") == "Client-level Styles, too"
    assert plain("- a list -\n entry") == "- a list - entry"


@pytest.mark.parametrize("method", PAPERS)
def test_every_quote_occurs_in_its_paper(method: str) -> None:
    file = TEXTS / f"{method}.txt"
    if not file.is_file():
        pytest.skip("the papers' texts are not beside this checkout")
    paper = plain(file.read_text(encoding="utf-8"))
    assert len(paper) > 20_000
    missing = {claim.id: claim.quote for claim in claim_tests(method) if plain(claim.quote) not in paper}
    assert not missing
    assert all(len(claim.quote.split()) >= 3 for claim in claim_tests(method))
