"""The figures for a paper: which ones results have, ROC curves against a plain count, files in every format."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from _results import results
from fdgpriv.reports._roc import false_positive_rates, roc_curves, true_positive_rates
from matplotlib.figure import Figure

import fdgpriv
from fdgpriv.api import write
from fdgpriv.audit_results import AuditResults
from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.figures import grid
from fdgpriv.results.finding import Results
from fdgpriv.results.score_tables import EvaluationRow, ScoreTables
from fdgpriv.utils.drawing import figure_bytes

Draw = Callable[[np.random.Generator, int], np.ndarray]
CLIENTS = ("a", "b", "c", "d")


def tables(audit: Results, members: Draw, others: Draw) -> ScoreTables:
    """Candidates of every membership question: 20 members and 40 others of each client."""
    rng, evaluations, candidates = np.random.default_rng(0), [], []
    asked = [(run, q) for run in audit.runs for q in run.questions if q.secret == "membership" and q.strongest]
    for number, (run, question) in enumerate(asked):
        assert question.strongest is not None
        row = EvaluationRow(
            attack=question.strongest.attack, task="members", secret="membership", metric="auc", higher_leaks=True,
            bounds=(0, 1), scopes=("client",), relevant=0.1, exact=False, budget="", single_images=False,
            threat=Threat(role=question.adversary, auxiliary=""), kind=question.artifact,
        )  # fmt: skip
        run_columns = {name: getattr(run, name) for name in ("method", "dataset", "target", "seed", "defense")}
        evaluations.append({"evaluation": str(number), **run_columns, **row.columns()})
        for client in CLIENTS:
            for role, of_members in (("attack", members), ("other_client", others)):
                for is_member, scores in ((True, of_members(rng, 20)), (False, others(rng, 40))):
                    candidates += [
                        {"evaluation": str(number), "role": role, "client": client, "image": f"{is_member}{i}",
                         "is_member": is_member, "score": float(score)}
                        for i, score in enumerate(scores)
                    ]  # fmt: skip
    return ScoreTables.of_rows({"evaluations": evaluations, "candidates": candidates})


def guess(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.random(n)


def better(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.random(n) + 0.3


def perfect(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.random(n) + 1


def saved(folder: Path, seeds: int = 1, defenses: tuple[str, ...] = ("none", "gaussian:epsilon=4")) -> AuditResults:
    audit = results(seeds=seeds, defenses=defenses)
    audit.save(folder)
    tables(audit, better, guess).save(folder)
    return fdgpriv.Results.load(folder)


def slow_rate(members: np.ndarray, others: np.ndarray, fpr: float) -> float:
    """Every threshold tried; on the line between the two points around this rate."""
    points = [(0.0, 0.0)]
    for threshold in sorted({*members, *others}, reverse=True):
        points.append((float(np.mean(others >= threshold)), float(np.mean(members >= threshold))))
    below = max(point for point in points if point[0] <= fpr)
    above = [point for point in points if point[0] > fpr]
    if not above:
        return below[1]
    (x, y), (right, top) = below, min(above)
    return y + (top - y) * (fpr - x) / (right - x)


@pytest.mark.parametrize("seed", range(5))
def test_rates_are_those_of_every_threshold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members, others = rng.integers(0, 6, 9) / 2.0, rng.integers(0, 5, 7) / 2.0  # many ties
    fprs = np.linspace(0, 1, 41)
    assert true_positive_rates(members, others, fprs) == pytest.approx([slow_rate(members, others, x) for x in fprs])
    pairs = np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others])
    fine = np.linspace(0, 1, 20_001)
    assert np.trapezoid(true_positive_rates(members, others, fine), fine) == pytest.approx(pairs, abs=1e-3)


@pytest.mark.parametrize(("members", "lowest", "highest"), [(guess, 0.35, 0.65), (perfect, 1.0, 1.0)])
def test_guessing_is_the_diagonal(tmp_path: Path, members: Draw, lowest: float, highest: float) -> None:
    audit = results(defenses=("none",))
    tables(audit, members, guess).save(tmp_path)
    candidates = ScoreTables.load(tmp_path).to_pandas().candidates
    attacked = candidates[candidates["role"] == "attack"]
    by_client = [
        true_positive_rates(
            part[part["is_member"]]["score"].to_numpy(), part[~part["is_member"]]["score"].to_numpy(), np.array([0.5])
        )
        for _, part in attacked.groupby("client")
    ]
    assert lowest <= np.mean(by_client) <= highest
    assert false_positive_rates([attacked])[0] == pytest.approx(1 / 40, rel=0.5)
    (chart,) = roc_curves(audit.runs, tmp_path)
    assert "4 clients" in chart.caption


def test_no_tables_or_no_membership_no_roc(tmp_path: Path) -> None:
    audit = results()
    assert roc_curves(audit.runs, tmp_path) == ()
    ScoreTables.of_rows({}).save(tmp_path)
    assert roc_curves(audit.runs, tmp_path) == ()


def test_the_figures_are_those_that_exist(tmp_path: Path) -> None:
    audit = saved(tmp_path)
    assert set(audit.figures()) == {"frontier", "curves", "roc"}
    figures = {name: audit.figure(name) for name in audit.figures()}
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert figures["curves"]._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert figure_bytes(audit.figure("curves"), "pdf") == figure_bytes(audit.figure("curves"), "pdf")
    undefended = (
        saved(tmp_path / "undefended", defenses=("none",)) if (tmp_path / "undefended").mkdir() is None else audit
    )
    assert set(undefended.figures()) == {"curves", "roc"}
    with pytest.raises(
        ValueError, match=r"want a figure that these results have: curves, roc; got 'curve'; did you mean 'c"
    ):
        undefended.figure("curve")
    with pytest.raises(ValueError, match="want results of a folder for their figures"):
        AuditResults.of(undefended, None).figure("curves")


def test_figures_are_written_in_each_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = saved(tmp_path, defenses=("none",))
    monkeypatch.setattr("fdgpriv.reports._figures._svg", lambda *given: "")
    paths, failures = write(audit, tmp_path, ("pdf", "svg"))
    assert not failures
    files = {path.name for path in (tmp_path / "figures").iterdir()}
    assert files == {f"{name}.{form}" for name in ("curves", "roc") for form in ("pdf", "svg")}
    assert files <= {path.name for path in paths}
    assert "<text" in (tmp_path / "figures" / "roc.svg").read_text()
    assert (tmp_path / "figures" / "roc.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_that_fails_leaves_out_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*drawings: object) -> Figure:
        raise RuntimeError("no ink")

    audit = saved(tmp_path)
    monkeypatch.setattr("fdgpriv.reports._figures._svg", lambda *given: "")
    monkeypatch.setattr("fdgpriv.reports.tex.paper_figure", broken)
    _, failures = write(audit, tmp_path, ("pdf",))
    assert [failure.partition(":")[0] for failure in failures] == ["figure frontier", "figure curves", "figure roc"]
    assert all("no ink" in failure for failure in failures)
    assert (tmp_path / "report.html").is_file()
    (tmp_path / "candidates.parquet").write_bytes(b"none")
    _, failures = write(audit, tmp_path, ("pdf",))
    assert [failure.partition(": want a table in ")[0] for failure in failures] == [
        "report tex: ValueError",
        "figures: ValueError",
    ]


def test_reconstructions_stand_above_their_control(tmp_path: Path) -> None:
    audit = saved(tmp_path)
    assert "reconstructions" not in audit.figures()  # the pictures are not in the folder
    shades = {"truth": 1.0, "attack": 0.5, "mean_image": 0.25, "other_client": 0.25, "noise": 0.25}
    rows = [{name: torch.full((3, 8, 8), shade) for name, shade in shades.items()} for _ in range(3)]
    for file in {file for run in audit.runs for attack in run.attacks for file in attack.figures}:
        grid(rows, ["1 image", "1 image", "whole\nclient"], tmp_path / file)
    figure = audit.figure("reconstructions")
    panel = figure.subfigs[0]
    images = [axes.get_images()[0].get_array() for axes in panel.axes]
    titles = [" ".join(axes.get_title().split()) for axes in panel.axes[:2]]
    assert titles == ["whole client", "from an artifact of one image, which is not what crosses the wire"]
    assert [image.shape[:2] for image in images[:2]] == [(8, 8), (8, 16)]
    levels = [round(float(image.mean()) / 255, 1) for image in images]
    assert levels[:4] == [1.0, 1.0, 0.5, 0.5]
    assert set(levels[4:]) <= {0.2, 0.3}
