"""The command line of the self test: two tables of reports, three of rules, and a figure."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdgpriv.cli.command_line import BadUsage, Parser, say
from fdgpriv.utils.defaults import EPSILON_DRAWS, METHOD
from fdgpriv.utils.seed_values import seed_value
from fdgpriv.utils.streams import lenient

if TYPE_CHECKING:  # what needs torch or scipy is imported in functions, after the arguments are checked
    from fdgpriv.selftest.alarms import Check, Rng
    from fdgpriv.verdicts.attack_scores import AttackScores

REPORTS = 200
SEEDS = 20
SHIPPED = Path(__file__).with_name("scores.zip")
MINIMA = {"runs": 1, "draws": 4, "reports": 1}


def parser() -> Parser:
    """The argument parser of the self test."""
    p = Parser(
        prog="fdgpriv selftest",
        description="Check the instrument: A/A reports and planted leaks through the rules that give verdicts, from stored\n"
        "scores of a default run, and the rules themselves on simulated draws.",
    )
    p.add_argument("--scores", type=Path, metavar="RUN", help="use the scores in this run's folder")
    p.add_argument("--full", action="store_true", help=f"train and attack anew with {SEEDS} seeds (an hour or more)")
    p.add_argument("--figure", type=Path, metavar="FILE", help="draw power against weight (.svg, .png, .pdf)")
    p.add_argument("--reports", type=int, metavar="N", help=f"A/A reports of each scope (default: {REPORTS})")
    p.add_argument(
        "--runs", type=int, help="of every rule (default: 1000 verdicts, 400 epsilons); fewer may fail by chance"
    )
    p.add_argument("--draws", type=int, help=f"T, per world and run of the epsilon checks (default: {EPSILON_DRAWS})")
    p.add_argument("--seed", type=int, help="0 by default")
    p.add_argument(
        "--export", nargs=2, type=Path, metavar=("RUN", "FILE"), help="write RUN's scores as they are shipped"
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables; returns 0 if all pass, 1 if one fails and 2 for bad usage."""
    try:
        options = _options(argv)
        if "export" in options:
            return _export(*options["export"])
        reports = _reports(options)
    except (ValueError, OSError) as error:
        say("selftest", str(error))
        return 2
    import numpy as np

    reports_rng, rules_rng = np.random.default_rng(options.get("seed", 0)).spawn(2)
    with lenient(), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        rules = pool.submit(_rules, options, rules_rng)
        passed = _of_reports(reports, options.get("reports", REPORTS), reports_rng, options.get("figure"))
        return 0 if _of_rules(*rules.result()) and passed else 1


def _options(argv: Sequence[str] | None) -> dict[str, Any]:
    """The options on the command line, in range."""
    options = parser().options(argv)
    for option, minimum in MINIMA.items():
        if options.get(option, minimum) < minimum:
            raise BadUsage(f"--{option}: want at least {minimum}, got {options[option]}")
    seed_value(options.get("seed", 0))
    if "scores" in options and "full" in options:
        raise BadUsage("--full: has no effect with --scores")
    if "export" in options and len(options) > 1:
        raise BadUsage(f"--{next(name for name in options if name != 'export')}: has no effect with --export")
    if "figure" in options and options["figure"].suffix not in (".svg", ".png", ".pdf"):
        raise BadUsage(f"--figure: want a file name that ends in .svg, .png or .pdf, got {options['figure']}")
    if not {"scores", "full", "export"} & options.keys() and not SHIPPED.is_file():
        raise BadUsage(
            f"want scores of a default run in {SHIPPED}, got no file; make it with --export RUN {SHIPPED.name}, or give "
            "--scores RUN or --full"
        )
    return options


def _reports(options: dict[str, Any]) -> "Sequence[dict[str, AttackScores]]":
    """The scores by report."""
    from fdgpriv.selftest import stored

    if "full" in options:
        from fdgpriv.api import run_audit
        from fdgpriv.utils import run_folder

        out = run_folder.free("selftest")
        run_audit(METHOD, seeds=range(SEEDS), out=out, progress=True, crossed=True)
        return stored.of_run(out)
    return stored.of_run(options["scores"]) if "scores" in options else stored.read(SHIPPED)


def _export(folder: Path, file: Path) -> int:
    from fdgpriv.results.finding import Results
    from fdgpriv.results.score_tables import RunKey
    from fdgpriv.selftest import stored

    run = Results.load(folder / "results.json").runs[0]
    stored.write(stored.of_run(folder), RunKey(run.method, run.dataset, run.target, run.seed, run.defense), file)
    return 0


def _of_reports(reports: "Sequence[dict[str, AttackScores]]", count: int, rng: "Rng", figure: Path | None) -> bool:
    """Prints the tables of A/A reports and planted leaks; whether all is as it should be."""
    from fdgpriv.selftest import tables
    from fdgpriv.selftest.false_leaks import SCOPES, NullReport, evaluations, false_leaks
    from fdgpriv.selftest.planted_leaks import passed, powers

    null_reports, of_first = {}, {}
    for scope in SCOPES:
        of_scope = [attacks for report in reports if (attacks := evaluations(report, scope))]
        if of_scope:
            null_reports[scope] = [NullReport.drawn(of_scope[i % len(of_scope)], rng) for i in range(count)]
            single = len(of_scope) == 1
            of_first[scope] = (
                null_reports[scope] if single else [NullReport.drawn(of_scope[0], rng) for _ in range(count)]
            )
    null = [false_leaks(of_scope, rng) for of_scope in null_reports.values()]
    print(tables.of_false_leaks(null), flush=True)
    planted = powers(of_first, rng)
    secrets = {
        evaluation.stored.secret for reports in of_first.values() for evaluation in reports[0].evaluations.values()
    }
    print(tables.of_powers(planted, secrets), flush=True)
    if figure is not None:
        tables.draw(planted, figure)
    all_secrets_pass = bool(planted) and all(passed(planted, power.secret) for power in planted)
    return all(scope.passed for scope in null) and all_secrets_pass


def _rules(options: dict[str, Any], rng: "Rng") -> "tuple[list[Check], list[Check], list[Check]]":
    """The checks of verdicts, of bounds on epsilon, and of violations."""
    from fdgpriv.selftest import alarms, epsilon_alarms

    runs = options.get("runs")
    verdicts = alarms.verdict_checks(runs or alarms.RUNS, rng)
    draws = options.get("draws", EPSILON_DRAWS)
    return verdicts, *epsilon_alarms.epsilon_checks(runs or epsilon_alarms.RUNS, draws, rng)


def _of_rules(verdicts: "list[Check]", epsilons: "list[Check]", violations: "list[Check]") -> bool:
    """Prints the tables of the rules on simulated draws; whether all is as it should be."""
    from fdgpriv.selftest import tables

    print(tables.of_verdicts(verdicts))
    print(tables.of_epsilons(epsilons))
    print(tables.of_violations(violations))
    return all(check.passed for check in [*verdicts, *epsilons, *violations])
