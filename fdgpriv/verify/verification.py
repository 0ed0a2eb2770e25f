"""Verifies the folder of a run: its files, its score tables, its results as judged again, and its reports."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow.compute as pc
from pydantic import TypeAdapter

from fdgpriv._version import __version__
from fdgpriv.audit_results import FILE, AuditResults
from fdgpriv.claims.measurements import FACTS, stored_facts
from fdgpriv.config import AuditConfig
from fdgpriv.evaluation.attack_evaluation import scores_file
from fdgpriv.federation.transcript import MANIFEST, Transcript
from fdgpriv.judging import Judgement, MeasuredCell, trained_method
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.results.ledger import ledger
from fdgpriv.results.recording_check import noted
from fdgpriv.results.run import Run
from fdgpriv.results.score_tables import SCHEMAS, ScoreTables
from fdgpriv.training import Cell, Trained, trained_file
from fdgpriv.utils import run_folder
from fdgpriv.utils.checksum import SUMS, digest, read_json, read_sums
from fdgpriv.utils.environment import versions
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.files import PART
from fdgpriv.verdicts.attack_scores import AttackScores, from_tables
from fdgpriv.verify.differences import differences, of_lists

T = TypeVar("T")

_OF_CELLS = ("scores", "transcript")  # folders in which the run alone writes
_TRAINED = TypeAdapter(Trained)
_NOT_JUDGED = "numbers of images, measured epsilon, remedies and times follow from the training, which is not repeated"


@dataclass
class Verification:
    """What a verification says.

    Attributes:
        differences: One line each: of files, then of verdicts and grades, then of figures and reports.
        notes: What was not compared, one line each.
        compared: What was compared, in words.
    """

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: str = ""


def verified(folder: Path, recording: Path | None = None) -> Verification:
    """Verifies the run in this folder; nothing is written.

    Args:
        folder: Of an audit that trained or read a recording.
        recording: The recording that was audited, to be compared as well.

    Raises:
        ValueError: There is no run, or none whose scores are stored.
    """
    if not (folder / FILE).is_file() or not (folder / run_folder.CONFIG).is_file():
        AuditResults.load(folder)  # its errors say what is missing
        raise ValueError(f"want the folder of an audit whose scores are stored, got {folder}; repeat its command")
    return _Verifier(folder).verification(recording)


class _Verifier:
    """Collects the differences of one folder.

    Attributes:
        files: By name relative to the folder, what is wrong with a file.
        lines: Other differences.
        notes: As of `Verification`.
        compared: By name of the things compared, how many.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, str] = {}
        self.lines: list[str] = []
        self.notes = [_NOT_JUDGED]
        self.compared: dict[str, int] = defaultdict(int)

    def verification(self, recording: Path | None) -> Verification:
        self._check_files()
        results = self._read(FILE, partial(AuditResults.load, self.folder))
        if results is None:
            self.notes.append(f"without {FILE} nothing was judged again")
        else:
            self._check_config(results)
            self._check_recording(results, recording)
            self._check_cells(results)
            self._check_reports(results)
        of_verdicts = [line for line in self.lines if line.partition(": ")[0].endswith((".verdict", ".grade"))]
        others = [line for line in self.lines if line not in of_verdicts]
        of_files = [f"{name}: {text}" for name, text in self.files.items()]
        compared = ", ".join(f"{count} {name}" for name, count in self.compared.items())
        return Verification([*of_files, *of_verdicts, *others], self.notes, compared)

    def _read(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` returns of the file or folder `name`; None, and a difference, where it raises ValueError or OSError."""
        try:
            return read()
        except (ValueError, OSError) as error:
            self.files.setdefault(name, str(error))
            return None

    def _check_files(self) -> None:
        """Compares all files with their stored SHA-256."""
        present = {
            path.relative_to(self.folder).as_posix(): path
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and path.suffix != PART
        }
        sums = self._read(SUMS, partial(read_sums, self.folder)) or {}
        for name, sha256 in sums.items():
            self.compared["files"] += 1
            if name not in present:
                self.files[name] = "missing"
            elif digest(present[name]) != sha256:
                self.files[name] = f"changed since the run: its SHA-256 is not that of {SUMS}"
        for name in present if sums else ():
            if name.partition("/")[0] in _OF_CELLS and name not in sums:
                self.files[name] = f"not of this run: {SUMS} does not have it"

    def _check_config(self, results: Results) -> None:
        settings = run_folder.settings(
            results.config,
            results.dataset.sha256,
            cast(run_folder.Basis, results.environment.get(run_folder.BASIS, {})),
        )
        text = (self.folder / run_folder.CONFIG).read_bytes()
        for name, (stored, other) in run_folder.differences(text, settings).items():
            self.lines.append(f"config.{name}: {other} in {FILE}, {stored} in {run_folder.CONFIG}")
        self.notes += _basis_notes(results)
        if results.interrupted:
            self.notes.append("the run was interrupted; --resume continues it")

    def _check_recording(self, results: Results, recording: Path | None) -> None:
        sha256 = results.config.get("recording")
        if sha256 is None and recording is not None:
            raise ValueError(f"--recording: want an audit of a recording, got {self.folder}, which trained")
        if sha256 is not None and recording is None:
            self.notes.append("the recording was not compared: give --recording DIR")
        if recording is not None:
            name, manifest = str(recording), recording / MANIFEST
            if self._read(name, partial(Transcript.load, recording)) is not None and digest(manifest) != sha256:
                self.files[name] = f"another recording, or changed since the audit: want {MANIFEST} of SHA-256 {sha256}"
            self.compared["recordings"] += 1

    def _check_cells(self, results: Results) -> None:
        """Compares each run of the results with what its files and the verdicts on its scores give."""
        scores_by_cell = self._scores()
        cells = []
        for run in results.runs:
            cell = Cell(run.method, str(run.target), run.seed, run.defense)
            scores = scores_by_cell.pop(cell.folder, {})
            cells.append(self._measured(run, cell, scores, "recording" in results.config))
        self.lines += [f"{folder}: no run in {FILE}, but scores are stored" for folder in scores_by_cell]
        judgement = Judgement.of(cells, _seed(results))
        for run, measured in zip(results.runs, cells, strict=True):
            where = f"{measured.cell.folder}:"
            for name, stored, computed in (
                ("questions", run.questions, noted(judgement.questions(measured), run.checks)),
                ("attacks", run.attacks, judgement.attacks(measured)),
            ):
                self.compared[name] += len(computed)
                self.lines += of_lists(f"{where} {name}", stored, "the scores", computed)
            if measured.records:
                self._check_claims_and_ledger(results, run, measured, judgement)

    def _check_claims_and_ledger(
        self, results: Results, run: Run, measured: MeasuredCell, judgement: Judgement
    ) -> None:
        where = measured.cell.folder
        method = attempt(lambda: trained_method(_config(results), measured.cell))
        if isinstance(method, Failed):
            self.notes.append(f"{where}: claims and ledger were not computed again: {method.line}")
            return
        if measured.scores and not self._facts_file(measured.cell).is_file():
            self.notes.append(f"{where}: claims were not decided again without {FACTS}")
        else:
            claims = judgement.claims(measured, _config(results))
            self.compared["claims"] += len(claims)
            self.lines += of_lists(f"{where}: claims", run.claims, "the scores", claims)
        rows = ledger(measured.records, method.disclosure().sent_as)
        stored, computed = ([row.model_dump(mode="json", by_alias=True) for row in r] for r in (run.artifacts, rows))
        self.lines += differences(f"{where}: artifacts", stored, "the transcript", computed)

    def _scores(self) -> dict[str, dict[str, AttackScores]]:
        """By cell and key the scores, as each evaluation's archive has them, else as the tables of all have them."""
        tables = self._read("scores.parquet", partial(ScoreTables.load, self.folder))
        all_scores = None if tables is None else self._read("scores.parquet", partial(from_tables, tables))
        scores, archived = dict(all_scores or {}), set[str]()
        for path in sorted((self.folder / "scores").glob("*/*.zip")):
            name = path.relative_to(self.folder).as_posix()
            archive = self._read(name, partial(ScoreTables.load_archive, path))
            evaluations = None if archive is None else self._read(name, partial(from_tables, archive))
            if archive is None or evaluations is None:
                continue
            self.compared["score tables"] += 1
            scores |= evaluations
            archived |= evaluations.keys()
            if tables is not None and (differing := _differing_tables(archive, tables)):
                self.files.setdefault(name, f"its rows are not those of {' and '.join(differing)}")
        by_cell: dict[str, dict[str, AttackScores]] = defaultdict(dict)
        for key, attack in scores.items():
            by_cell[key.partition("/")[0]][key] = attack
            if attack.conditions and key not in archived:
                self.files.setdefault(_archive_of(key), "missing")
        return dict(by_cell)

    def _measured(self, run: Run, cell: Cell, scores: Mapping[str, AttackScores], recorded: bool) -> MeasuredCell:
        """What the verdicts on this run follow from, after its utility and log were compared with its training's record."""
        unknown = Trained(utility=None, failed=run.failed, diverged=run.diverged, train_s=0.0, wire_s=0.0)
        ordered = _in_order_of(run, scores)
        if recorded or run.failed is not None:
            return MeasuredCell(cell=cell, trained=unknown, records=(), scores=ordered)
        file = trained_file(self.folder, cell)
        folder, name = file.parent, file.relative_to(self.folder).as_posix()
        trained = self._read(name, partial(read_json, file, _TRAINED))
        transcript = self._read(folder.relative_to(self.folder).as_posix(), partial(Transcript.load, folder))
        facts = None
        if (facts_file := self._facts_file(cell)).is_file():
            facts = self._read(facts_file.relative_to(self.folder).as_posix(), partial(stored_facts, facts_file))
        if trained is not None:
            for stored_name, sha256 in trained.files.items():
                path = folder / stored_name
                if not path.is_file() or digest(path) != sha256:
                    relative = path.relative_to(self.folder).as_posix()
                    self.files.setdefault(relative, f"not as it was trained: its SHA-256 is not that of {file.name}")
            of_training = trained.model_dump(mode="json", by_alias=True)
            stored = run.model_dump(mode="json", by_alias=True)
            for field_name, of_trained in (("utility", "utility"), ("training", "log"), ("diverged", "diverged")):
                where = f"{cell.folder}: {field_name}"
                self.lines += differences(where, stored[field_name], file.name, of_training[of_trained])
        records = transcript.records if transcript is not None and trained is not None else ()
        return MeasuredCell(cell=cell, trained=trained or unknown, records=records, facts=facts or {}, scores=ordered)

    def _facts_file(self, cell: Cell) -> Path:
        return self.folder / "scores" / cell.folder / FACTS

    def _check_reports(self, results: AuditResults) -> None:
        """Compares each report with what the results give."""
        for report in Report.importable().values():
            text = attempt(partial(report().render, results, self.folder))
            path = self.folder / report.filename
            if isinstance(text, Failed):
                self.notes.append(f"{report.filename} was not rendered again: {text.line}")
                continue
            self.compared["reports"] += 1
            if not path.is_file():
                self.files.setdefault(report.filename, "missing")
            elif path.read_bytes() != text.encode():
                self.files.setdefault(report.filename, f"not what {FILE} gives")


def _basis_notes(results: Results) -> list[str]:
    """What the results rest on, and which versions judge now, in sentences."""
    basis = results.environment.get(run_folder.BASIS)
    basis = basis if isinstance(basis, dict) else {}
    then, parts = basis.get("versions"), basis.get("parts")
    if not isinstance(then, dict) or not isinstance(parts, dict):
        return [f"of the run only its version is known, fdgpriv {results.fdgpriv}; this is {__version__}"]
    listed = ", ".join(f"{name} {number}" for name, number in then.items())
    notes = [f"the run rests on {listed}", f"and on {', '.join(f'{name} {digest}' for name, digest in parts.items())}"]
    now = versions(tuple(name for name in then if name not in versions()))
    if changed := [name for name in now if then.get(name) != now[name]]:
        others = ", ".join(f"{name} {now[name]}" for name in changed)
        notes.append(f"it was judged again with {others}, which may judge otherwise")
    return notes


def _config(results: Results) -> AuditConfig:
    """The configuration as far as methods follow from it."""
    given: dict[str, Any] = results.config
    values = {name: given[name] for name in ("dataset", "preset", "settings", "inject_bug")}
    return AuditConfig(methods=tuple(given["methods"]), **values)


def _seed(results: Results) -> int:
    """The seed of the resampling."""
    match results.config.get("seeds"):
        case [int(seed), *_]:
            return seed
    raise ValueError(f"want the seeds of the audit in config of {FILE}, got {results.config.get('seeds')!r}")


def _differing_tables(archive: ScoreTables, tables: ScoreTables) -> list[str]:
    """The names of the files with all evaluations' rows whose rows of its evaluations differ from an archive's."""
    differing = []
    for name in SCHEMAS:
        table = getattr(tables, name)
        rows = table.filter(pc.is_in(table["evaluation"], value_set=archive.evaluations["evaluation"].combine_chunks()))
        if not rows.equals(getattr(archive, name)):
            differing.append(f"{name}.parquet")
    return differing


def _archive_of(key: str) -> str:
    """The name of the archive of an evaluation ``CELL/SPEC@ROLE on KIND``, or of one on a further task."""
    cell, _, evaluation = key.partition("/")
    attack, _, kind = evaluation.rpartition(" on ")
    spec, _, role = attack.rpartition("@")
    return scores_file(Path(), cell, spec, role, kind.partition(", ")[0]).as_posix()


def _in_order_of(run: Run, scores: Mapping[str, AttackScores]) -> dict[str, AttackScores]:
    """The scores in the order of the run's attacks, and then those that it does not have."""
    keys: dict[object, list[str]] = defaultdict(list)
    for key, attack in scores.items():
        keys[attack.attack, attack.task, attack.kind, attack.threat.role, attack.failed].append(key)
    ordered = [
        of_identity.pop(0)
        for attack in run.attacks
        if (of_identity := keys[attack.attack, attack.task, attack.kind, attack.threat.role, attack.failed])
    ]
    return {key: scores[key] for key in dict.fromkeys([*ordered, *scores])}
