"""Python interface of the audit: `run_audit` for scripts, `audit` for the command line."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from fdgpriv.attack import Attack
from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.defense import Defense
from fdgpriv.dry_run import dry_run
from fdgpriv.method import Method
from fdgpriv.registry import Role, check_field
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.runner import Runner
from fdgpriv.utils import run_folder
from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.defaults import METHOD
from fdgpriv.utils.failures import Failed, attempt, refused
from fdgpriv.utils.fields import kinds
from fdgpriv.utils.file_names import check_files, slug
from fdgpriv.utils.files import write_text
from fdgpriv.utils.memory import reuse_freed

_OWN = ("methods", "attacks", "defenses", "seeds")  # arguments of `run_audit` by themselves


def run_audit(
    method: str | Method | Sequence[str | Method] = METHOD,
    *,
    attacks: str | Attack | Sequence[str | Attack] = "all",
    defenses: str | Defense | Sequence[str | Defense] = "none",
    seeds: int | Sequence[int] = 0,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool = False,
    **options: Any,
) -> Results:
    """Trains federations, attacks the shared artifacts and evaluates the leaks, as ``python -m fdgpriv.audit`` does.

    Parts are specifications as on the command line (``"gan:steps=30"``) or instances, also of user-defined classes.

    Args:
        method: One or several; one run each.
        attacks: One or several, ``"all"``, or ``"none"`` to train only.
        defenses: One or several; one run each.
        seeds: One or several; one run each.
        out: A new folder for transcript, scores, figures and reports; None to store nothing.
        resume: Continue the run in `out`.
        progress: Print progress on stderr.
        options: Any other field of `fdgpriv.cli.options.Options`: ``preset="quick"``, ``targets="scan"``, ... Paths may be
            text, and one target or threat model stands for itself.

    Raises:
        ValueError: An option is invalid.
    """
    audit_options = Options(
        methods=_specs(method),
        attacks=_specs(attacks),
        defenses=_specs(defenses),
        seeds=(seeds,) if isinstance(seeds, int) else tuple(seeds),
        **_read(options),
    )
    if out is not None:
        return audit(audit_options, Path(out), resume=resume, progress=progress).results
    if resume:
        raise ValueError("resume: want out, the folder to continue in")
    with TemporaryDirectory() as folder:
        return audit(audit_options, Path(folder) / "run", progress=progress).results


class Audited(NamedTuple):
    """The results of an audit, its folder, and one line for each report that could not be written."""

    results: Results
    out: Path
    unwritten: list[str]


@fixed_arithmetic()
def audit(
    options: Options, out: Path | None, *, resume: bool = False, command: str | None = None, progress: bool = True
) -> Audited:
    """Runs an audit and writes its reports.

    Args:
        options: The options.
        out: The output folder; None for a new one in runs/.
        resume: Continue the run in `out`.
        command: The command line that reproduces the run, for the report.
        progress: Print progress on stderr.
    """
    options.check()
    with refused("an option or a part cannot be used"):
        config = AuditConfig(**vars(options)).checked()
    reuse_freed()
    with ProgressLog(quiet=not progress) as log:
        dataset, config = config.load(log)
        out = run_folder.free(_folder_name(config)) if out is None else out
        runner = Runner(config, dataset, out, log)
        check_files(out, runner.files())
        with refused("the audit cannot be built"):
            notes = dry_run(config, dataset)
        settings = run_folder.settings(config.as_config(len(dataset.domains) - 1), dataset.sha256)
        with run_folder.resumed(out, settings) if resume else run_folder.new(out, settings):
            log.say(f"{config.dataset}: {sum(map(len, dataset.domains)):,} images in {len(dataset.domains)} domains")
            for warning in dataset.warnings:
                log.say(f"warning: {warning}")
            for spec in config.methods:
                log.say(f"{spec}: network {', '.join(config.network(spec, len(dataset.domains) - 1))}")
                if any(networks.of_user for networks in config.metric_networks(spec, len(dataset.domains) - 1)):
                    names = ", ".join(config.metric_names(spec, len(dataset.domains) - 1))
                    log.say(f"{spec}: images that attacks draw are compared by {names}")
                if advice := config.advice(spec, len(dataset.domains) - 1):
                    log.say(f"{spec}: {advice}")
            for note in notes:
                log.say(note)
            results = runner.run(command)
            paths, unwritten = write(results, out)
        log.say(f"wrote {', '.join(str(path) for path in paths)}")
    return Audited(results, out, unwritten)


class Written(NamedTuple):
    """The paths of what was written, and one line for each report that could not be."""

    paths: list[Path]
    failures: list[str]


def write(results: Results, out: Path) -> Written:
    """Writes results.json and every report, each atomically; the failure of one report leaves out only that one."""
    results.save(out)
    found = Written([out / "results.json"], [])
    for name in Report.names():
        path = attempt(partial(_write_report, name, results, out))
        if isinstance(path, Failed):
            found.failures.append(f"report {name}: {path.line}")
        else:
            found.paths.append(path)
    return found


def _write_report(name: str, results: Results, out: Path) -> Path:
    report = Report.named(name)()
    path = out / report.filename
    text = report.render(results, out)
    if not isinstance(text, str):
        raise TypeError(f"want {name}.render to return text, got {type(text).__name__}")
    write_text(path, text)
    return path


def _specs(parts: str | Role | Sequence[str | Role]) -> tuple[str, ...]:
    several = [parts] if isinstance(parts, str | Role) else parts
    return tuple(part if isinstance(part, str) else part.spec() for part in several)


def _read(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with text in place of paths and single names converted; settings are checked with the methods'.

    Raises:
        ValueError: There is no such option, or its value is of another type.
    """
    known = {name: kind for name, kind in kinds(Options).items() if name not in _OWN}
    for name in options:
        check_field("run_audit", name, known)
    return {name: one if name == "settings" else known[name].read(one, name) for name, one in options.items()}


def _folder_name(config: AuditConfig) -> str:
    """The default name of a run's folder."""
    methods, targets = ("+".join(map(slug, names)) for names in (config.methods, config.targets))
    return f"{methods}-{config.dataset}-{targets}-{config.preset}"
