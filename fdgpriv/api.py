"""Python interface of the audit: `run_audit` for scripts, `audit` for the command line."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import finalize

from fdgpriv.attack import Attack
from fdgpriv.audit_results import AuditResults
from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.dry_run import dry_run
from fdgpriv.estimate import estimate
from fdgpriv.method import Method
from fdgpriv.registry import Role
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.results.score_rows import ROWS
from fdgpriv.results.score_tables import SCHEMAS
from fdgpriv.runner import Runner
from fdgpriv.utils import run_folder
from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.checksum import write_sums
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.defaults import METHOD, Bug
from fdgpriv.utils.drawing import Figure, save_figure
from fdgpriv.utils.failures import Failed, attempt, refused
from fdgpriv.utils.fields import kinds
from fdgpriv.utils.file_names import check_files, slug
from fdgpriv.utils.files import write_text
from fdgpriv.utils.memory import reuse_freed
from fdgpriv.utils.seed_values import seed_values
from fdgpriv.utils.suggestions import suggesting

_PARTS = ("methods", "attacks", "defenses", "seeds")  # fields of Options that run_audit takes in other forms

MAX_NAME_LENGTH = 80  # characters of joined names in the default name of a folder

P = TypeVar("P", bound=Role)
OneOrMore: TypeAlias = str | P | Sequence[str | P]


@suggesting
def run_audit(
    method: OneOrMore[Method] = METHOD,
    *,
    methods: OneOrMore[Method] | None = None,
    attacks: OneOrMore[Attack] = "all",
    defenses: OneOrMore[Defense] = "none",
    seeds: int | Sequence[int] = 0,
    dataset: str = "digits",
    data_root: Path | str | None = None,
    image_size: int | None = None,
    images: int | None = None,
    auxiliary: int | None = None,
    units_per_domain: int | None = None,
    targets: str | Sequence[str] = (),
    preset: str = "default",
    clients: int | None = None,
    partition: str | None = None,
    held_out: float | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
    threats: str | Sequence[str] = (),
    device: str = "auto",
    backbone: str | None = None,
    weights: Path | str | None = None,
    keep: str = "last",
    engine: str = "local",
    inject_bug: Bug | None = None,
    figures: str | Sequence[str] = (),
    log: str | None = None,
    jobs: int = 1,
    ray: str | None = None,
    crossed: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool = False,
) -> AuditResults:
    """Trains federations, attacks the shared artifacts and evaluates the leaks, as ``python -m fdgpriv.audit`` does.

    Parts are specifications as on the command line (``"gan:steps=30"``) or instances, also of user-defined classes.

    Args:
        method: One or several; one run each.
        methods: The same as `method`; only one of the two may be given.
        attacks: One or several, ``"all"``, or ``"none"`` to train only.
        defenses: One or several; one run each.
        seeds: One or several; one run each.
        dataset: A name of ``fdgpriv audit --help``; all except ``digits`` need `data_root`.
        data_root: The folder of the dataset; for ``folder`` also a table in CSV.
        image_size: Side of a folder dataset's images, in pixels.
        images: Maximum number of images of each domain for training; the others serve attacks.
        auxiliary: Number of images of each domain that adversaries hold.
        units_per_domain: Desired number of clients and shadow clients of each domain.
        targets: Unseen domains, one run each, or ``"all"``; empty for the dataset's default.
        preset: ``"quick"``, ``"default"``, ``"thorough"`` or ``"paper"``.
        clients: Number of clients.
        partition: ``"single"``, ``"dirichlet:A"``, ``"heterogeneity:L"``, ``"domains:D"``, ``"given"`` by the data, or
            ``"flwr:NAME"``, a partitioner of flwr-datasets.
        held_out: Share in (0, 1) of each client's images that is held out for validation.
        settings: Fields of every method, by name.
        threats: Roles of adversaries; empty for all.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        backbone: The network.
        weights: Folder or file of pretrained weights.
        keep: The rule for the model states that the transcript stores.
        engine: ``"local"``, or ``"flower"``: the same results over Flower's simulation.
        inject_bug: A deliberate error in the noise of defenses, which the audit must report as a violation.
        figures: Formats in which the figures for a paper are written into `out`: ``"pdf"``, ``"png"``, ``"svg"``.
        log: A further log of the accuracies of rounds: ``"tensorboard"`` or ``"mlflow"``, in `out`.
        jobs: Number of runs at a time, each in a process.
        ray: The address of a Ray cluster whose machines work on the runs: ``"HOST:PORT"``, or ``"auto"``.
        crossed: Also evaluate each client's artifact with every other client's truth.
        out: A new folder for transcript, scores, figures and reports. With None, score tables and pictures are removed
            together with the results.
        resume: Continue the run in `out`.
        progress: Print progress on stderr.

    Raises:
        ValueError: An option is invalid.
        TypeError: There is no such option.

    Example:
        >>> results = fdgpriv.run_audit("stablefdg", preset="quick", attacks=["domain_inference"])  # doctest: +SKIP
    """
    arguments = locals()  # by name, as given
    if methods is not None and method != METHOD:
        raise ValueError(f"run_audit: want method or methods, got both: {method!r} and {methods!r}")
    options = Options(
        methods=specs(method if methods is None else methods),
        attacks=specs(attacks),
        defenses=specs(defenses),
        seeds=seed_values(seeds, "seeds"),
        **_converted({name: arguments[name] for name in kinds(Options) if name not in _PARTS}),
    )
    if out is not None:
        return audit(options, Path(out), resume=resume, progress=progress).results
    for argument, value in (("resume", resume), ("figures", figures), ("log", log)):
        if value:
            raise ValueError(f"{argument}: want out, the folder of the run, with it")
    with TemporaryDirectory() as folder:
        return without_folder(audit(options, Path(folder) / "run", progress=progress).results)


def without_folder(results: AuditResults) -> AuditResults:
    """The results with copies of their score tables and pictures, which are removed with the results."""
    folder = Path(mkdtemp(prefix="fdgpriv-"))
    copied = AuditResults.of(results, folder)
    finalize(copied, shutil.rmtree, folder, ignore_errors=True)
    results.save(folder)
    return copied


class Audited(NamedTuple):
    """The results of an audit, its folder, and one line for each report that could not be written."""

    results: AuditResults
    out: Path
    unwritten: list[str]


@fixed_arithmetic()
def audit(
    options: Options,
    out: Path | None,
    *,
    resume: bool = False,
    command: str | None = None,
    progress: bool = True,
    earlier: Path | None = None,
) -> Audited:
    """Runs an audit and writes its reports.

    Args:
        options: The options.
        out: The output folder; None for a new one in runs/.
        resume: Continue the run in `out`.
        command: The command line that reproduces the run, for the report.
        progress: Print progress on stderr.
        earlier: A run's config.json; differences from it are printed.
    """
    config = _config(options)
    reuse_freed()
    with ProgressLog(quiet=not progress) as log:
        dataset, config = config.load(log)
        out = run_folder.free(_folder_name(config)) if out is None else out
        runner = Runner(config, dataset, out, log)
        check_files(out, runner.files())
        runner.check_tables()
        with refused("the audit cannot be built"):
            notes = dry_run(config, dataset)
        settings = run_folder.settings(config.as_config(dataset.n_sources), dataset.sha256, runner.basis)
        with run_folder.resumed(out, settings) if resume else run_folder.new(out, settings):
            for line in [*_setup_lines(config, dataset), *notes]:
                log.say(line)
            if earlier is not None and (changes := run_folder.differences(earlier.read_bytes(), settings)):
                log.say(f"as in {earlier}, but for {run_folder.changes_text(changes)}")
            results = AuditResults.of(runner.run(command), out)
            paths, unwritten = write(results, out, config.figures)
        log.say(f"wrote {', '.join(str(path) for path in paths)}")
    return Audited(results, out, unwritten)


def _setup_lines(config: AuditConfig, dataset: Dataset) -> list[str]:
    """The dataset, its warnings, and the networks of each method, in lines."""
    lines = [f"{config.dataset}: {sum(map(len, dataset.domains)):,} images in {len(dataset.domains)} domains"]
    lines += [f"warning: {warning}" for warning in dataset.warnings]
    for spec in config.methods:
        lines.append(f"{spec}: network {', '.join(config.network(spec, dataset.n_sources))}")
        if any(networks.of_user for networks in config.metric_networks(spec, dataset.n_sources)):
            names = ", ".join(config.metric_names(spec, dataset.n_sources))
            lines.append(f"{spec}: images that attacks draw are compared by {names}")
        if advice := config.advice(spec, dataset.n_sources):
            lines.append(f"{spec}: {advice}")
    return lines


@fixed_arithmetic()
def planned(options: Options) -> list[str]:
    """The runs, the time and the memory of an audit with these options, in lines; trains two rounds and writes nothing."""
    config = _config(options)
    with ProgressLog() as log:
        dataset, config = config.load(log)
        with refused("the audit cannot be built"):
            notes = dry_run(config, dataset)
        runner = Runner(config, dataset, Path(), log)
        return [*notes, *estimate(config, dataset, runner.cells(), runner.workers, log)]


def _config(options: Options) -> AuditConfig:
    """The checked configuration with these options."""
    options.check()
    with refused("an option or a part cannot be used"):
        return AuditConfig(**vars(options)).checked()


class Written(NamedTuple):
    """The paths of the written files, and one line for each report or figure that could not be written."""

    paths: list[Path]
    failures: list[str]


def write(results: Results, out: Path, figure_formats: Sequence[str] = ()) -> Written:
    """Writes results.json, every report, every figure in these formats, and the SHA-256 of all files, each atomically.

    The failure of a report or a figure leaves out only that one.
    """
    results.save(out)
    written = Written([out / "results.json"], [])
    reports = {name: attempt(partial(_write_report, name, results, out)) for name in Report.names()}
    outcomes = {f"report {name}": outcome for name, outcome in reports.items()}
    figures = attempt(AuditResults.of(results, out).figures) if figure_formats else {}
    if isinstance(figures, Failed):
        outcomes["figures"], figures = figures, {}
    for name, draw in figures.items():
        outcomes[f"figure {name}"] = attempt(partial(_write_figure, draw, out / "figures" / name, figure_formats))
    for name, paths in outcomes.items():
        if isinstance(paths, Failed):
            written.failures.append(f"{name}: {paths.line}")
        else:
            written.paths.extend(paths)
    stored = [
        run_folder.CONFIG,
        *(f"{table}{suffix}" for table in SCHEMAS for suffix in (".parquet", ROWS)),
        "scores",
        "transcript",
        "figures",
    ]
    write_sums(out, [*stored, *(path.name for path in written.paths if path.parent == out)])
    return written


def _write_figure(draw: Callable[[], Figure], path: Path, formats: Sequence[str]) -> list[Path]:
    """Draws a figure for each format, and writes it as `path` with the format's suffix."""
    paths = [path.with_suffix(f".{name}") for name in formats]
    for file in paths:
        save_figure(draw(), file)
    return paths


