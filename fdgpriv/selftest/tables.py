"""The tables of the self test in Markdown, and its figure."""

from collections.abc import Collection, Sequence
from pathlib import Path

from fdgpriv.selftest.alarms import Check
from fdgpriv.selftest.false_leaks import FalseLeaks
from fdgpriv.selftest.planted_leaks import WITHIN, Power, passed
from fdgpriv.statistics.questions import FALSE_DISCOVERIES
from fdgpriv.statistics.resolution import POWER


def of_false_leaks(found: Sequence[FalseLeaks]) -> str:
    """A/A reports, and those where half of the questions leak."""
    rows = [
        f"| {one.scope} | {one.questions} | {one.alarms} of {one.reports} | at most {one.allowed} | {one.planted} "
        f"| {one.found:.1f} | {one.false_share:.3f} | at most {FALSE_DISCOVERIES} | {_said(one.passed)} |"
        for one in found
    ]
    head = "| scope | questions | A/A reports with a leak | wanted | true leaks | found | share of false leaks | wanted | |"
    return "\n".join([head, "|---" * 9 + "|", *rows, ""])


def of_powers(found: Sequence[Power], secrets: Collection[str]) -> str:
    """Planted leaks whose true lead is the printed resolution, and the secrets of which there is none."""
    rows = [
        f"| {one.secret} | {one.attack} | {one.scope} | {one.weight:.2f} | {one.lead:.3g} | {one.found[one.at]:.2f} "
        f"| {POWER - WITHIN:.1f} to {POWER + WITHIN:.1f} | {_rising(one.found)} | {_rising(one.leaks)} "
        f"| {_outcome(one, found)} |"
        for one in found
    ]
    head = "| secret | attack | scope | weight | lead = resolution | P(p <= 0.025) | wanted | by weight | P(LEAK) by weight | |"
    missing = ", ".join(sorted(set(secrets) - {one.secret for one in found}))
    why = "no attack has a positive control that succeeds and reaches the printed resolution"
    return "\n".join(
        [head, "|---" * 10 + "|", *rows, *(["", f"Not planted, for {why}: {missing}."] if missing else []), ""]
    )


def of_verdicts(found: Sequence[Check]) -> str:
    """The verdict rule on simulated scores."""
    return _of_checks("check", "false alarms", found)


def of_epsilons(found: Sequence[Check]) -> str:
    """Lower bounds on a known epsilon."""
    return _of_checks("lower bound on epsilon", "runs above the truth", found)


def of_violations(found: Sequence[Check]) -> str:
    """Noise that is right for the claimed epsilon, and half of it."""
    return _of_checks("Gaussian noise, 100,000 draws of each world", "runs called VIOLATION", found)


def draw(found: Sequence[Power], path: Path) -> None:
    """Draws P(p <= 0.025) and P(LEAK) against the weight, one curve for each secret."""
    from fdgpriv.utils.drawing import Figure, default_style

    with default_style():
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        for axes, name, title in zip(
            figure.subplots(1, 2, sharey=True),
            ("found", "leaks"),
            ("P(p <= 0.025)", "P(LEAK) in a whole report"),
            strict=True,
        ):
            axes.axhspan(POWER - WITHIN, POWER + WITHIN, color="0.93")
            for one in found:
                (line,) = axes.plot(one.weights, getattr(one, name), label=f"{one.secret} ({one.attack})")
                axes.plot(one.weight, getattr(one, name)[one.at], "o", color=line.get_color())
            axes.set(title=title, xlabel="weight of the planted leak", ylim=(-0.03, 1.03))
        axes.legend(title="dot: lead = resolution", fontsize="small")
        figure.savefig(path)


def _of_checks(what: str, counted: str, found: Sequence[Check]) -> str:
    rows = [
        f"| {c.name} | {c.alarms} of {c.runs} | {'more than' if c.mistaken else 'at most'} {c.allowed} | {_said(c.passed)} |"
        for c in found
    ]
    return "\n".join([f"| {what} | {counted} | wanted | |", "|---|---|---|---|", *rows, ""])


def _rising(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def _outcome(one: Power, found: Sequence[Power]) -> str:
    """Of one attack; that of a secret is a failure where none of its attacks passes."""
    if one.calibrated and one.rises:
        return "pass"
    return "next tried" if passed(found, one.secret) else "FAIL"


def _said(kept: bool) -> str:
    return "pass" if kept else "FAIL"
