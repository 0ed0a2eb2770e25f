"""python -m fdgpriv.audit: train a federation, attack what it shared, judge, report."""

import argparse
import errno
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fdgpriv import run_folder
from fdgpriv._contract import write_text
from fdgpriv.finding import Results
from fdgpriv.names import check_files, check_name
from fdgpriv.plan import PRESETS, Plan, slug
from fdgpriv.progress import Teller
from fdgpriv.roles import Attack, Defense, Method, Report
from fdgpriv.streams import lenient
from fdgpriv.threat import THREATS
from fdgpriv.told import verdicts

FAULT, USAGE, INTERRUPTED = 1, 2, 3
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk takes no more


class BadUsage(ValueError):
    """What the user asked for cannot be: one line says what was wanted and what came."""


class Parser(argparse.ArgumentParser):
    """argparse, with one line for an error."""

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message)


def parser() -> Parser:
    """The command line of DESIGN section 4."""
    p = Parser(prog="fdgpriv audit", description="Train a federation, attack what it shared, judge, report.")
    p.add_argument(
        "--method", nargs="+", default=["stablefdg"], metavar="SPEC", help="name or name:field=value,...; all"
    )
    p.add_argument("--dataset", default="digits", help="digits (embedded), pacs, or folder")
    p.add_argument("--data-root", type=Path, metavar="DIR", help="where a folder dataset lies")
    p.add_argument("--image-size", type=int, metavar="PX", help="side of a folder dataset's images")
    p.add_argument("--target", nargs="+", default=[], metavar="DOMAIN", help="domains left out, or all")
    p.add_argument("--preset", default="default", help=", ".join(PRESETS))
    p.add_argument(
        "--clients", type=int, metavar="N", help="of every method; 15 by default, the paper's own with --preset paper"
    )
    p.add_argument("--partition", metavar="KIND", help="single (the default), dirichlet:A, heterogeneity:L, domains:D")
    p.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", dest="settings", help="of every method")
    p.add_argument(
        "--attack", nargs="+", default=["all"], metavar="SPEC", help="name or name:field=value,...; all; none"
    )
    p.add_argument("--threat", nargs="+", default=[], metavar="ROLE", help=", ".join(THREATS))
    p.add_argument("--defense", nargs="+", default=["none"], metavar="SPEC", help="each is one row of the frontier")
    p.add_argument("--seed", nargs="+", type=int, default=[0], metavar="S")
    p.add_argument("--engine", default="local", help="local")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda")
    p.add_argument("--backbone", metavar="NAME", help="small_resnet, resnet18, resnet50, alexnet, densenet121")
    p.add_argument("--weights", type=Path, metavar="DIR", help="where ImageNet weights lie")
    p.add_argument("--keep", default="ends", help="model states in the transcript: ends, all, small")
    p.add_argument(
        "--artifact", nargs="+", type=Path, metavar="FILE", help="audit styles made elsewhere; trains nothing"
    )
    p.add_argument("--groups", metavar="A+B", help="with --artifact: how many clients of each domain, in order")
    p.add_argument("--out", type=Path, metavar="DIR", help="a new folder; runs/... by default")
    p.add_argument("--resume", action="store_true", help="go on with what lies in --out")
    p.add_argument("--list", action="store_true", help="list the parts there are")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 runs that failed or a disk that takes no more, 2 bad usage, 3 interrupted.

    A fault of ours is raised.
    """
    with lenient():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    try:
        args = parser().parse_args(argv)
        if args.list:
            print(listing())
            return 0
        return _audit(args, list(sys.argv[1:] if argv is None else argv))
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            where = error.filename or "the folder of the run"
            _say(f"{error.strerror}: {where}; make room and go on with --out FOLDER --resume: what is finished is kept")
            return FAULT
        _say(str(error))
        return USAGE
    except KeyboardInterrupt:
        _say("interrupted; what is finished is kept: --out FOLDER --resume goes on")
        return INTERRUPTED


def _say(text: str) -> None:
    """One line on stderr; what file names may hold besides letters is written as an escape."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print(f"fdgpriv audit: {line}", file=sys.stderr)