def _write_report(name: str, results: Results, out: Path) -> list[Path]:
    """Writes the report of this name into the folder; returns its path."""
    report = Report.named(name)()
    path = out / report.filename
    text = report.render(results, out)
    if not isinstance(text, str):
        raise TypeError(f"want {name}.render to return text, got {type(text).__name__}")
    write_text(path, text)
    return [path]


def specs(parts: str | Role | Sequence[str | Role]) -> tuple[str, ...]:
    """The specifications of one or several parts."""
    sequence = [parts] if isinstance(parts, str | Role) else parts
    return tuple(part if isinstance(part, str) else part.spec() for part in sequence)


def _converted(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with texts converted to paths and single names to tuples; settings are checked later, by the methods.

    Raises:
        ValueError: A value is of another type.
    """
    types = kinds(Options)
    return {name: value if name == "settings" else types[name].read(value, name) for name, value in options.items()}


def _folder_name(config: AuditConfig) -> str:
    """The default name of a run's folder; of many methods or targets, the first and the number of the others."""

    def joined(names: Sequence[str]) -> str:
        text = "+".join(map(slug, names))
        return text if len(text) <= MAX_NAME_LENGTH else f"{slug(names[0])}+{len(names) - 1}"

    return f"{joined(config.methods)}-{config.dataset}-{joined(config.targets)}-{config.preset}"
