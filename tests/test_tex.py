"""report.tex: every text is escaped, every row has its columns, and LaTeX takes it where there is one."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from _results import HOSTILE, results
from fdgpriv.reports._latex import latex, latex_table
from fdgpriv.reports._tables import Table, count_cell, text_cell, verdict_cell
from fdgpriv.reports.tex import Tex, _tables

from fdgpriv.results.finding import Results
from fdgpriv.results.question import WORST_FIRST

SPECIAL = "\\ { } $ & # % _ ~ ^ < > | \" ` ' - -- --- ,, ?` \n\t ä Å ñ ç ř ß − – “q” ε δ → ² 中 ‮ 🙂"


def hostile() -> Results:
    audit = results(seeds=2)
    runs = tuple(run.model_copy(update={"method": SPECIAL, "target": HOSTILE}) for run in audit.runs)
    return audit.model_copy(update={"runs": runs})


def unescaped(text: str, character: str) -> int:
    return len(re.findall(rf"(?<!\\){re.escape(character)}", text.replace(r"\\", "")))


@pytest.mark.parametrize("audit", [results(), results(defenses=("none",)), results(seeds=3), hostile()])
def test_braces_and_columns_fit(audit: Results, tmp_path: Path) -> None:
    text = Tex().render(audit, tmp_path)
    assert text.isascii()
    body = text.partition(r"\begin{document}")[2]
    assert unescaped(body, "{") == unescaped(body, "}")
    assert unescaped(body, "#") == unescaped(body, "^") - body.count("$^") - body.count(r"\^{") == 0
    assert unescaped(body, "$") % 2 == 0
    tables = re.findall(r"\\begin\{tabularx\}\{\\linewidth\}\{(.*?)\}\n\\toprule\n(.*?)\\bottomrule", body, re.DOTALL)
    assert len(tables) == body.count(r"\begin{table}") == body.count(r"\end{table}") >= 3
    for columns, lines in tables:
        shares = [float(share) for share in re.findall(r"\\hsize=([\d.]+)", columns)]
        assert sum(shares) == pytest.approx(len(shares), abs=1e-2)
        n = len(shares) + re.sub(r">\{.*?\\arraybackslash\}X", "X", columns).count("r")
        rows = [row for row in lines.splitlines() if row != r"\midrule"]
        assert all(row.endswith(r" \\") and unescaped(row, "&") == n - 1 for row in rows)
        assert len(rows) >= 2


def test_questions_have_figures_controls_and_units(tmp_path: Path) -> None:
    """Of a single run every question that was tested, the worst first; of several runs the leaks."""
    single, several = results(defenses=("none",)), results(defenses=("none",), seeds=2)
    for audit in (single, several):
        asked = [q for run in audit.runs for q in run.questions if q.strongest and (len(audit.runs) == 1 or q.grade)]
        tables = [table for table, _, label in _tables(audit) if label.startswith("answers-")]
        rows = [row for table in tables for row in table.rows]
        assert len(rows) == len(asked) > 0
        ranks = [WORST_FIRST.index(row[2].kind) for row in rows]
        assert ranks == sorted(ranks)
        strongest = [q.strongest for q in asked if q.strongest]
        assert Counter(row[-1].text for row in rows) == Counter(f"{attack.value.n:,}" for attack in strongest)
        assert Counter(row[4].detail for row in rows) == Counter(a.control.replace("_", " ") for a in strongest)
        assert all(re.search(r"\d.* \[.*\d\]$", row[3].text) for row in rows)
    assert r"\label{tab:answers-1}" in Tex().render(single, tmp_path)


def test_a_text_keeps_its_words_and_no_command() -> None:
    assert latex("50 % of A_b & $5 {x}") == r"50 \% of A\_b \& \$5 \{x\}"
    assert latex("α\nä--b") == r"[U+03B1] \"{a}-{}-b"
    assert latex(r"\input{/etc/passwd}") == r"\textbackslash{}input\{/etc/passwd\}"
    assert latex("gaussian:epsilon=4") == r"gaussian:\allowbreak{}epsilon=\allowbreak{}4"


def test_verdicts_are_one_word_each() -> None:
    verdicts = ("no_leak_found", "inconclusive", "not_applicable")
    row = (text_cell("a", "b"), *(verdict_cell(name, "left out") for name in verdicts), count_cell("3"))
    text = latex_table(Table(("x", *verdicts, "n"), (row,)), "c", "l")
    assert r"a \newline {\scriptsize b} & none found & open & -- & 3 \\" in text
    assert "left out" not in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="wants LaTeX")
@pytest.mark.parametrize("audit", [results(), hostile()])
def test_latex_takes_it(audit: Results, tmp_path: Path) -> None:
    (tmp_path / "report.tex").write_text(Tex().render(audit, tmp_path), encoding="utf-8")
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "report.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert not [line for line in ran.stdout.splitlines() if line.startswith("!")]
