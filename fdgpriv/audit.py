"""python -m fdgpriv.audit: trains federations, attacks the shared artifacts and reports the leaks."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from fdgpriv import data
from fdgpriv.cli import config_file
from fdgpriv.cli.catalogue import fields
from fdgpriv.cli.command_line import BadUsage, Parser, once, say
from fdgpriv.cli.listing import listing
from fdgpriv.cli.options import (
    DEVICES,
    ENGINES,
    OPTIONS,
    PRESETS,
    Options,
    check_choice,
    check_effects,
    settings,
    swept,
)
from fdgpriv.cli.utf8 import restart_in_utf8
from fdgpriv.federation.setup import KEEP
from fdgpriv.models.names import BACKBONES, TIMM
from fdgpriv.registry import names_in
from fdgpriv.results.leak_gate import LEAK, LEAK_CONDITIONS, WANTED, leak_sentence
from fdgpriv.threat import THREATS
from fdgpriv.utils import run_folder
from fdgpriv.utils.defaults import BUGS, DEFENSE, EXAMPLES, FIGURE_FORMATS, LOGS
from fdgpriv.utils.file_names import check_current_folder, check_name
from fdgpriv.utils.files import DISK_FULL
from fdgpriv.utils.seed_values import seed_values
from fdgpriv.utils.streams import lenient
from fdgpriv.utils.suggestions import did_you_mean, same_name
from fdgpriv.utils.warnings_filter import warnings_in_one_line

if TYPE_CHECKING:  # modules that need torch are imported in functions, after the arguments are checked
    from fdgpriv.results.finding import Results

FAILED, USAGE, INTERRUPTED, FAILED_ON = 1, 2, 3, 4
# options that a run's config.json does not have: they may differ when a run is continued, or are paths
_NOT_IN_CONFIG = {"out", "resume", "jobs", "ray", "engine", "figures", "log", "fail_on", "data_root", "weights"}
_NOT_IN_CONFIG |= {"recording", "federation"}
PARTS = {"--method": "methods", "--attack": "attacks", "--defense": "defenses"}  # folders of parts by option


def parser() -> Parser:
    """The argument parser of the audit; values have the names of the fields of `Options`."""
    p = Parser(
        _option_of,
        prog="fdgpriv audit",
        description="Train federations, attack the shared artifacts, report the leaks.\nAn option that takes several "
        "values may be repeated: --seed 0 --seed 1 is --seed 0 1.",
        epilog=EXAMPLES,
    )

    g = p.add_argument_group("training")
    g.add_argument("--method", nargs="+", dest="methods", metavar="SPEC", help="name or name:field=value,...; all")
    g.add_argument("--dataset", metavar="NAME", help=f"{', '.join(data.names())}; the first is built in")
    g.add_argument(
        "--data-root", type=Path, metavar="DIR", help="folder of a folder dataset; of folder also a table .csv"
    )
    g.add_argument("--image-size", type=int, metavar="PX", help="side of a folder dataset's images")
    g.add_argument("--images", type=int, metavar="N", help="at most N images of each domain; 200 with --preset quick")
    g.add_argument("--target", nargs="+", dest="targets", metavar="DOMAIN", help="target domains, or all")
    g.add_argument("--preset", metavar="NAME", help=", ".join(PRESETS))
    g.add_argument("--clients", type=int, metavar="N", help="30 by default, that of each paper with --preset paper")
    g.add_argument(
        "--partition",
        metavar="KIND",
        help="single (the default), dirichlet:A, heterogeneity:L, domains:D, given (by your data), flwr:NAME",
    )
    g.add_argument("--held-out", type=float, metavar="SHARE", help="of each client's images, for validation (0.1)")
    g.add_argument(
        "--set",
        nargs="+",
        dest="settings",
        metavar="FIELD=VALUE",
        help="fields of every method; lr=0.1,0.05: one run each",
    )
    g.add_argument("--backbone", metavar="NAME", help=", ".join((*BACKBONES, f"{TIMM}NAME")))
    g.add_argument("--weights", type=Path, metavar="DIR", help="folder or file of ImageNet weights")
    g.add_argument("--seed", nargs="+", type=int, dest="seeds", metavar="S", help="several give mean and interval")

    g = p.add_argument_group("attacks and defenses")
    g.add_argument("--attack", nargs="+", dest="attacks", metavar="SPEC", help="as for --method; all; none")
    g.add_argument("--auxiliary", type=int, metavar="N", help="images of each domain that adversaries hold")
    g.add_argument("--units-per-domain", type=int, metavar="N", help="clients and shadow clients to aim at (10)")
    g.add_argument("--threat", nargs="+", dest="threats", metavar="ROLE", help=", ".join(THREATS))
    g.add_argument("--defense", nargs="+", dest="defenses", metavar="SPEC", help="one run each")
    g.add_argument("--inject-bug", metavar="BUG", help=f"too little noise, as a test of the audit: {', '.join(BUGS)}")

    g = p.add_argument_group("external artifacts")
    g.add_argument("--artifact", nargs="+", type=Path, metavar="FILE", help="audit these styles; trains nothing")
    g.add_argument("--groups", nargs="+", metavar="A+B", help="number of clients of each domain, in order")

    g = p.add_argument_group("a recorded training")
    g.add_argument("--recording", type=Path, metavar="DIR", help="audit what fdgpriv.record recorded; trains nothing")
    g.add_argument(
        "--federation", type=Path, metavar="FILE", help="Python file: network, clients, public, train, encoder"
    )

    g.add_argument(
        "--check", action="store_true", help="check the recording against FILE, in a minute, and attack nothing"
    )

    g = p.add_argument_group("execution and output")
    g.add_argument("--engine", metavar="NAME", help=", ".join(ENGINES))
    g.add_argument("--jobs", type=int, metavar="N", help="runs at a time (1), each with the memory of one training")
    g.add_argument("--ray", metavar="ADDRESS", help="runs as tasks of this Ray cluster: HOST:PORT, or auto")
    g.add_argument("--device", metavar="NAME", help=", ".join(DEVICES))
    g.add_argument("--keep", metavar="WHICH", help=f"model states in the transcript: {', '.join(KEEP)}")
    g.add_argument("--out", type=Path, metavar="DIR", help="a new folder; runs/... by default")
    g.add_argument("--figures", nargs="+", metavar="FORMAT", help=f"figures for a paper: {', '.join(FIGURE_FORMATS)}")
    g.add_argument("--config", type=Path, metavar="FILE", help="options from a .toml file or a run's config.json")
    g.add_argument("--log", metavar="NAME", help=f"log the accuracies of rounds to {' or '.join(LOGS)}")
    g.add_argument("--dry-run", action="store_true", help="say what would run, and how long, and write nothing")
    g.add_argument("--fail-on", dest="fail_on", metavar="LEAK", help=f"exit with 4 on a leak: {WANTED}")
    g.add_argument("--resume", action="store_true", help="continue the run in --out")
    g.add_argument("--list", nargs="*", metavar="NAME", help="list all parts; or the settings of these")
    return p


def _option_of(word: str) -> str | None:
    """The option that takes this name of a part, dataset or preset; of an option's name, the setting of a method."""
    if word.startswith("-"):
        setting = word.lstrip("-").replace("-", "_")
        if any(setting in (fields("methods", name) or ()) for name in names_in("methods")):
            return f"--set {setting}=VALUE"
        with_it = [name for name in names_in("defenses") if setting in (fields("defenses", name) or ())]
        others = [name for name in with_it if name != DEFENSE]
        if not with_it:
            return None
        of_others = f", or of {', '.join(others)}" if others and DEFENSE in with_it else ""
        return f"--defense {DEFENSE if DEFENSE in with_it else with_it[0]}:{setting}=VALUE{of_others}"
    known_names = {option: names_in(folder) for option, folder in PARTS.items()}
    known_names |= {"--dataset": data.names(), "--preset": PRESETS, "--threat": tuple(THREATS)}
    name = word.partition(":")[0]
    return next((option for option, names in known_names.items() if same_name(name, names)), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 success, 1 a failure or a full disk, 2 invalid usage, 3 interrupted, 4 --fail-on is met; bugs raise."""
    with lenient(), warnings_in_one_line():
        try:
            check_current_folder()
            return _run(list(sys.argv[1:] if argv is None else argv))
        except KeyboardInterrupt:
            _say("interrupted; finished work is kept: continue with --out FOLDER --resume")
            return INTERRUPTED
        except (ValueError, OSError) as error:
            if not _is_disk_full(error):
                _say(str(error))
                return USAGE
            where = error.filename or "the folder of the run"
            _say(
                f"{error.strerror}: {where}; free space and continue with --out FOLDER --resume: finished work is kept"
            )
            return FAILED


def _run(words: list[str]) -> int:
    """Runs the command of these words; the exit code."""
    given = parser().options(words)
    if "config" not in given or given.keys() & {"list", "artifact", "recording"}:
        check_effects(given)
    if "list" in given:
        print(listing(given["list"]))
        return 0
    if "config" not in given:
        begun = _begun(given)
        if begun is None:
            return _audit_with(given, words)
        given["config"] = begun
    file: Path = given["config"]
    with _named_in_errors(file):
        words = [*_file_words(file, given), *_without(words, "--config")]
        given = parser().options(words)
        check_effects(given)
        return _audit_with(given, words, file)


def _begun(given: dict[str, Any]) -> Path | None:
    """The config.json of the run in --out, which has the options of a --resume that names none of them; else None."""
    if "resume" not in given or given.keys() - _NOT_IN_CONFIG or not isinstance(given.get("out"), Path):
        return None
    run_folder.check(given["out"], resume=True)
    config: Path = given["out"] / run_folder.CONFIG
    if "recording" not in given and config_file.is_of_recording(config):
        raise BadUsage(
            f"--resume: want --recording DIR and --federation FILE with it: {given['out']} audits a recording"
        )
    return config


def _audit_with(given: dict[str, Any], words: list[str], config: Path | None = None) -> int:
    """Audits what these options name: artifacts, a recording, or methods, whose audit may only be planned; the exit code."""
    if "out" in given:
        check_name(str(given["out"]), "--out")
        with suppress(OSError):  # a path that is too long is reported when its files are known
            run_folder.check(given["out"], "resume" in given)
    if (condition := given.get("fail_on", LEAK)) not in LEAK_CONDITIONS:
        suggestion = did_you_mean(condition, LEAK_CONDITIONS)
        raise BadUsage(f"--fail-on: want {WANTED}, got {condition!r}{suggestion}")
    if "artifact" in given:
        return _audit_artifact(given, _command(words))
    if "recording" in given:
        return _audit_recording(given, _command(words))
    return _plan(given) if "dry_run" in given else _audit(given, _command(words), config)


def _is_disk_full(error: BaseException) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno in DISK_FULL


@contextmanager
def _named_in_errors(config: Path) -> Iterator[None]:
    """Adds to errors that the options are those of this configuration file, where they do not name it."""
    try:
        yield
    except (ValueError, OSError) as error:
        if _is_disk_full(error) or str(config) in str(error):
            raise
        raise BadUsage(f"{error} (with the options of {config})") from error


def _say(text: str) -> None:
    say("audit", text)


def _file_words(file: Path, given: dict[str, Any]) -> list[str]:
    """The words of a configuration file, without the options, and the settings of methods, that are given as well."""
    options = {OPTIONS[name] for name in given} - {OPTIONS["settings"]}
    fields_given = settings(given.get("settings", ()))
    remaining = []
    for word in config_file.words(file):
        option, _, value = word.partition("=")
        if option not in options and not (option == OPTIONS["settings"] and value.partition("=")[0] in fields_given):
            remaining.append(word)
    return remaining


def _plan(given: dict[str, Any]) -> int:
    """Prints what an audit with these options would run; the exit code."""
    options = _options(given)
    options.check()
    from fdgpriv.api import planned

    print("\n".join(planned(options)))
    return 0


def _audit(given: dict[str, Any], command: str, earlier: Path | None) -> int:
    """Trains, attacks and reports; the exit code."""
    options = _options(given)
    options.check()
    from fdgpriv.api import audit

    resume = "resume" in given
    return _reported(given, *audit(options, given.get("out"), resume=resume, command=command, earlier=earlier))


def _audit_recording(given: dict[str, Any], command: str) -> int:
    """Attacks and reports a recorded training, or only checks or plans that; the exit code."""
    options = _options({name: value for name, value in given.items() if name not in ("recording", "federation")})
    options.check()
    if len(options.seeds) > 1:
        raise BadUsage(f"--seed: want one number with --recording, got {' '.join(map(str, options.seeds))}")
    from fdgpriv.recorded_audit import audit, checked_only, configured, given_by, planned

    training, config = given_by(given["federation"]), configured(options, federation=given["federation"])
    if given.keys() & {"check", "dry_run"}:
        checks, lines = (
            (checked_only(given["recording"], training, config), [])
            if "check" in given
            else planned(given["recording"], training, config)
        )
        print("\n".join([str(checks), *lines]))
        if (refusal := checks.refusal()) is not None:
            _say(refusal)
        return USAGE if checks.errors else 0
    audited = audit(
        given["recording"],
        training,
        config,
        given.get("out"),
        resume="resume" in given,
        command=command,
    )
    return _reported(given, *audited)


def _reported(given: dict[str, Any], results: "Results", out: Path, unwritten: Sequence[str]) -> int:
    """Prints the verdicts and a line about each thing that failed; the exit code."""
    _print(results, out)
    for failure in unwritten:
        _say(f"failed: {failure}")
    if results.interrupted:
        _say(f"interrupted; to continue: add --out {out} --resume")
        return INTERRUPTED
    if failed := [run for run in results.runs if run.ended is not None]:
        cells = "; ".join(f"{run.method}, target {run.target}, seed {run.seed}, {run.defense}" for run in failed)
        again = f"to try them again: add --out {out} --resume"
        if all(run.failed is None for run in failed):
            again = "their trainings diverged: try other settings"
        _say(f"{len(failed)} of {len(results.runs)} runs failed: {cells}; {again}")
    parts = [part for run in results.runs for part in run.failed_parts()]
    if parts:
        more = f" (and {len(parts) - 1} more, listed above)" if len(parts) > 1 else ""
        _say(f"failed: {parts[0]}{more}; all else was evaluated; to try again: add --out {out} --resume")
    return FAILED if failed or parts or unwritten else _gate(given, results, out)


def _gate(given: dict[str, Any], results: "Results", out: Path) -> int:
    """Prints a line if --fail-on is met; the exit code, which is 4 then."""
    sentence = leak_sentence(given["fail_on"], results, str(out)) if "fail_on" in given else None
    if sentence is None:
        return 0
    _say(f"--fail-on: {sentence}")
    return FAILED_ON


def _audit_artifact(given: dict[str, Any], command: str) -> int:
    """Attacks and reports styles from files; the exit code."""
    from fdgpriv.external import styles as external_styles

    once("--artifact", given["artifact"])
    groups, (seed, *more) = "+".join(given.get("groups", ())), seed_values(given.get("seeds", [0]))
    sizes = groups.split("+") if "groups" in given else []
    if not all(size.isdecimal() and len(size) < 10 for size in sizes):
        raise BadUsage(f"--groups: want sizes joined by +, for example 47+53; got {groups!r}")
    if more:
        raise BadUsage(f"--seed: want one number with --artifact, got {' '.join(map(str, [seed, *more]))}")
    styles = external_styles.read(given["artifact"], [int(size) for size in sizes])
    out = given["out"] if "out" in given else run_folder.free(f"artifact-{styles.name}")
    from fdgpriv.api import write
    from fdgpriv.external import audit as external_audit

    with run_folder.new(out):
        results = external_audit.audit(styles, seed, command)
        _, unwritten = write(results, out)
    _print(results, out)
    for failure in unwritten:
        _say(f"failed: {failure}")
    return FAILED if unwritten else _gate(given, results, out)


def _print(results: "Results", out: Path) -> None:
    from fdgpriv.results.summary import verdicts

    print(verdicts(results))
    print(f"report: {out / 'report.html'}")


def _options(given: dict[str, Any]) -> Options:
    """The options of an audit, with the defaults of `Options`; a sweep is a method for each of its rows."""
    check_choice("--engine", given.get("engine", ENGINES[0]), ENGINES)
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    known = {field.name for field in dataclass_fields(Options)}
    options = Options(**{name: value for name, value in values.items() if name in known and name != "settings"})
    methods, same_for_all = swept(options.method_specs, settings(given.get("settings", ())))
    methods = options.methods if methods == options.method_specs else methods
    return replace(options, methods=methods, settings=same_for_all)


def _command(words: Sequence[str]) -> str:
    """The command that reproduces the run, without the output folder."""
    reproducing = (word for word in _without(_without(words, "--out"), "--fail-on") if word != "--resume")
    return shlex.join(["python", "-m", "fdgpriv.audit", *reproducing])


def _without(words: Sequence[str], option: str) -> list[str]:
    """The words without an option of one value."""
    remaining, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            remaining.append(word)
    return remaining


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
