"""The audit from Python: `run_audit` for scripts, `audit` for the command line, which is a thin caller of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fdgpriv.attack import Attack
from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.defense import Defense
from fdgpriv.method import Method
from fdgpriv.registry import Role
from fdgpriv.report import Report
from fdgpriv.results.finding import Results
from fdgpriv.runner import Runner
from fdgpriv.utils import run_folder
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.defaults import METHOD
from fdgpriv.utils.file_names import check_files, slug
from fdgpriv.utils.files import write_text


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
    """Trains a federation, attacks what it shared and judges, as ``python -m fdgpriv.audit`` does.

    Parts are named as on the command line (``"gan:steps=30"``) or are instances, also of classes of your own.

    Args:
        method: One or several, each a run.
        attacks: One or several, ``"all"``, or ``"none"`` to train only.
        defenses: One or several, each a run.
        seeds: One or several, each a run.
        out: A new folder for transcript, scores, figures and reports; None keeps nothing on disk.
        resume: Go on in `out`.
        progress: Say on stderr what is going on.
        options: Any other field of `fdgpriv.cli.options.Options`: ``preset="quick"``, ``targets=("scan",)``, ...

    Raises:
        ValueError: An option cannot be; one line says what was wanted and what came.
    """
    asked = Options(
        methods=_specs(method),
        attacks=_specs(attacks),
        defenses=_specs(defenses),
        seeds=(seeds,) if isinstance(seeds, int) else tuple(seeds),
        **options,
    )
    if out is not None:
        return audit(asked, Path(out), resume=resume, progress=progress)[0]
    if resume:
        raise ValueError("resume: want out, the folder to continue in")
    with TemporaryDirectory() as folder:
        return audit(asked, Path(folder) / "run", progress=progress)[0]


def audit(
    options: Options, out: Path | None, *, resume: bool = False, command: str | None = None, progress: bool = True
) -> tuple[Results, Path]:
    """The results of an audit, and the folder that they were written to with every report.

    Args:
        options: What is asked for.
        out: The folder; None for a new one in runs/.
        resume: Go on in `out`.
        command: The command line that does it again, for the report.
        progress: Say on stderr what is going on.
    """
    options.check()
    config = AuditConfig(**vars(options)).checked()
    with ProgressLog(quiet=not progress) as log:
        dataset, config = config.load()
        out = run_folder.free(_named(config)) if out is None else out
        runner = Runner(config, dataset, out, log)
        check_files(out, runner.files())
        config.rehearse(dataset)
        settings = json.dumps(config.as_config(len(dataset.domains) - 1), indent=1, sort_keys=True) + "\n"
        with run_folder.resumed(out, settings) if resume else run_folder.new(out, settings):
            log.say(f"{config.dataset}: {sum(map(len, dataset.domains)):,} images in {len(dataset.domains)} domains")
            results = runner.run(command)
            paths = write(results, out)
        log.say(f"wrote {', '.join(str(path) for path in paths)}")
    return results, out


def write(results: Results, out: Path) -> list[Path]:
    """Writes results.json and every report, each whole or not at all."""
    results.save(out)
    paths = [out / "results.json"]
    for name in Report.names():
        report = Report.named(name)()
        path = out / report.filename
        write_text(path, report.render(results, out))
        paths.append(path)
    return paths


def _specs(parts: str | Role | Sequence[str | Role]) -> tuple[str, ...]:
    several = [parts] if isinstance(parts, str | Role) else parts
    return tuple(part if isinstance(part, str) else part.spec() for part in several)


def _named(config: AuditConfig) -> str:
    """The name of a run's folder."""
    methods, targets = ("+".join(map(slug, some)) for some in (config.methods, config.targets))
    return f"{methods}-{config.dataset}-{targets}-{config.preset}"
