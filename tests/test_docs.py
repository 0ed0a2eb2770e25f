"""README and docs/: links and named files exist, the layers are those that import-linter checks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, link


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in ("adding-a-part.md", "your-defense.md")],
    ids=lambda page: page.name,
)
def test_files_that_a_page_names_exist(page: Path) -> None:
    own = r"`((?:fdgpriv|attacks|defenses|methods|reports|tests)/[\w/]+\.\w+)`"
    for name in re.findall(own, page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_the_layers_are_those_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert "```\n" + "\n".join(layers) + "\n```" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
