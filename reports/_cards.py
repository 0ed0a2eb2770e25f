"""One attack as a report shows it: chart, test, figures by the number of images, all metrics, pictures."""

from dataclasses import dataclass

from fdgpriv.results.attack_finding import AttackFinding

from . import _attack_tables
from ._dots import Dots, dots
from ._evidence import bound, margin, units
from ._lines import Lines, curve
from ._numbers import measured, p_value, plain
from ._table import Table
from ._words import artifact, joined, metric, role, spoken

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Picture:
    """A file of the run and what it shows."""

    file: str
    caption: str


@dataclass(frozen=True)
class Card:
    """One attack in full."""

    name: str
    how: str
    finding: AttackFinding
    facts: Pairs
    more: Pairs
    dots: Dots | None
    metrics: Table
    curve: Lines | None
    curve_table: Table | None
    rounds_table: Table | None
    pictures: tuple[Picture, ...]


def card(finding: AttackFinding, defended: bool) -> Card:
    """The finding of a run with or without a defense, ready to be set in type."""
    caption = f"{spoken(finding.attack)} by {role(finding.threat.role)} on {artifact(finding)}"
    return Card(
        name=spoken(finding.attack),
        how=f"by {role(finding.threat.role)}, on {artifact(finding)}",
        finding=finding,
        facts=_facts(finding),
        more=_more(finding, defended),
        dots=dots(finding),
        metrics=_attack_tables.metrics(finding),
        curve=curve(finding),
        curve_table=_attack_tables.curve(finding) if finding.curve else None,
        rounds_table=_attack_tables.rounds(finding) if finding.rounds else None,
        pictures=tuple(Picture(file, f"Truth, reconstruction and controls: {caption}") for file in finding.figures),
    )


def _facts(finding: AttackFinding) -> Pairs:
    threat, line, domain = finding.threat, finding.leakage, finding.leakage_domain
    return _said(
        ("Adversary", f"{role(threat.role)}, holding {threat.auxiliary}"),
        ("Units", f"{units(finding)}; {finding.n} scored" if finding.units else ""),
        ("Client line", _line(line.p, line.p_corrected)),
        ("Domain line", _line(domain.p, domain.p_corrected) if domain else ""),
        ("Lead over every control", f"{margin(finding)}, {metric(finding.headline)}" if line.margin else ""),
        ("Positive control", _positive(finding)),
        ("Excluded", bound(finding)),
        ("Why", finding.reason or ""),
        ("Why, domain line", finding.reason_domain or "" if finding.reason_domain != finding.reason else ""),
    )


def _more(finding: AttackFinding, defended: bool) -> Pairs:
    adaptive = {True: "yes, trained on defended artifacts", False: "no", None: ""}[finding.adaptive]
    domain = finding.leakage_domain
    return _said(
        ("Capabilities", joined([spoken(name) for name in finding.threat.capabilities])),
        ("Adaptive", adaptive if defended else "no defense to adapt to"),
        ("Client line against", joined([spoken(name) for name in finding.leakage.against])),
        ("Domain line against", joined([spoken(name) for name in domain.against]) if domain else ""),
        ("Share of the way to the upper bound", _share(finding)),
    )


def _said(*facts: tuple[str, str]) -> Pairs:
    return tuple((name, said) for name, said in facts if said)


def _line(p: float | None, corrected: float | None) -> str:
    return "" if p is None else f"p {p_value(p)}, corrected {p_value(corrected)}"


def _share(finding: AttackFinding) -> str:
    line = finding.leakage
    if line.value is None:
        return f"not available: {line.reason}" if line.reason else ""
    ends = f" [{plain(line.ci95[0])}, {plain(line.ci95[1])}]" if line.ci95 else ""
    return f"{plain(line.value)}{ends} (0: the strongest control, 1: the upper bound)"


def _positive(finding: AttackFinding) -> str:
    control = finding.positive_control
    if control is None:
        return ""
    word = {True: "succeeds", False: "fails", None: "not decided"}[control.succeeded]
    return f"{word}: {metric(finding.headline)} {measured(control.value)}, corrected p {p_value(control.p_corrected)}"
