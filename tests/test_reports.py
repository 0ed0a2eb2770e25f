"""The reports: nothing in them can act, nothing is missing, they are short, and what they say is stored in golden/."""

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _golden import assert_golden
from _results import HOSTILE, measured, missing, png, results
from conftest import mostly_slow, undrawn
from fdgpriv.reports import _numbers, _pictures
from fdgpriv.reports import csv as csv_report
from fdgpriv.reports._caveats import caveats
from fdgpriv.reports._content import report_content
from fdgpriv.reports._evidence import _federated_and_shadows as federated_and_shadows
from fdgpriv.reports._figures import Series, line_chart
from fdgpriv.reports.csv import Csv
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown, code, safe
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fdgpriv.results import figures
from fdgpriv.results.finding import Results
from fdgpriv.results.picture_grid import PictureGrid
from fdgpriv.results.question import Question
from fdgpriv.results.records import by_question
from fdgpriv.results.utility_finding import ClientUtility, PersonalUtility
from fdgpriv.statistics.measured import Measured

REPORTS = (Html, Markdown, Csv)
SEEN = HOSTILE.replace("\u202e", "�")
VOID = ("meta", "img")
NOWHERE = Path("nowhere")


class Page(HTMLParser):
    """What a browser would find: tags, attributes, texts, and the words that show before anything is unfolded.

    `outline` has the texts line by line, indented by what must be unfolded to see them.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.outline: list[str] = []
        self.visible: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        folded = self.open.count("details") - ("summary" in self.open)
        if data.strip() and "style" not in self.open:
            self.outline.append("  " * folded + " ".join(data.split()))
        if folded == 0 and not {"style", "title"} & set(self.open):
            self.visible += data.split()


def named(name: str) -> Results:
    """The results of one run with this name wherever a user or a part chooses one."""
    data = json.loads(results(defenses=("none",)).text())
    if name != HOSTILE:
        data = json.loads(json.dumps(data).replace(json.dumps(SEEN)[1:-1], "tame"))
    (run,) = data["runs"]
    run["method"], run["target"], run["defense"], run["not_measured"] = f"stablefdg:{name}", name, name, [name]
    run["artifacts"][0]["shape"] = run["claims"][0]["quote"] = run["claims"][0]["evidence"][0] = name
    data["dataset"]["name"] = data["dataset"]["about"] = data["command"] = name
    return Results.model_validate(data)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the figures of `page` lie."""
    return tmp_path_factory.mktemp("drawn")


@pytest.fixture(scope="module")
def page(drawn: Path) -> str:
    """report.html of the made-up results, with their figures."""
    return Html().render(results(drawn), drawn)


