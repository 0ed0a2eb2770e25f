"""The reports: nothing in them can act, nothing is missing, and the figures are those of the findings."""

import base64
import csv
import io
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from _results import HOSTILE, measured, missing, png, results
from fdgpriv.reports import _numbers, _pool, _summary
from fdgpriv.reports import csv as csv_report
from fdgpriv.reports._axis import Axis
from fdgpriv.reports._lines import curve
from fdgpriv.reports._story import story
from fdgpriv.reports.csv import Csv
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown, code, safe
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Results
from fdgpriv.results.utility_finding import ClientUtility, PersonalUtility
from fdgpriv.statistics.measured import Measured

REPORTS = (Html, Markdown, Csv)
SEEN = HOSTILE.replace("\u202e", "�")


class Page(HTMLParser):
    """What a browser would find: tags, attributes, headings and running text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def benign(value: Any) -> Any:
    """The same results with every hostile text replaced by a tame one."""
    tame: Any = json.loads(json.dumps(value).replace(json.dumps(SEEN)[1:-1], "tame"))
    return tame


@pytest.fixture
def page(tmp_path: Path) -> str:
    """report.html of the made-up results, with their figures."""
    return Html().render(results(tmp_path), tmp_path)


def test_the_page_can_neither_act_nor_load(page: str) -> None:
    found = Page(page)
    assert found.open == []
    assert not {"script", "link", "iframe", "object", "embed", "base", "form", "foreignobject"} & set(found.tags)
    for _, name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("srcdoc", "xlink:href", "style", "background", "action", "formaction")
        if name in ("href", "src"):
            assert value.startswith(("#", "data:image/png;base64,"))
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = [value for tag, name, value in found.attributes if tag == "meta" and name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in policy


def test_every_text_is_escaped(page: str, tmp_path: Path) -> None:
    tame = Results.model_validate(benign(json.loads(results().text())))
    plain = Page(Html().render(tame, tmp_path))
    found = Page(page)
    assert found.tags == plain.tags
    assert Counter((tag, name) for tag, name, _ in found.attributes) == Counter((t, n) for t, n, _ in plain.attributes)
    assert "<script>alert(1)" not in page
    assert sum(SEEN in text for text in found.texts) >= 8
    assert "49" not in "".join(text for text in found.texts if "{{7*7}}" in text).replace("{{7*7}}", "")


@settings(max_examples=12, deadline=None)
@given(name=st.text(min_size=1, max_size=30))
def test_no_name_whatever_opens_a_tag_or_a_table_cell(name: str) -> None:
    data = benign(json.loads(results(defenses=("none",)).text()))
    known = Page(Html().render(Results.model_validate(data), Path("nowhere"))).tags
    data["dataset"]["name"] = data["runs"][0]["target"] = data["runs"][0]["artifacts"][0]["shape"] = name
    told = Results.model_validate(data)
    assert Page(Html().render(told, Path("nowhere"))).tags == known
    rows(Markdown().render(told, Path("nowhere")))
    assert len(list(csv.reader(io.StringIO(Csv().render(told, Path("nowhere")))))) > 50


def test_pictures_are_carried_inside_and_only_pictures_of_this_folder(tmp_path: Path) -> None:
    inside = tmp_path / "run"
    outside = tmp_path / png(tmp_path, "secret.png")
    told = results(inside)
    good = (inside / "figures/adain.png").read_bytes()
    sources = [v for t, n, v in Page(Html().render(told, inside)).attributes if (t, n) == ("img", "src")]
    assert base64.b64encode(good).decode() in {source.partition(",")[2] for source in sources}
    assert len(sources) == 2 * 3 + 1  # three attacks a run, and one picture that both runs have in common
    (inside / "figures/adain.png").unlink()
    (inside / "figures/adain.png").symlink_to(outside)
    (inside / "figures/gan_server_image.png").write_text("<svg onload=alert(1)>" * 9)
    page = Html().render(told, inside)
    assert len([1 for t, n, v in Page(page).attributes if (t, n) == ("img", "src")]) == len(sources) - 2
    assert "figures/adain.png is not in the folder of this run, or is not a PNG" in page


def test_no_mark_stands_outside_its_chart(page: str) -> None:
    places = [
        float(value[:-1])
        for tag, name, value in Page(page).attributes
        if tag in ("line", "rect", "svg", "text") and name in ("x", "y", "x1", "x2", "y1", "y2") and value.endswith("%")
    ]
    assert len(places) > 300
    assert min(places) >= 0
    assert max(places) <= 100


HEADINGS = [
    *("Verdict", "The paper's claims", "What left the client", "Who sees what", "Attacks, controls and intervals"),
    *("Pictures", "Privacy against utility", "Accuracy over rounds", "Differential privacy"),
    *("What was not measured", "The data", "Setup"),
]


def test_page_and_markdown_tell_the_same_story_verdict_first(page: str, tmp_path: Path) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", page) == HEADINGS
    assert re.findall(r"^## (.*)$", Markdown().render(results(), tmp_path), re.MULTILINE) == HEADINGS
    said = (
        "Images of the source domains: 1,215 train (blend 405, scan 405, type 405), 135 are held out for validation, "
        "396 are public, for adversaries to hold, 54 are shadow clients"
    )
    for document in (page, Markdown().render(results(), tmp_path)):
        (setup,) = document.split("Setup")[-1:]
        assert said in setup


def test_equal_results_give_equal_reports_also_from_the_file(tmp_path: Path) -> None:
    told = results(tmp_path, seeds=2)
    told.save(tmp_path / "results.json")
    for report in REPORTS:
        first = report().render(told, tmp_path)
        assert report().render(results(seeds=2), tmp_path) == first
        assert report().render(Results.load(tmp_path / "results.json"), tmp_path) == first


def test_the_verdict_says_what_leaks_to_whom_how_sure_and_what_the_defense_changes() -> None:
    plain, noised = _summary.verdicts(results())
    facts, defended = dict(plain.facts), dict(noised.facts)
    assert (plain.word, noised.word) == ("leak", "leak")
    for said in ("the client's label distribution", "what private images look like", "the client's domain"):
        assert said in plain.sentence
    assert facts["To whom"] == "An insider and the server."
    strongest = "R² 0.41 [0.34, 0.48] against 0.02 [−0.04, 0.08] for the best control (other client)"
    assert strongest in facts["Strongest attack"]
    said = "3 of 6 attacks on what is shared beat every control of a verdict line, at a corrected p of at most 0.0054"
    assert facts["How sure"].startswith(said)
    assert "5 of 6 succeed where they must" in facts["How sure"]
    assert defended["Against no defense"].startswith("Still leaks: the client's label distribution")
    assert "no longer found: what private images look like (gan, an insider)" in defended["Against no defense"]
    assert "67.2% [64.1, 70.3] with no defense, 61.2% [58.1, 64.3] now" in defended["Against no defense"]


def _only(*positions: int) -> Results:
    told = json.loads(results(defenses=("none",)).text())
    told["runs"][0]["attacks"] = [told["runs"][0]["attacks"][i] for i in positions]
    return Results.model_validate(told)


@pytest.mark.parametrize(
    ("positions", "word", "said"),
    [
        ((2, 6), "not_applicable", "No attack of this audit applies"),  # leaks, but of what is not on the wire
        ((0,), "no_leak_found", "That is no proof of privacy."),
        ((0, 3), "inconclusive", "1 of 2 attacks could not decide"),
        ((0, 4), "leak", "the client's domain; no leak about a single client was shown"),
        ((8,), "not_applicable", "No attack of this audit applies"),
        ((), "not_attacked", "Nothing was attacked"),
    ],
)
def test_the_verdict_claims_no_more_than_the_wire_showed(positions: tuple[int, ...], word: str, said: str) -> None:
    (verdict,) = _summary.verdicts(_only(*positions))
    assert verdict.word == word
    assert said in verdict.sentence


def test_seeds_count_by_the_worst_of_each_attack() -> None:
    told = json.loads(results(defenses=("none",), seeds=2).text())
    told["runs"][0]["attacks"], told["runs"][1]["attacks"] = [], told["runs"][1]["attacks"][:2]
    (verdict,) = _summary.verdicts(Results.model_validate(told))
    assert verdict.word == "leak"
    assert "1 of 2 attacks on what is shared beats every control of a verdict line" in dict(verdict.facts)["How sure"]


@pytest.mark.parametrize("report", [Html, Markdown])
def test_what_is_missing_is_said(report: type[Html], tmp_path: Path) -> None:
    one = report().render(results(defenses=("none",)), tmp_path)
    assert "Only the undefended method was run" in one
    assert "interrupted" not in one
    for reason in ("no amplitude spectrum", "fewer than 15 images in a bin", "240 images; FID needs 2,048"):
        assert reason in one
    assert "loss was NaN" in report().render(results(), tmp_path)
    nothing = Results.model_validate({**json.loads(results().text()), "runs": [], "interrupted": True})
    empty = report().render(nothing, tmp_path)
    assert "This audit was interrupted" in empty
    assert "No run finished" in empty


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


def test_markdown_tables_are_whole_and_nothing_in_them_acts(tmp_path: Path) -> None:
    text = Markdown().render(results(tmp_path), tmp_path)
    assert len(rows(text)) > 60
    outside = re.sub(r"</?code>|(`+) ?.*? ?\1", "", text)
    assert not re.search(r"<[a-z/!]", outside)
    assert "https://" not in outside
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
def test_markdown_text_is_shown_as_it_is_wherever_it_stands(text: str) -> None:
    text = " ".join(text.split()) or "x"
    for place in ("{}", "- {}", "# {}", "- **{}**: x", "| head | {} |\n|---|---|"):
        for escaped, plain in ((safe(text), "plain"), (code(text), "`plain`")):
            assert structure(place.format(escaped)) == structure(place.format(plain))
            assert text in shown(place.format(escaped))


NAMES = r"""a|b  a\\|b  |  \  `x`  ``  ```  <b>  <!-- x  &lt;  &#124;  [x](y)  ![x](y)  *x*  _x_  ~~x~~
# x  - x  + x  1. x  12) x  > x  ---  ===  :-:  @x #1 https://x.example"""


def test_a_name_changes_nothing_in_the_markdown_but_the_name() -> None:
    """Whatever a method, a domain, a defense, a client or a class is called."""

    def told(name: str) -> str:
        text = benign(results(defenses=("none",)).model_dump(mode="json", by_alias=True))
        (run,) = text["runs"]
        run["method"], run["target"], run["defense"], run["not_measured"] = f"stablefdg:{name}", name, name, [name]
        run["artifacts"][0]["shape"] = name
        run["claims"][0]["quote"] = run["claims"][0]["evidence"][0] = name
        text["dataset"]["name"] = text["dataset"]["about"] = text["command"] = name
        return Markdown().render(Results.model_validate(text), Path("nowhere"))

    plain = told("plain-name")
    for name in [*re.split(r"\n|  ", NAMES), "a\nb", "x  y"]:
        found = told(name)
        assert structure(found) == structure(plain), name
        assert shown(found).count(" ".join(name.split())) >= shown(plain).count("plain-name"), name


def test_the_csv_holds_every_figure_once(tmp_path: Path) -> None:
    told = results()
    table = list(csv.DictReader(io.StringIO(Csv().render(told, tmp_path))))
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

    add(told.runs)
    given = Counter(
        tuple(row[name] for name in ("value", "ci_low", "ci_high", "direction")) for row in table if row["direction"]
    )
    assert given == wanted
    refused = [row for row in table if row["attack"] == "amplitude"]
    assert [row["reason"] for row in refused] == ["the method shares no amplitude spectrum"] * 2
    assert {row["images"] for row in table if row["source"] == "curve"} == {"1", "2", "5", "20", "all"}


def test_no_cell_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    for start in "=+-@":
        told = json.loads(results(defenses=("none",)).text())
        told["runs"][0]["target"] = f"{start}cmd|' /C calc'!A0"
        table = list(csv.DictReader(io.StringIO(Csv().render(Results.model_validate(told), tmp_path))))
        assert table[0]["target"].startswith("'" + start)
        assert any(row["ci_low"].startswith("-") for row in table)


def test_a_figure_shows_the_digits_that_its_interval_supports() -> None:
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
    found = _pool.pooled([Measured(value=value, direction="higher_better") for value in values])
    assert found is not None
    assert found.ci95 is not None
    mean = sum(values) / 3
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    half = 4.302653 * spread / math.sqrt(3)  # the 0.975 quantile of t with 2 degrees of freedom, from a table
    assert found.value == pytest.approx(mean)
    assert found.ci95 == pytest.approx((mean - half, mean + half), abs=1e-6)
    assert found.n == 3
    one = measured(0.6, 0.1)
    assert _pool.pooled([one]) == one
    lost = _pool.pooled([one, one, missing("diverged")])
    assert lost is not None
    assert lost.reason == "null for 1 of 3 seeds"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_an_axis_holds_its_values_and_its_ticks_stand_where_they_say(values: list[float]) -> None:
    axis = Axis.over(values)
    assert all(0 <= axis.at(value) <= 100 for value in values)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 12
    for tick in ticks:
        assert -0.01 <= tick.at <= 100.01
        assert axis.at(float(tick.text.replace("−", "-"))) == pytest.approx(tick.at, abs=0.6)


def test_an_insider_sees_what_the_server_sees_and_others_only_what_they_are_sent() -> None:
    told = json.loads(results(defenses=("none",)).text())
    for row in told["runs"][0]["artifacts"]:
        row["visible_to"] = ["server", "third_party (the last model)"] if row["level"] == "group" else ["server"]
    (named,) = story(Results.model_validate(told)).sight
    assert named.table is not None
    cells = {row[0].text: dict(zip(named.table.heads[1:], row[1:], strict=True)) for row in named.table.rows}
    style, model = cells["style statistics (client)"], cells["model state (group)"]
    assert (style["An insider"].kind, style["An insider"].sub) == ("leak", "sees it")
    assert (style["A third party"].kind, style["A third party"].sub) == ("no_leak_found", "if it obtains it")
    assert model["A third party"].text == "sees it (the last model); not attacked"
    told["runs"][0]["attacks"] = [
        {**told["runs"][0]["attacks"][1], "threat": {"role": "third_party", "auxiliary": "A2"}}
    ]
    (verdict,) = _summary.verdicts(Results.model_validate(told))
    assert dict(verdict.facts)["To whom"] == "A third party, should it obtain the artifact."


def test_a_curve_draws_the_attack_and_its_strongest_controls_and_says_what_it_left_out() -> None:
    told = json.loads(results(defenses=("none",)).text())
    attack = told["runs"][0]["attacks"][0]
    for point in attack["curve"]:
        point["controls"] = {f"c{i}": {**point["value"], "value": 20.0 - i, "ci95": None} for i in range(7)}
    drawn = curve(AttackFinding.model_validate(attack))
    assert drawn is not None
    assert [series.label for series in drawn.series] == ["gan", "c0", "c1", "c2", "c3", "c4"]
    assert drawn.note.startswith("Drawn are the 5 strongest of 7 controls")


def test_a_leak_of_the_domain_is_not_told_as_a_leak_of_a_client() -> None:
    told = json.loads(results(defenses=("none",)).text())
    attack = told["runs"][0]["attacks"][1]
    attack["controls"]["domain_mean"] = {"psnr": {**attack["metrics"]["psnr"], "value": 15.88}}
    attack["leakage"] = {**attack["leakage"], "p": 0.4, "p_corrected": 1.0, "against": ["mean_image", "domain_mean"]}
    attack["leakage_domain"] = {**attack["leakage_domain"], "against": ["mean_image", "noise"]}
    attack["verdict"] = "no_leak_found"
    told["runs"][0]["attacks"] = [attack]
    (verdict,) = _summary.verdicts(Results.model_validate(told))
    facts = dict(verdict.facts)
    assert verdict.sentence.startswith(
        "stablefdg gives away what images of the client's domain look like; no leak about a single"
    )
    assert facts["What leaks"].startswith("About the client's domain at most:")
    assert "against 13.5 [13.2, 13.8] for the best control (mean image)" in facts["Strongest attack"]
    assert "corrected p 0.0036" in facts["Strongest attack"]
    assert "personal data" not in facts["What to do"]


def test_what_clients_own_models_are_worth_is_told(tmp_path: Path) -> None:
    base = results(defenses=("none",))
    (run,) = base.runs
    assert run.utility is not None
    source, target = (measured(value, 0.01, direction="higher_better") for value in (0.8125, 0.4375))
    client = ClientUtility(client="client-00", source_accuracy=0.8125, target_accuracy=0.4375)
    own = PersonalUtility(source_accuracy=source, target_accuracy=target, clients=(client,))
    utility = run.utility.model_copy(update={"personal": own})
    told = base.model_copy(update={"runs": (run.model_copy(update={"utility": utility}),)})
    for report in REPORTS:
        before, after = (report().render(given, tmp_path) for given in (base, told))
        assert "own model" in after
        assert "own model" not in before
        assert "0.8125" in after or "81.2" in after or "0.81" in after
