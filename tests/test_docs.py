"""README and docs/: links and named files exist, commands are accepted, the site has every page."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import fdgpriv
from fdgpriv import audit
from fdgpriv.cli.options import check_effects
from fdgpriv.compare import command as compare
from fdgpriv.leaderboard import command as leaderboard
from fdgpriv.selftest import command as selftest
from fdgpriv.verify import command as verify

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


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


COMMAND = re.compile(
    r"(?:^ *(?:python -m fdgpriv\.|fdgpriv )|`python -m fdgpriv\.)(audit|compare|leaderboard|verify|selftest) ([^`\n]+)",
    re.MULTILINE,
)
COMMANDS = {
    match[0].split("  #")[0].strip("` "): shlex.split(match[2], comments=True)
    for page in PAGES
    if page.parent.name != "results" and page.name not in ("adding-a-part.md", "your-defense.md")
    for match in COMMAND.finditer(page.read_text(encoding="utf-8"))
}


def test_pages_have_commands() -> None:
    assert len(COMMANDS) >= 15


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_accepted(command: str) -> None:
    words = COMMANDS[command]
    if "--data-root" in words:  # any folder in place of the dataset's
        words[words.index("--data-root") + 1] = str(ROOT)
    if " compare" in command or ".compare" in command:
        assert compare.parser().options(words)["runs"]
    elif "leaderboard" in command:
        assert leaderboard.parser().options(words)["runs"]
    elif "selftest" in command:
        selftest.parser().options(words)
    elif "verify" in command:
        assert verify.parser().options(words)["runs"]
    else:
        given = audit.parser().options(words)
        check_effects(given)
        if not {"list", "artifact"} & given.keys():
            try:
                audit._options(given).check()
            except ValueError as error:
                if "pip install" in str(error):
                    pytest.skip(str(error))
                raise


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_the_site_has_every_page() -> None:
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {fdgpriv.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"])
def test_licence_files_exist(name: str) -> None:
    assert (ROOT / name).stat().st_size > 500


def test_the_layers_are_those_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert "```\n" + "\n".join(layers) + "\n```" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
