"""From Python: `run_audit` does what the command line does, with parts of one's own too."""

import gc
import inspect
import runpy
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
from _results import results as made_up_results
from conftest import audits_of, shortened

import fdgpriv
from fdgpriv.api import Audited
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.audit_results import AuditResults
from fdgpriv.cli.options import Options
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.results.finding import Results

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_defense.py"
SHORT = {"preset": "quick", "clients": 3, "settings": {"rounds": "1"}}


@dataclass(frozen=True)
class Doubling(Defense):
    """Doubles every number: protects nothing, but leaves a trace."""

    factor: float = 2.0

    def protect(
        self, outgoing: Artifact | StyleDraft, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact:
        shared = outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing
        return shared.map(lambda tensor: tensor * self.factor if tensor.is_floating_point() else tensor)

    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=None, delta=None, statement="It proves nothing.")


def test_a_user_s_part_is_audited_without_files(digits: Dataset, tmp_path: Path) -> None:
    with audits_of(shortened(digits, 32)):
        results = fdgpriv.run_audit(
            "stablefdg", attacks=["domain_inference"], defenses=["none", Doubling(3.0)], **SHORT
        )
    assert [run.defense for run in results.runs] == ["none", "doubling:factor=3"]
    rows = results.to_records()
    assert {row["attack"] for row in rows} == {"domain_inference"}
    assert len(rows) == sum(len(found.leakage) or 1 for run in results.runs for found in run.attacks)
    assert all(row["value"] is None or row["low"] <= row["value"] <= row["high"] for row in rows)
    evaluations = results.to_pandas().evaluations
    assert set(evaluations["defense"]) == {"none", "doubling:factor=3"}
    results.save(tmp_path)
    assert Results.load(tmp_path / "results.json") == results
    assert fdgpriv.Results.load(str(tmp_path)).to_pandas().evaluations.equals(evaluations)
    folder = results.folder
    assert folder is not None
    assert folder.is_dir()
    del results
    gc.collect()
    assert not folder.exists()


def test_a_folder_holds_what_the_command_leaves(digits: Dataset, tmp_path: Path) -> None:
    with audits_of(shortened(digits, 32)):
        results = fdgpriv.run_audit("fedavg", attacks="none", seeds=[0, 1], out=tmp_path / "run", **SHORT)
    assert len(results.runs) == 2
    assert {"config.json", "results.json", "report.html", "report.md", "results.csv"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"method": "nobody"}, "want one of the methods"),
        ({"preset": "slow"}, "--preset: want one of"),
        ({"resume": True}, "resume: want out"),
        ({"defenses": [Doubling(), Doubling()]}, "--defense: want each value once"),
        (
            {"dataset": "pacs", "data_root": "no/where"},
            "--data-root: want the folder of pacs, got no/where, which does not",
        ),
        ({"target": "scan"}, "run_audit: want an argument of .*got 'target'; did you mean 'targets'"),
        ({"clients": "many"}, "clients: want a whole number or none, got 'many'"),
        ({"seed": 1}, "run_audit: want an argument of .*got 'seed'; did you mean 'seeds'"),
        ({"method": "stabelfdg"}, ".*got 'stabelfdg'; did you mean 'stablefdg'"),
        ({"method": "fedavg", "methods": "lsi"}, "run_audit: want method or methods, got both: 'fedavg' and 'lsi'"),
        ({"figures": "pdf"}, "figures: want out"),
        ({"figures": "gif", "out": "runs/none"}, "--figures: want one of pdf, png, svg; got 'gif'"),
    ],
)
def test_what_cannot_be_asked_is_one_line(asked: dict[str, object], told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{told}[^\n]*$"):
        fdgpriv.run_audit(**asked)  # type: ignore[arg-type]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options of each audit that `run_audit` asks for; none is run."""
    options_of_audits = []

    def record(options: Options, out: Path, **settings: bool) -> Audited:
        options_of_audits.append(options)
        return Audited(AuditResults.of(made_up_results(), out), out, [])

    monkeypatch.setattr("fdgpriv.api.audit", record)
    return options_of_audits


def test_the_defaults_are_the_command_line_s(asked: list[Options]) -> None:
    fdgpriv.run_audit(out="runs/none")
    fdgpriv.run_audit(methods=["fedavg"], out="runs/none")
    assert asked == [Options(), Options(methods=("fedavg",))]
    parameters = inspect.signature(fdgpriv.run_audit).parameters
    assert {field.name for field in fields(Options)} <= set(parameters)
    assert inspect.Parameter.VAR_KEYWORD not in {parameter.kind for parameter in parameters.values()}


def test_options_in_other_forms(asked: list[Options]) -> None:
    fdgpriv.run_audit(data_root="some/where", threats="server", weights=None, out="runs/none")
    assert asked == [Options(data_root=Path("some/where"), threats=("server",))]


def test_text_stands_for_paths(digits: Dataset, tmp_path: Path) -> None:
    with audits_of(shortened(digits, 32)):
        results = fdgpriv.run_audit(
            "fedavg", attacks="none", targets="scan", out=str(tmp_path / "run"), **{**SHORT, "settings": {"rounds": 1}}
        )
    assert [run.target for run in results.runs] == ["scan"]


def test_the_example_runs(digits: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    with audits_of(shortened(digits, 32)):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in said} == {"none", "rounding:step=0.05"}
    assert len(EXAMPLE.read_text().splitlines()) <= 40
