"""report.tex: what leaks, accuracy and defenses as tables for a paper, and the figures that go with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.results.leaderboard import Leaderboard
from fdgpriv.results.question import Question, worst_first
from fdgpriv.results.run import Run
from fdgpriv.utils.drawing import Figure

from ._accuracy import accuracy_over_trainings, utility_and_leakage
from ._advice import sentence
from ._content import curves
from ._figures import paper_figure
from ._frontier import frontier
from ._latex import latex, latex_table
from ._leaderboard import leaderboard_content
from ._matrix import matrix
from ._numbers import decimals, measured
from ._reconstruction_figure import reconstruction_figure, with_pictures
from ._reconstructions import reconstructions
from ._roc import roc_curves
from ._tables import Table, TableCell, count_cell, number_cell, text_cell, verdict_cell
from ._words import SECRETS, artifact, artifact_of, defense, joined, metric, role, scope, spoken, unique, upper

_GRADES = (
    "Leaks by grade: trace (less than what matters), moderate, severe (at least half of the way to a perfect attack). None "
    "found is no proof of privacy; open is inconclusive."
)
_HEADINGS = ("What is read, by whom", "Secret", "Answer", "Attack", "Best control", "Lead", "n")
_ROWS = 20  # of a table that fits on a page
_WIDTHS = {1: 0.5, 2: 0.85}  # of a figure, in those of the text, by number of panels


@dataclass(frozen=True)
class PaperFigure:
    """What draws a figure, the captions of its panels, and its width in that of the text."""

    draw: Callable[[], Figure]
    captions: tuple[str, ...]
    width: float


_HEAD = r"""% Tables and figures of a privacy audit by fdgpriv. It compiles as it is; each table stands alone and can be moved
% into another document, which needs the packages array, booktabs, graphicx and tabularx. The figures come from
% --figures pdf, or from results.figure(NAME).savefig("figures/NAME.pdf"); those that are missing are left out.
\documentclass[10pt]{article}
\usepackage[margin=20mm]{geometry}
\usepackage{array,booktabs,graphicx,tabularx}
\begin{document}
"""


class Tex(Report):
    """Tables of booktabs, ready for a paper: the matrix of each adversary, accuracy, and defenses against their cost."""

    filename: ClassVar[str] = "report.tex"

    def render(self, results: Results, folder: Path) -> str:
        """The document, in ASCII; it includes figures/NAME.pdf where that exists when it is compiled."""
        blocks = [rf"\section*{{Privacy audit: {latex(_subject(results))}}}", latex(sentence(results))]
        blocks += [latex_table(*entry) for entry in _tables(results)]
        blocks += [_included(name, figure) for name, figure in _paper_figures(results, folder).items()]
        return "\n\n".join([_HEAD, *blocks, r"\end{document}"]) + "\n"

    def figures(self, results: Results, folder: Path) -> Mapping[str, Callable[[], Figure]]:
        """``frontier``, ``curves``, ``reconstructions`` and ``roc``, as far as the results have them."""
        return {name: figure.draw for name, figure in _paper_figures(results, folder).items()}

    def ranked(self, leaderboard: Leaderboard, folder: Path) -> str:
        """The tables of the leaderboard in ASCII, each leak with its lead below its grade."""
        content = leaderboard_content(leaderboard, folder)
        blocks = [rf"\section*{{Leaderboard: {latex(content.title)}}}"]
        for number, table in enumerate(content.tables, start=1):
            setting = "; ".join(f"{name.lower()} {value}" for name, value in table.facts)
            limits = table.caveats.sentences if table.caveats else ()
            notes = (*limits, *table.notes, content.order, _GRADES, "A dash: not applicable.")
            caption = f"Worst answers by secret. {setting}. {' '.join(notes)}"
            blocks.append(latex_table(table.table, caption, f"leaderboard-{number}", detail_lines=1))
            blocks += [
                latex_table(section.table, f"Accuracy. {' '.join(section.lines)}", f"accuracies-{number}-{part}")
                for part, section in enumerate(table.accuracy, start=1)
                if section.table is not None
            ]
        return "\n\n".join([_HEAD, *blocks, r"\end{document}"]) + "\n"


def _subject(results: Results) -> str:
    methods = joined(unique(run.method for run in results.runs)) or "no run"
    return f"{methods} on {results.dataset.name}"


def _tables(results: Results) -> list[tuple[Table, str, str]]:
    """Each table with its caption and label."""
    runs = results.runs
    defenses = joined(unique(defense(run.defense) for run in runs))
    tables = [
        (section.table, f"{section.title}: {_subject(results)}, {defenses}. {_GRADES}", f"matrix-{number}")
        for number, section in enumerate(matrix(runs, max_words=0), start=1)
        if section.table is not None
    ]
    tables += _answers(results)
    sections, _ = frontier(results)
    tables += [
        (section.table, f"Defenses: what each costs in accuracy, and what it leaves. {_GRADES}", "defenses")
        for section in sections
        if section.table is not None
    ]
    accuracy = accuracy_over_trainings(results) or (utility_and_leakage(runs),)
    tables += [
        (section.table, f"Accuracy. {section.title or ' '.join(section.lines)}", f"accuracy-{number}")
        for number, section in enumerate(accuracy, start=1)
        if section.table is not None and runs
    ]
    return tables


def _answers(results: Results) -> list[tuple[Table, str, str]]:
    """Tables of questions in figures: of a single run all that were tested, else those that leak; the worst first."""
    runs = results.runs
    asked = [(run, q) for run in runs for q in run.questions if q.strongest and (len(runs) == 1 or q.grade)]
    rows = [_answer(run, q, len(runs) > 1) for run, q in sorted(asked, key=lambda entry: worst_first(entry[1]))]
    what = "Questions" if len(runs) == 1 else "Leaks"
    caption = (
        f"{what} in figures, with 95 % intervals: the strongest attack, its best control, and its lead over n units, "
        f"simulated clients among them. {_GRADES}"
    )
    parts = [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
    return [(Table(_HEADINGS, tuple(part)), caption, f"answers-{number}") for number, part in enumerate(parts, start=1)]


def _answer(run: Run, question: Question, several: bool) -> tuple[TableCell, ...]:
    strongest = question.strongest
    assert strongest is not None
    adversaries = joined([role(name) for name in question.adversaries])
    about = [scope(question)]
    if several:
        about += [run.method, f"target {run.target}" if run.target else "", f"seed {run.seed}", defense(run.defense)]
    places = decimals([strongest.value, strongest.control_value])
    return (
        text_cell(f"{upper(artifact(artifact_of(question)))}, {adversaries}", "\n".join(filter(None, about))),
        text_cell(SECRETS[question.secret]),
        verdict_cell(question.verdict, grade=question.grade),
        number_cell(measured(strongest.value, places), f"{spoken(strongest.attack)}, {metric(strongest.metric)}"),
        number_cell(measured(strongest.control_value, places), spoken(strongest.control)),
        number_cell(measured(question.lead)),
        count_cell("–" if strongest.value.n is None else f"{strongest.value.n:,}"),
    )


def _paper_figures(results: Results, folder: Path) -> dict[str, PaperFigure]:
    """Each figure that these results have, by name."""
    _, tradeoff = frontier(results)
    drawings = {"frontier": tradeoff, "curves": curves(results.runs), "roc": roc_curves(results.runs, folder)}
    figures = {
        name: PaperFigure(
            partial(paper_figure, panels), tuple(panel.caption for panel in panels), _WIDTHS.get(len(panels), 1.0)
        )
        for name, panels in drawings.items()
        if panels
    }
    if pictured := with_pictures(reconstructions(results.runs), folder):
        captions = tuple(entry.caption for entry, _ in pictured)
        figures["reconstructions"] = PaperFigure(partial(reconstruction_figure, pictured), captions, 0.85)
    return figures


def _included(name: str, figure: PaperFigure) -> str:
    """The floating figure with its captions, if its file exists."""
    file, caption = f"figures/{name}.pdf", " ".join(latex(f"{caption.rstrip('.')}.") for caption in figure.captions)
    return "\n".join(
        [
            rf"\IfFileExists{{{file}}}{{%",
            r"\begin{figure}[htbp]",
            r"\centering",
            rf"\includegraphics[width={figure.width}\linewidth]{{{file}}}",
            rf"\caption{{{caption}}}",
            rf"\label{{fig:{name}}}",
            r"\end{figure}",
            "}{}",
        ]
    )