def test_the_page_can_neither_act_nor_load(page: str) -> None:
    found = Page(page)
    assert found.open == []
    assert not {"script", "link", "iframe", "object", "embed", "base", "form", "foreignobject"} & set(found.tags)
    for tag, name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("srcdoc", "xlink:href", "background", "action", "formaction")
        if name in ("href", "src"):
            assert value.startswith(("#", "data:image/webp;base64,"))
        if name == "style":
            assert tag in ("path", "use", "text", "g", "rect")
        assert not re.search(r"url\((?!#)", value)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = [value for tag, name, value in found.attributes if tag == "meta" and name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in policy
    outside = "".join(found.texts) + " ".join(value for *_, value in found.attributes)
    assert not re.search("(https?|ftp):", outside.replace(SEEN, "").replace(SEEN[:33], ""))


def test_paper_has_one_page_first_and_no_scroll_bars(page: str) -> None:
    """Whatever scrolls on a screen does not in print, and the first screen without what it links to is a page of its own."""
    style = page[page.index("<style>") : page.index("</style>")]
    screen, on_paper = style.split("@media print {", 1)
    scrolling = [
        selector.strip()
        for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", screen)
        if re.search(r"overflow(-x)?: (auto|scroll)", rule)
        for selector in selectors.split(",")
    ]
    (visible,) = re.findall(r"([^{}]+)\{ overflow: visible; \}", on_paper)
    assert scrolling
    assert {selector.strip() for selector in visible.split(",")} >= set(scrolling)
    assert re.search(r"\.first-page \{[^}]*break-after: page", on_paper)
    first, rest = page[page.index('<div class="first-page">') :].split("<details", 1)
    assert 'class="sentence' in first
    assert 'id="leaks"' in first
    assert 'id="advice"' in rest


@undrawn()
def test_hostile_names_are_only_text_in_the_page() -> None:
    page, tame = (Html().render(named(name), NOWHERE) for name in (HOSTILE, "tame"))
    found, plain = Page(page), Page(tame)
    assert found.tags == plain.tags
    assert Counter((tag, name) for tag, name, _ in found.attributes) == Counter((t, n) for t, n, _ in plain.attributes)
    assert "<script>alert(1)" not in page
    assert sum(SEEN in text for text in found.texts) >= 12
    assert "49" not in "".join(text for text in found.texts if "{{7*7}}" in text).replace("{{7*7}}", "")


@undrawn()
def test_only_pictures_of_the_folder_are_embedded(tmp_path: Path) -> None:
    inside = tmp_path / "run"
    outside = tmp_path / png(tmp_path, "secret.png")
    audit = results(inside)

    def sources(page: str) -> int:
        return len([1 for tag, name, _ in Page(page).attributes if (tag, name) == ("img", "src")])

    before = sources(Html().render(audit, inside))
    assert before == 2 * 3 + 1  # three attacks a run, and one picture that both runs have in common
    (inside / "figures/adain.png").unlink()
    (inside / "figures/adain.png").symlink_to(outside)
    (inside / "figures/gan_server_image.png").write_text("<svg onload=alert(1)>" * 9)
    (inside / "figures/gan_insider_client.png").write_bytes(outside.read_bytes()[:40])  # damaged
    page = Html().render(audit, inside)
    assert sources(page) == before - 3
    assert "figures/adain.png is not in the folder of this run, or is not a PNG" in page


@pytest.mark.parametrize("side", [8, 32, 120])
def test_grids_are_read_as_they_were_drawn(side: int, tmp_path: Path) -> None:
    """The pixels of every image that is not reduced, in any order of columns; nothing where the file says nothing."""
    drawn = torch.rand(3, 2, 3, side, side, generator=torch.Generator().manual_seed(0))
    rows = [dict(zip(("truth", "attack"), images, strict=True)) for images in drawn]
    figures.grid(rows, ["1 image", "1 image", "whole\nclient"], tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as picture:
        layout = PictureGrid.read(picture)
        assert (layout.columns, layout.rows) == (("truth", "attack"), ("1 image", "1 image", "whole client"))
        column = np.asarray(layout.images(picture.convert("RGB"), "attack", [2, 0], 96))
    if side <= 96:
        wanted = torch.cat([drawn[2, 1], drawn[0, 1]], 1).permute(1, 2, 0) * 255
        assert np.abs(column - wanted.numpy()).max() < 1.001
    parts = _pictures.grid(tmp_path, "grid.png", ("attack", "truth", "noise"), side=48, across=True)
    assert [(part.label, [column.heading for column in part.columns]) for part in parts] == [
        ("1 image", ["reconstruction", "truth"]), ("whole client", ["reconstruction", "truth"])
    ]  # fmt: skip
    assert [part.columns[0].picture.width for part in parts] == [96, 48]
    assert not _pictures.grid(tmp_path, png(tmp_path, "plain.png"))


def test_metadata_of_a_strange_grid_is_ignored(tmp_path: Path) -> None:
    good = PictureGrid(columns=("truth",), rows=("1 image",), left=0, top=0, step=9, shown=8, side=8)
    for change in (
        {"left": 1},
        {"left": -1},
        {"shown": "nan"},
        {"rows": ["1"] * 65},
        {"columns": ["a", "a"]},
        {"x": 1},
    ):
        text = PngInfo()
        text.add_text(next(iter(good.metadata())), json.dumps({**json.loads(good.model_dump_json()), **change}))
        Image.new("RGB", (8, 8)).save(tmp_path / "x.png", pnginfo=text)
        assert not _pictures.grid(tmp_path, "x.png"), change


@undrawn()
def test_every_link_leads_to_a_part_of_the_page(tmp_path: Path) -> None:
    """From each cell of the matrix to its evidence, from there to the attacks, and back to the matrix."""
    for audit in (results(), results(seeds=2), wide(2, 2)):
        page = Html().render(audit, tmp_path)
        ids = [value for _, name, value in Page(page).attributes if name == "id"]
        assert len(ids) == len(set(ids))
        links = {value[1:] for tag, name, value in Page(page).attributes if (tag, name) == ("a", "href")}
        assert links <= set(ids)
        cells = re.findall(r'id="(cell-[^"]*)".*?href="#(question-[^"]*)"', page)
        assert len(cells) == page.count('id="cell-')
        assert {cell for cell, _ in cells} <= links
        assert {value for value in ids if value.startswith("question-")} >= {question for _, question in cells}


ASKED = (
    ("style_statistics", "client", "server", "domain labels membership content identity"),
    ("style_statistics", "client", "insider", "content"),
    ("style_statistics", "client", "client", "labels membership content"),
    ("style_statistics", "client", "third_party", "labels membership content"),
    ("model_state", "client", "server", "domain labels size content identity"),
    ("global_model", "group", "client", "membership"),
    ("global_model", "group", "third_party", "membership"),
)
OPEN = {"verdict": "inconclusive", "inconclusive_because": "too_coarse", "beyond_doubt": False} | {
    "grade": None, "grade_interval": None,
}  # fmt: skip


def wide(methods: int, seeds: int, defenses: Sequence[str] = ("none",)) -> Results:
    """A report of full size: every run asks 28 questions in 19 cells, a third of them leaks, one of these severe."""
    base = results(defenses=("none",))
    (run,) = base.runs
    leak = next(q for q in run.questions if q.secret == "domain")
    places = [
        {"artifact": artifact, "level": level, "adversary": role, "secret": secret, "scope": scope}
        for artifact, level, role, secrets in ASKED
        for secret in secrets.split()
        for scope in (("client", "domain") if secret in ("labels", "content") else ("client",))
    ]
    asked = [leak.model_copy(update=place | (OPEN if i % 3 else {})) for i, place in enumerate(places)]
    asked[0] = asked[0].model_copy(update={"grade": "severe", "grade_interval": ("severe", "severe")})
    assert len(asked) == 28
    runs = tuple(
        run.model_copy(update={"method": f"method-{m}", "seed": seed, "defense": defense, "questions": tuple(asked)})
        for m in range(methods)
        for defense in defenses
        for seed in range(seeds)
    )
    return base.model_copy(update={"runs": runs})


@undrawn()
@pytest.mark.parametrize(
    ("methods", "seeds", "defenses"),
    mostly_slow([(1, 1, 1), (5, 3, 1), (1, 3, 4), (1, 3, 8), (2, 2, 4)], [(1, 1, 1), (1, 3, 4)]),
)
def test_the_first_screen_of_a_large_report_is_short(methods: int, seeds: int, defenses: int) -> None:
    names = ["none", *(f"gaussian:epsilon={i},delta=1e-05" for i in range(1, defenses))]
    page = Html().render(wide(methods, seeds, names), NOWHERE)
    assert "<details open" not in page
    words = Page(page).visible
    assert 300 < len(words) <= 1500
    sentences = re.split(r"[.?;] ", " ".join(words))
    attacks = ("gan", "identification", "domain inference", "label histogram", "class probe", "linkage")
    assert max(sum(name in one for name in attacks) for one in sentences) <= 2


def test_figures_have_alt_text_and_keyboard_focus(page: str) -> None:
    drawn = re.findall(r'<figure tabindex="0"><svg class="drawing".*?</figure>', page, re.DOTALL)
    assert len(drawn) == 4  # defenses for two secrets, the curve, accuracy over rounds
    assert len(drawn) == page.count('<svg class="drawing"')
    for one in drawn:
        name, alt = re.findall(r'role="img" aria-labelledby="(.*?)"><title id="\1">(.*?)</title>', one)[0]
        assert len(alt) > 40
        assert page.count(f'id="{name}"') == 1
        assert re.search(r"<figcaption>.{20,}</figcaption>", one)
        assert "#0" not in re.sub(r"(url\(|href=\")#", "", one)  # no colour of its own: light and dark are the page's
    ids = [value for _, name, value in Page(page).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert all(alt for tag, name, alt in Page(page).attributes if (tag, name) == ("img", "alt"))
    assert page.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]+"', page))


def test_a_phone_scrolls_sideways_in_tables_only(page: str) -> None:
    style = page[page.index("<style>") : page.index("</style>")]
    phone = 390
    for rule in re.findall(r"([^{}]+)\{([^{}]*)\}", style):
        for size, unit in re.findall(r"(?<![-\w])(?:min-)?width: ([\d.]+)(px|rem)", rule[1]):
            inside_table = rule[0].strip().startswith(("td", "th"))
            assert float(size) * (16 if unit == "rem" else 1) <= phone or inside_table, rule
    for kind in (".scroll", ".frame", "pre"):
        assert re.search(rf"^{re.escape(kind)} \{{[^}}]*overflow-x: auto", style, re.MULTILINE)
    assert page.count("<table") == len(
        re.findall(r'<div class="scroll[^>]*role="region"[^>]*tabindex="0">\s*<table', page)
    )
    assert not re.search(r"<svg class=\"drawing\"[^>]* width=", page)


def test_hostile_names_in_a_figure_are_only_letters() -> None:
    drawing = line_chart(
        "x", "c", '"><script>', "a$b$", HOSTILE, ["<b>", "_x"], [Series("<script>alert(1)</script>", (1.0, None))]
    )
    assert Page(drawing.svg).open == []
    assert "<script" not in drawing.svg
    assert "<b>" not in drawing.svg
    assert "http" not in drawing.svg


def in_words(question: Question) -> str:
    """The verdict as a reader should find it."""
    return f"{question.grade} leak".capitalize() if question.grade else VERDICTS[question.verdict]


VERDICTS = {"no_leak_found": "No leak found", "inconclusive": "Inconclusive", "not_applicable": "Not applicable"}


@undrawn()
def test_both_reports_show_every_verdict_as_it_is() -> None:
    for audit in (results(defenses=("none",)), results(seeds=2), wide(1, 1), wide(2, 2)):
        page, text = (report().render(audit, NOWHERE) for report in (Html, Markdown))
        chip = r'class="chip[^>]*>.*?</svg>(.*?)</(?:a|span)>'
        tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
        in_page = [
            re.findall(chip, one, re.DOTALL) for one in tables if re.search(r"<th [^>]*>What it (reads|asks)<", one)
        ]
        evidence = re.findall(rf'<details class="question [^"]*"><summary>\s*<span {chip}', page, re.DOTALL)
        tables = [rows(block) for block in text.split("\n\n") if block.startswith("|")]
        in_text = [
            [cell.partition("(")[0].strip(" *") for row in table[2:] for cell in row[1:] if cell.strip() != "–"]
            for table in tables
            if table[0][0].strip() in ("What it reads", "What it asks")
        ]
        listed = [row[1].strip(" *") for table in tables if table[0][0].strip() == "Question" for row in table[2:]]
        assert listed == evidence
        assert Counter(listed) == Counter(in_words(q) for run in audit.runs for q in run.questions)
        assert in_text == in_page
        if len(audit.runs) == 1:  # each cell of the matrix has its worst verdict
            leaks = [row for row in by_question(audit.runs) if row["verdict"] == "leak"]
            cells_with_leaks = {(row["adversary"], row["artifact"], row["secret"]) for row in leaks}
            assert sum(cell.endswith("leak") for cells in in_page for cell in cells) == len(cells_with_leaks)
        assert safe(report_content(audit).sentence) in text


def test_equal_results_give_equal_reports(tmp_path: Path) -> None:
    audit = results(tmp_path, defenses=("none",))
    audit.save(tmp_path / "results.json")
    for report in REPORTS:
        first = report().render(audit, tmp_path)
        assert report().render(results(defenses=("none",)), tmp_path) == first
        assert report().render(Results.load(tmp_path / "results.json"), tmp_path) == first


def without_conclusion() -> Results:
    """An interrupted quick audit of a method that guesses, with a training and a measurement that failed."""
    audit = results(defenses=("none", "clip", "noise"))
    good, failed, broken = audit.runs
    guess = good.utility.model_copy(
        update={"target_accuracy": measured(0.12, 0.03, 899, "higher_better"), "chance": 0.1}
    )
    runs = (
        good.model_copy(update={"utility": guess}),
        failed.model_copy(
            update={"utility": None, "attacks": (), "questions": (), "failed": "client 3, round 1: no memory"}
        ),
        broken.model_copy(update={"failures": ("measured epsilon of noise: not finite",)}),
    )
    return audit.model_copy(update={"runs": runs, "interrupted": True, "config": {**audit.config, "preset": "quick"}})


def head(markdown: str) -> str:
    """What stands before the evidence."""
    return markdown[: markdown.index("## What left the client")]


def test_what_reports_say(tmp_path: Path) -> None:
    """Of one run in full, with its page; of several and of one without a conclusion what stands before the evidence."""
    audit = results(tmp_path, defenses=("none",))
    assert_golden("one-run.md", Markdown().render(audit, tmp_path))
    assert_golden("page.txt", "\n".join(Page(Html().render(audit, tmp_path)).outline) + "\n")
    assert_golden("seeds.md", head(Markdown().render(results(seeds=2), tmp_path)))
    assert_golden("no-conclusion.md", head(Markdown().render(without_conclusion(), tmp_path)))
    empty = audit.model_copy(update={"runs": ()})
    assert_golden("no-run.md", head(Markdown().render(empty, tmp_path)))
    seen = " ".join(Page(Html().render(without_conclusion(), tmp_path)).visible)
    reasons = caveats(without_conclusion())
    assert all(sentence in seen for sentence in reasons.sentences)
    assert caveats(results()) is None


@pytest.mark.parametrize(("shadows", "differ"), [(0.69, False), (0.52, False), (0.50, True), (0.93, True)])
def test_a_note_if_shadow_and_federated_clients_differ(shadows: float, differ: bool) -> None:
    line = federated_and_shadows({"federated": measured(0.71, 0.1), "shadows": measured(shadows, 0.1)})
    assert ("These intervals do not meet" in line) == differ


def rows(text: str) -> list[list[str]]:
    """The cells of every Markdown table, after checking that each row is as long as its heading."""
    found = []
    width = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        width = width or len(cells)
        assert len(cells) == width
        found.append(cells)
    return found


@undrawn()
def test_pictures_are_linked_only_if_they_are_there(tmp_path: Path) -> None:
    text = Markdown().render(results(tmp_path), tmp_path)
    assert "![Truth" in text
    assert "figures/gone.png" not in re.findall(r"\]\((.*?)\)", text)


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def structure(markdown: str) -> list[str]:
    """What a Markdown parser makes of the text: the kinds of its blocks and spans; a code span by tag is one, too."""
    found = []
    for token in MARKDOWN.parse(markdown):
        kinds = [child.content if child.type == "html_inline" else child.type for child in token.children or ()]
        found += [token.type, token.tag, *re.sub(r"<code> (text )?</code>", "code_inline", " ".join(kinds)).split()]
    return found


def shown(markdown: str) -> str:
    """The running text that a reader sees."""
    spans = [child for token in MARKDOWN.parse(markdown) for child in token.children or ()]
    return "".join(span.content for span in spans if span.type in ("text", "code_inline"))


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40))
def test_markdown_shows_any_text_as_it_is(text: str) -> None:
    text = " ".join(text.split()) or "x"
    for place in ("{}", "- {}", "# {}", "- **{}**: x", "| head | {} |\n|---|---|"):
        for escaped, plain in ((safe(text), "plain"), (code(text), "`plain`")):
            assert structure(place.format(escaped)) == structure(place.format(plain))
            assert text in shown(place.format(escaped))