def listing() -> str:
    """Every part by role, one a line with its first sentence."""
    lines = []
    for role in (Method, Attack, Defense, Report):
        lines.append(f"{role.folder}:")
        for name in role.names():
            said = (sys.modules[role.named(name).__module__].__doc__ or "").splitlines()[0]
            lines.append(f"  {name:18} {said}")
    lines.append("threat models:")
    lines += [f"  {threat.role:18} {threat.summary}" for threat in THREATS.values()]
    return "\n".join(lines)


def _audit(args: argparse.Namespace, words: list[str]) -> int:
    if args.out is not None:
        check_name(str(args.out), "--out")
    if args.artifact:
        return _audit_artifact(args, words)
    if args.groups:
        raise BadUsage("--groups: want --artifact beside it")
    if args.engine != "local":
        raise BadUsage(f"--engine: want local; got {args.engine!r}")
    plan = _plan(args).checked()
    if args.resume and args.out is None:
        raise BadUsage("--resume: want --out, the folder to go on in")
    with Teller() as teller:
        dataset, plan = plan.load()
        named = f"{'+'.join(map(slug, plan.methods))}-{plan.dataset}-{'+'.join(map(slug, plan.targets))}-{plan.preset}"
        out = args.out if args.out is not None else run_folder.free(named)
        from fdgpriv.conduct import Conductor

        conductor = Conductor(plan, dataset, out, teller)
        check_files(out, conductor.files())
        plan.rehearse(dataset)
        config = json.dumps(plan.as_config(len(dataset.domains) - 1), indent=1, sort_keys=True) + "\n"
        with run_folder.resumed(out, config) if args.resume else run_folder.new(out, config):
            teller.say(f"{plan.dataset}: {sum(map(len, dataset.domains)):,} images in {len(dataset.domains)} domains")
            results = conductor.run(_command(words))
            paths = write(results, out)
        teller.say(f"wrote {', '.join(str(path) for path in paths)}")
    print(verdicts(results))
    print(f"report: {out / 'report.html'}")
    if results.interrupted:
        _say(f"interrupted; to go on: add --out {out} --resume")
        return INTERRUPTED
    if failed := [run for run in results.runs if run.failed is not None]:
        cells = "; ".join(f"{run.method}, target {run.target}, seed {run.seed}, {run.defense}" for run in failed)
        _say(f"{len(failed)} of {len(results.runs)} runs failed: {cells}; to try them again: add --out {out} --resume")
        return FAULT
    return 0


def _audit_artifact(args: argparse.Namespace, words: list[str]) -> int:
    from fdgpriv import foreign, foreign_audit

    sizes = (args.groups or "").split("+") if args.groups else []
    if not all(size.isdecimal() and len(size) < 10 for size in sizes):
        raise BadUsage(f"--groups: want sizes joined by +, for example 47+53; got {args.groups!r}")
    styles = foreign.read(args.artifact, [int(size) for size in sizes])
    out = args.out if args.out is not None else run_folder.free(f"artifact-{styles.name}")
    with run_folder.new(out):
        results = foreign_audit.audit(styles, args.seed[0], _command(words))
        write(results, out)
    print(verdicts(results))
    print(f"report: {out / 'report.html'}")
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    return Plan(
        methods=tuple(args.method),
        dataset=args.dataset,
        data_root=args.data_root,
        image_size=args.image_size,
        targets=tuple(args.target),
        preset=args.preset,
        clients=args.clients,
        partition=args.partition,
        settings=_settings(args.settings),
        attacks=tuple(args.attack),
        threats=tuple(args.threat),
        defenses=tuple(args.defense),
        seeds=tuple(args.seed),
        device=args.device,
        backbone=args.backbone,
        weights=args.weights,
        keep=args.keep,
    )


def _settings(items: Sequence[str]) -> dict[str, str]:
    settings = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise BadUsage(f"--set: want FIELD=VALUE, got {item!r}")
        settings[name] = value
    return settings


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


def write(results: Results, out: Path) -> list[Path]:
    """results.json and every report, each whole or not at all."""
    results.save(out / "results.json")
    paths = [out / "results.json"]
    for name in Report.names():
        report = Report.named(name)()
        path = out / report.filename
        write_text(path, report.render(results, out))
        paths.append(path)
    return paths


if __name__ == "__main__":
    sys.exit(main())
