"""The tables of the self test in Markdown, and its figure."""

from collections.abc import Collection, Sequence
from pathlib import Path

from fdgpriv.selftest.alarms import Check
from fdgpriv.selftest.false_leaks import FalseLeaks
from fdgpriv.selftest.planted_leaks import WITHIN, Power, passed
from fdgpriv.statistics.questions import FALSE_DISCOVERIES
from fdgpriv.statistics.resolution import POWER


def of_false_leaks(scopes: Sequence[FalseLeaks]) -> str:
    """A/A reports, and reports in which half of the questions leak, a row for each scope."""
    rows = [
        f"| {row.scope} | {row.questions} | {row.alarms} of {row.reports} | at most {row.allowed} | {row.planted} "
        f"| {row.leaks_found:.1f} | {row.false_share:.3f} | at most {FALSE_DISCOVERIES} | {_pass_or_fail(row.passed)} |"
        for row in scopes
    ]
    head = "| scope | questions | A/A reports with a leak | wanted | true leaks | found | share of false leaks | wanted | |"
    return "\n".join([head, "|---" * 9 + "|", *rows, ""])


def of_powers(powers: Sequence[Power], secrets: Collection[str]) -> str:
    """Planted leaks whose true lead is the printed resolution, and the secrets without any."""
    rows = [
        f"| {row.secret} | {row.attack} | {row.scope} | {row.weight:.2f} | {row.lead:.3g} | {row.found_rates[row.at]:.2f} "
        f"| {POWER - WITHIN:.1f} to {POWER + WITHIN:.1f} | {_rates(row.found_rates)} | {_rates(row.leaks)} "
        f"| {_outcome(row, powers)} |"
        for row in powers
    ]
    head = "| secret | attack | scope | weight | lead = resolution | P(p <= 0.025) | wanted | by weight | P(LEAK) by weight | |"
    missing = ", ".join(sorted(set(secrets) - {row.secret for row in powers}))
    why = "no attack has a positive control that succeeds and reaches the printed resolution"
    return "\n".join(
        [head, "|---" * 10 + "|", *rows, *(["", f"Not planted, for {why}: {missing}."] if missing else []), ""]
    )


def of_verdicts(checks: Sequence[Check]) -> str:
    """The verdict rule on simulated scores."""
    return _of_checks("check", "false alarms", checks)


def of_epsilons(checks: Sequence[Check]) -> str:
    """Lower bounds on a known epsilon."""
    return _of_checks("lower bound on epsilon", "runs above the truth", checks)


def of_violations(checks: Sequence[Check]) -> str:
    """Noise that is right for the claimed epsilon, and half of it."""
    return _of_checks("Gaussian noise, 100,000 draws of each world", "runs called VIOLATION", checks)


def draw(powers: Sequence[Power], path: Path) -> None:
    """Draws P(p <= 0.025) and P(LEAK) against the weight, one curve for each secret."""
    from fdgpriv.utils.drawing import Figure, default_style

    with default_style():
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        for axes, name, title in zip(
            figure.subplots(1, 2, sharey=True),
            ("found_rates", "leaks"),
            ("P(p <= 0.025)", "P(LEAK) in a whole report"),
            strict=True,
        ):
            axes.axhspan(POWER - WITHIN, POWER + WITHIN, color="0.93")
            for power in powers:
                (line,) = axes.plot(power.weights, getattr(power, name), label=f"{power.secret} ({power.attack})")
                axes.plot(power.weight, getattr(power, name)[power.at], "o", color=line.get_color())
            axes.set(title=title, xlabel="weight of the planted leak", ylim=(-0.03, 1.03))
        axes.legend(title="dot: lead = resolution", fontsize="small")
        figure.savefig(path)


def _of_checks(check: str, counted: str, checks: Sequence[Check]) -> str:
    rows = [
        f"| {row.name} | {row.alarms} of {row.runs} | {'more than' if row.mistaken else 'at most'} {row.allowed} "
        f"| {_pass_or_fail(row.passed)} |"
        for row in checks
    ]
    return "\n".join([f"| {check} | {counted} | wanted | |", "|---|---|---|---|", *rows, ""])


def _rates(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def _outcome(power: Power, powers: Sequence[Power]) -> str:
    """The outcome of one attack; a secret fails if none of its attacks passes."""
    if power.calibrated and power.rises:
        return "pass"
    return "next tried" if passed(powers, power.secret) else "FAIL"


def _pass_or_fail(passed: bool) -> str:
    return "pass" if passed else "FAIL"