NAMES = [
    HOSTILE, r"a|b", r"a\\|b", r"\\", "`x`", "```", "<b>", "<!-- x", "&#124;", "![x](y)", "*x*", "~~x~~",
    "# x", "- x", "12) x", "> x", "---", ":-:", "https://x.example", "a\nb", "x  y",
]  # fmt: skip


@undrawn()  # Markdown shows the words of figures only
def test_a_name_changes_only_itself_in_markdown() -> None:
    """Whatever a method, a domain, a defense, a client or a class is called."""
    plain = Markdown().render(named("plain-name"), NOWHERE)
    for name in NAMES:
        markdown = Markdown().render(named(name), NOWHERE)
        assert len(rows(markdown)) == len(rows(plain)) > 40
        assert structure(markdown) == structure(plain), name
        seen = " ".join(name.replace("\u202e", "�").split())
        assert shown(markdown).count(seen) >= shown(plain).count("plain-name"), name


def test_the_csv_holds_every_figure_once(tmp_path: Path) -> None:
    audit = results()
    table = list(csv.DictReader(io.StringIO(Csv().render(audit, tmp_path))))
    assert tuple(table[0]) == csv_report.COLUMNS
    wanted: Counter[tuple[str, ...]] = Counter()

    def add(value: Any) -> None:
        if isinstance(value, Measured):
            low, high = value.ci95 or ("", "")
            number = "" if value.value is None else value.value
            wanted[tuple(str(cell) for cell in (number, low, high, value.direction))] += 1
        elif isinstance(value, dict | tuple):
            for entry in value.values() if isinstance(value, dict) else value:
                add(entry)
        elif hasattr(type(value), "model_fields"):
            add({name: getattr(value, name) for name in type(value).model_fields})

    add(audit.runs)
    given = Counter(
        tuple(row[name] for name in ("value", "ci_low", "ci_high", "direction")) for row in table if row["direction"]
    )
    assert given == wanted
    refused = [row for row in table if row["attack"] == "amplitude"]
    assert [row["reason"] for row in refused] == ["the method shares no amplitude spectrum"] * 2
    asked = [row for row in table if row["source"] == "question"]
    assert [(row["verdict"], row["secret"], row["scope"]) for row in asked] == [
        (q.verdict, q.secret, q.scope) for run in audit.runs for q in run.questions
    ]
    assert {row["images"] for row in table if row["source"] == "curve"} == {"1", "2", "5", "20", "all"}


