"""python -m fdgpriv.audit: train a federation, attack what it shared, judge, report."""

import errno
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv import data
from fdgpriv.cli.catalogue import summary
from fdgpriv.cli.command_line import BadUsage, Parser, once, say
from fdgpriv.cli.options import DEVICES, ENGINES, PRESETS, Options, check_effects, settings
from fdgpriv.federation.setup import KEEP
from fdgpriv.models.names import BACKBONES
from fdgpriv.registry import names_in
from fdgpriv.threat import THREATS
from fdgpriv.utils import run_folder
from fdgpriv.utils.defaults import EXAMPLES
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.streams import lenient

if TYPE_CHECKING:  # what computes is imported where it is wanted: words are checked before torch is imported
    from fdgpriv.results.finding import Results

FAILED, USAGE, INTERRUPTED = 1, 2, 3
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk takes no more


def parser() -> Parser:
    """The command line of the audit; the values are named as the fields of `Options`."""
    p = Parser(
        prog="fdgpriv audit",
        description="Train a federation, attack what it shared, judge, report.\nAn option that takes several values may "
        "be repeated: --seed 0 --seed 1 is --seed 0 1.",
        epilog=EXAMPLES,
    )

    g = p.add_argument_group("what is trained")
    g.add_argument("--method", nargs="+", dest="methods", metavar="SPEC", help="name or name:field=value,...; all")
    g.add_argument("--dataset", metavar="NAME", help=f"{', '.join(data.names())}; the first is embedded")
    g.add_argument("--data-root", type=Path, metavar="DIR", help="where a folder dataset lies")
    g.add_argument("--image-size", type=int, metavar="PX", help="side of a folder dataset's images")
    g.add_argument("--target", nargs="+", dest="targets", metavar="DOMAIN", help="domains left out, or all")
    g.add_argument("--preset", metavar="NAME", help=f"{', '.join(PRESETS)}; default where none is named")
    g.add_argument(
        "--clients",
        type=int,
        metavar="N",
        help="of every method; 15 by default, the paper's own with --preset paper",
    )
    g.add_argument("--partition", metavar="KIND", help="single (the default), dirichlet:A, heterogeneity:L, domains:D")
    g.add_argument("--set", nargs="+", dest="settings", metavar="FIELD=VALUE", help="of every method")
    g.add_argument("--backbone", metavar="NAME", help=", ".join(BACKBONES))
    g.add_argument("--weights", type=Path, metavar="DIR", help="where ImageNet weights lie")
    g.add_argument("--seed", nargs="+", type=int, dest="seeds", metavar="S", help="several give mean and interval")

    g = p.add_argument_group("how it is attacked and defended")
    g.add_argument(
        "--attack", nargs="+", dest="attacks", metavar="SPEC", help="name or name:field=value,...; all; none"
    )
    g.add_argument("--threat", nargs="+", dest="threats", metavar="ROLE", help=", ".join(THREATS))
    g.add_argument("--defense", nargs="+", dest="defenses", metavar="SPEC", help="each is one row of the frontier")

    g = p.add_argument_group("artifacts made elsewhere")
    g.add_argument("--artifact", nargs="+", type=Path, metavar="FILE", help="audit these styles; trains nothing")
    g.add_argument("--groups", nargs="+", metavar="A+B", help="how many clients of each domain, in order")

    g = p.add_argument_group("where it runs and what it leaves")
    g.add_argument("--engine", metavar="NAME", help=", ".join(ENGINES))
    g.add_argument("--device", metavar="NAME", help=", ".join(DEVICES))
    g.add_argument("--keep", metavar="WHICH", help=f"model states in the transcript: {', '.join(KEEP)}")
    g.add_argument("--out", type=Path, metavar="DIR", help="a new folder; runs/... by default")
    g.add_argument("--resume", action="store_true", help="go on with what lies in --out")
    g.add_argument("--list", action="store_true", help="list the parts there are")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 a run failed or the disk takes no more, 2 bad usage, 3 interrupted; a fault of ours is raised."""
    with lenient():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(argv: list[str]) -> int:
    try:
        given = vars(parser().parse_args(argv))
        check_effects(given)
        if "list" in given:
            print(listing())
            return 0
        if "out" in given:
            check_name(str(given["out"]), "--out")
            with suppress(OSError):  # a path that is too long is told of when its files are known
                run_folder.check(given["out"], "resume" in given)
        return (_audit_artifact if "artifact" in given else _audit)(given, _command(argv))
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            where = error.filename or "the folder of the run"
            _say(f"{error.strerror}: {where}; make room and go on with --out FOLDER --resume: what is finished is kept")
            return FAILED
        _say(str(error))
        return USAGE
    except KeyboardInterrupt:
        _say("interrupted; what is finished is kept: --out FOLDER --resume goes on")
        return INTERRUPTED


def _say(text: str) -> None:
    say("audit", text)


def listing() -> str:
    """Every part by role, one a line with its first sentence."""
    lines = []
    for folder in ("methods", "attacks", "defenses", "reports"):
        lines.append(f"{folder}:")
        lines += [f"  {name:18} {summary(folder, name)}" for name in names_in(folder)]
    lines.append("threat models:")
    lines += [f"  {threat.role:18} {threat.summary}" for threat in THREATS.values()]
    return "\n".join(lines)


def _audit(given: dict[str, Any], command: str) -> int:
    if (engine := given.get("engine", ENGINES[0])) not in ENGINES:
        raise BadUsage(f"--engine: want one of {', '.join(ENGINES)}; got {engine!r}")
    options = _options(given)
    options.check()
    from fdgpriv.api import audit

    results, out = audit(options, given.get("out"), resume="resume" in given, command=command)
    _print(results, out)
    if results.interrupted:
        _say(f"interrupted; to go on: add --out {out} --resume")
        return INTERRUPTED
    if failed := [run for run in results.runs if run.failed is not None]:
        cells = "; ".join(f"{run.method}, target {run.target}, seed {run.seed}, {run.defense}" for run in failed)
        _say(f"{len(failed)} of {len(results.runs)} runs failed: {cells}; to try them again: add --out {out} --resume")
        return FAILED
    return 0


def _audit_artifact(given: dict[str, Any], command: str) -> int:
    from fdgpriv.external import styles as external_styles

    once("--artifact", given["artifact"])
    groups, (seed, *more) = "+".join(given.get("groups", ())), given.get("seeds", [0])
    sizes = groups.split("+") if "groups" in given else []
    if not all(size.isdecimal() and len(size) < 10 for size in sizes):
        raise BadUsage(f"--groups: want sizes joined by +, for example 47+53; got {groups!r}")
    if more or seed < 0:
        raise BadUsage(
            f"--seed: want one number of at least 0 with --artifact, got {' '.join(map(str, [seed, *more]))}"
        )
    styles = external_styles.read(given["artifact"], [int(size) for size in sizes])
    out = given["out"] if "out" in given else run_folder.free(f"artifact-{styles.name}")
    from fdgpriv.api import write
    from fdgpriv.external import audit as external_audit

    with run_folder.new(out):
        results = external_audit.audit(styles, seed, command)
        write(results, out)
    _print(results, out)
    return 0


def _print(results: "Results", out: Path) -> None:
    from fdgpriv.results.summary import verdicts

    print(verdicts(results))
    print(f"report: {out / 'report.html'}")


def _options(given: dict[str, Any]) -> Options:
    """The options of an audit; what was not given has the default of `Options`."""
    named: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    known = {field.name for field in fields(Options)}
    if "settings" in given:
        named["settings"] = settings(given["settings"])
    return Options(**{name: value for name, value in named.items() if name in known})


def _command(words: Sequence[str]) -> str:
    """The command that does it again, without the folders of this machine."""
    kept, skip = [], False
    for word in words:
        if skip or word == "--resume":
            skip = False
        elif word in ("--out",):
            skip = True
        elif not word.startswith("--out="):
            kept.append(word)
    return " ".join(["python -m fdgpriv.audit", *kept])


if __name__ == "__main__":
    sys.exit(main())
