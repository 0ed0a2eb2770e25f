"""One attack's figures set in order: its strongest control, and the sentence that a verdict rests on."""

from fdgpriv.results.attack_finding import AttackFinding, Leakage
from fdgpriv.statistics.measured import Measured

from ._numbers import decimals, interval, measured, number, p_value
from ._words import artifact, metric, role, spoken


def headline(finding: AttackFinding) -> Measured | None:
    """The headline figure, where there is one."""
    return finding.metrics.get(finding.headline)


def lower_leaks(finding: AttackFinding) -> bool:
    """Whether a smaller headline figure is closer to the truth."""
    figure = headline(finding)
    return figure is not None and figure.direction in ("lower_leaks", "lower_better")


def controls(finding: AttackFinding) -> list[tuple[str, Measured]]:
    """Each control's headline figure, strongest first, those without a value last."""
    found = [(name, table[finding.headline]) for name, table in finding.controls.items() if finding.headline in table]
    sign = 1.0 if lower_leaks(finding) else -1.0
    return sorted(found, key=lambda pair: (pair[1].value is None, sign * (pair[1].value or 0.0), pair[0]))


def by_domain(finding: AttackFinding) -> bool:
    """Whether the domain line decides: it alone is a leak, or it alone applies."""
    if finding.leakage_domain is None or finding.verdict == "leak":
        return False
    return finding.verdict_domain == "leak" or finding.verdict == "not_applicable"


def deciding(finding: AttackFinding) -> Leakage:
    """The numbers of the line that decides."""
    return finding.leakage_domain if finding.leakage_domain and by_domain(finding) else finding.leakage


def strongest(finding: AttackFinding) -> tuple[str, Measured] | None:
    """The control of the deciding line that comes closest to the truth, or chance where no control has a value."""
    against = deciding(finding).against
    known = [pair for pair in controls(finding) if pair[1].value is not None]
    found = [pair for pair in known if pair[0] in against] or known
    if found:
        return found[0]
    return ("chance", finding.chance) if finding.chance is not None and finding.chance.value is not None else None


def versus(finding: AttackFinding) -> str:
    """`PSNR, dB 20.2 [19.8, 20.6] against 13.5 [13.2, 13.8] for the best control (mean image)`."""
    figure, best = headline(finding), strongest(finding)
    if figure is None:
        return ""
    places = decimals([figure, *([best[1]] if best else [])])
    text = f"{metric(finding.headline)} {measured(figure, places)}"
    if best is None:
        return text
    name = "by chance" if best[0] == "chance" else f"for the best control ({spoken(best[0])})"
    return f"{text} against {measured(best[1], places)} {name}"


def units(finding: AttackFinding) -> str:
    """`24 clients (12 federated, 12 shadows)`."""
    if finding.units is None:
        return "–"
    kind = finding.units.kind + ("" if finding.units.n == 1 else "s")
    parts = [
        f"{count} {name}"
        for count, name in ((finding.units.federated, "federated"), (finding.units.shadows, "shadows"))
        if count
    ]
    return f"{finding.units.n} {kind}" + (f", {' and '.join(parts)}" if parts else "")


def sentence(finding: AttackFinding) -> str:
    """Who read what, how well, against what, how sure."""
    line = deciding(finding)
    sure = [f"corrected p {p_value(line.p_corrected)}"] if line.p_corrected is not None else []
    sure += [units(finding)] if finding.units else []
    said = f"{spoken(finding.attack)} by {role(finding.threat.role)} on {artifact(finding)}"
    said += f": {versus(finding)}" if versus(finding) else ""
    return f"{said} ({'; '.join(sure)})." if sure else f"{said}."


def margin(finding: AttackFinding) -> str:
    """What the test bounds: how far at least, and at most, the attack leads every control."""
    ends = finding.leakage.margin
    if ends is None:
        return "–"
    places = decimals([Measured(value=0.0, ci95=ends, direction="neutral")])
    return interval(ends, places)


def bound(finding: AttackFinding) -> str:
    """What a "no leak found" excludes, in the unit of the headline metric."""
    ends = finding.leakage.margin
    if ends is None or finding.verdict != "no_leak_found":
        return ""
    places = decimals([Measured(value=0.0, ci95=ends, direction="neutral")])
    return f"A lead over the controls of more than {number(ends[1], places)} ({metric(finding.headline)}) is excluded."