def test_no_cell_of_the_csv_is_a_formula() -> None:
    for start in "=+-@":
        table = list(csv.DictReader(io.StringIO(Csv().render(named(f"{start}cmd|' /C calc'!A0"), NOWHERE))))
        assert table[0]["target"].startswith("'" + start)
        assert any(row["ci_low"].startswith("-") for row in table)


def test_figures_have_the_digits_of_their_interval() -> None:
    for figure, said in (
        (measured(20.213, 0.42), "20.2 [19.8, 20.6]"),
        (measured(0.6666, 0.06), "0.67 [0.61, 0.73]"),
        (measured(0.6666, 0.0123), "0.667 [0.654, 0.679]"),
        (measured(0.01, 0.06), "0.01 [−0.05, 0.07]"),
        (measured(1234.6, 120.0), "1235 [1115, 1355]"),
        (measured(-0.0004, 0.06), "0.00 [−0.06, 0.06]"),
        (Measured(value=0.1, direction="neutral"), "0.100"),
        (Measured(value=0.0, direction="neutral"), "0"),
        (missing("no weights"), "not available: no weights"),
        (None, "–"),
    ):
        assert _numbers.measured(figure) == said
    # a p-value is never zero, and its rounding never crosses the level unseen
    assert [_numbers.p_value(p) for p in (0.0, 0.00004, 0.0004, 0.0249, 0.02503, 0.5, 1.0, None)] == [
        *("<0.0001", "<0.0001", "0.00040", "0.025", "0.02503", "0.50", "1.00", "–")
    ]
    assert [_numbers.rounded_bytes(size) for size in (1024, 38_400, 2_798_132)] == ["", "38.4 kB", "2.80 MB"]


