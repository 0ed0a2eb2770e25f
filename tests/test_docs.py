"""README and docs/: links and named files exist, commands are accepted, the site has every page."""

import re
import shlex
import tomllib
from importlib import util
from pathlib import Path
from typing import Any

import pytest

import fdgpriv
from fdgpriv import audit
from fdgpriv.cli.options import check_effects
from fdgpriv.compare import command as compare
from fdgpriv.leaderboard import command as leaderboard
from fdgpriv.method import Method
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


@pytest.fixture(scope="module")
def presets() -> Any:
    """The module docs/preset_tables.py."""
    spec = util.spec_from_file_location("preset_tables", ROOT / "docs" / "preset_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_presets_are_those_of_the_code(presets: Any) -> None:
    page = presets.PAGE.read_text(encoding="utf-8")
    renewed = presets.rendered(page)
    assert page == renewed, f"docs/methods.md is out of date; renew its tables: {presets.COMMAND}"


def test_a_method_that_the_page_does_not_describe_changes_no_table(
    presets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a user wrote one, in docs/adding-a-part.md."""
    assert len(presets.methods()) >= 22
    page = tmp_path / "methods.md"
    page.write_text("| method | shares |\n|---|---|\n| `fedavg`, `ccst` | x |\n\n`dsu`\n", encoding="utf-8")
    monkeypatch.setattr(presets, "PAGE", page)
    assert presets.methods() == ["ccst", "fedavg"]


def row_of(table: str, method: str) -> dict[str, str]:
    """The cells of a method's row, by heading."""
    heads, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|"))
    (cells,) = (cells for cells in rows if f"`{method}`" in cells[0].split(", "))
    return dict(zip(heads, cells, strict=False))


def test_the_tables_of_presets_have_the_papers_numbers(presets: Any) -> None:
    """StableFDG section 4.1 and App. G, CCST section 4.2, hFedF section 5.1 and Table 10, FedSR's released code."""
    quick, default, paper = presets.trainings().split("\n**")
    assert (quick.splitlines()[0], default.splitlines()[0]) == ("**`quick`**", "`default` and `thorough`**")
    stablefdg, ccst, hfedf = (row_of(paper, name) for name in ("stablefdg", "ccst", "hfedf"))
    assert list(stablefdg.values())[1:7] == ["50 x 5", "10", "32", "SGD, momentum 0.9", "0.001, cosine", "0.0005"]
    assert (ccst["rounds x local epochs"], ccst["optimiser"]) == ("500 x 1", "SGD")
    assert (hfedf["rounds x local epochs"], hfedf["batch"], hfedf["weight decay"]) == ("200 x 2", "64", "0.001")
    assert row_of(paper, "fedsr")["rounds x local epochs"] == "1,000 x 5 mini-batches"
    assert row_of(default, "pfedhn")["clients a round"] == "all"
    assert row_of(paper, "pfedhn")["clients a round"] == "1"
    changed = "other fields that presets change"
    assert (row_of(quick, "stablefdg")[changed], stablefdg[changed]) == ("`exploration=1`", "`exploration=3`")
    assert row_of(presets.federations(), "pardon")["partition"] == "`heterogeneity:0.1`"
    assert row_of(presets.federations(), "lsi")["clients"] == "one per source domain"
    assert row_of(presets.defaults(), "hfedf")["`paper`"].startswith("`client_optimizer=adam`")


def test_a_changed_preset_makes_the_page_out_of_date(presets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = presets.PAGE.read_text(encoding="utf-8")
    part = Method.named("mixstyle")
    quick = {**part.presets["quick"], "p": 0.25}
    monkeypatch.setattr(part, "presets", {**part.presets, "quick": quick})
    renewed = presets.rendered(page)
    assert page != renewed
    assert "`p=0.25`" in renewed
    with pytest.raises(ValueError, match=r"want <!-- generated by .*: defaults --> once, .*; got it 0 times"):
        presets.rendered(page.replace(": defaults -->", ": default -->"))