def test_seeds_are_pooled_by_the_t_interval() -> None:
    values = (0.61, 0.64, 0.70)
    found = _numbers.pooled([Measured(value=value, direction="higher_better") for value in values])
    mean = sum(values) / 3
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    half = 4.302653 * spread / math.sqrt(3)  # the 0.975 quantile of t with 2 degrees of freedom, from a table
    assert found.value == pytest.approx(mean)
    assert found.ci95 == pytest.approx((mean - half, mean + half), abs=1e-6)
    assert found.n == 3
    one = measured(0.6, 0.1)
    assert _numbers.pooled([one]) == one
    lost = _numbers.pooled([one, one, missing("diverged")])
    assert lost.reason == "null for 1 of 3 seeds"


@undrawn()
def test_accuracy_of_personal_models_is_reported() -> None:
    base = results(defenses=("none",))
    accuracies = {"source_accuracy": measured(0.8125, 0.01), "target_accuracy": measured(0.4375, 0.01)}
    client = ClientUtility(client="client-00", source_accuracy=0.8125, target_accuracy=0.4375)
    personal = PersonalUtility(**accuracies, clients=(client,))
    utility = base.runs[0].utility.model_copy(update={"personal": personal})
    audit = base.model_copy(update={"runs": (base.runs[0].model_copy(update={"utility": utility}),)})
    for report in REPORTS:
        before, after = (report().render(given, NOWHERE) for given in (base, audit))
        assert ("own model" in before, "own model" in after) == (False, True)
        assert re.search(r"0\.8125|81\.2|0\.81", after)
