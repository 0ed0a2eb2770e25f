"""The tables of the attacks: all at a glance, those that do not apply, one attack's metrics, its curves."""

from collections.abc import Mapping, Sequence

from fdgpriv.results.attack_finding import AttackFinding, Leakage, RoundsPoint
from fdgpriv.statistics.measured import Measured

from ._evidence import by_domain, headline, strongest
from ._numbers import decimals, measured, p_value
from ._table import Cell, Table, count, number, text, verdict
from ._words import artifact, metric, role, spoken


def glance(attacks: Sequence[AttackFinding], note: str) -> Table:
    """Every attack that applied, one line each, under a note."""
    heads = ("Attack", "Its figure", "Strongest control", "Client", "Domain", "Units")
    return Table(heads, tuple(_line(finding) for finding in attacks), note)


def _line(finding: AttackFinding) -> tuple[Cell, ...]:
    best = strongest(finding)
    told = [figure for figure in (headline(finding), best[1] if best else None) if figure is not None]
    places = decimals(told)
    return (
        text(spoken(finding.attack), f"{role(finding.threat.role)}, on {artifact(finding)}"),
        number(measured(headline(finding), places), metric(finding.headline)),
        number(measured(best[1], places), spoken(best[0]) + (", domain line" if by_domain(finding) else ""))
        if best
        else text("–"),
        verdict(finding.verdict, _corrected(finding.verdict, finding.leakage)),
        verdict(finding.verdict_domain, _corrected(finding.verdict_domain, finding.leakage_domain)),
        text(f"{finding.units.n} {finding.units.kind}s" if finding.units else "–"),
    )


def _corrected(word: str, line: Leakage | None) -> str:
    known = line is not None and line.p_corrected is not None and word != "not_applicable"
    return f"corrected p {p_value(line.p_corrected)}" if line is not None and known else ""


def refusals(attacks: Sequence[AttackFinding]) -> Table:
    """The attacks that do not apply, each with its reason."""
    return Table(
        ("Attack", "Would read", "Adversary", "Why it does not apply"),
        tuple(
            (text(spoken(a.attack)), text(artifact(a)), text(role(a.threat.role)), text(a.reason or "–"))
            for a in attacks
        ),
    )


def metrics(finding: AttackFinding) -> Table:
    """All metrics of one attack, one to a column: the attack, each control, each bound."""
    names = [finding.headline] if finding.headline in finding.metrics else []
    names += [name for name in finding.metrics if name != finding.headline]
    lines: list[tuple[str, Mapping[str, Measured]]] = [("the attack", finding.metrics)]
    lines += [(spoken(name), table) for name, table in finding.controls.items()]
    lines += [(f"{spoken(name)} (upper bound)", table) for name, table in finding.upper_bounds.items()]
    columns = {name: [table.get(name) for _, table in lines] for name in names}
    places = {name: decimals([figure for figure in column if figure]) for name, column in columns.items()}
    body = tuple(
        (text(label), *(number(measured(columns[name][i], places[name])) for name in names))
        for i, (label, _) in enumerate(lines)
    )
    return Table(("", *(_column(name, finding.metrics[name]) for name in names)), body if names else ())


def _column(name: str, figure: Measured) -> str:
    way = {"higher_leaks": ", higher is closer", "lower_leaks": ", lower is closer"}.get(
        figure.direction, ", says nothing of leakage"
    )
    return f"{metric(name)}{way}" + (f", n {figure.n}" if figure.n else "")


def curve(finding: AttackFinding) -> Table:
    """The curve over the number of images, in figures."""
    names = list(dict.fromkeys(name for point in finding.curve for name in point.controls))
    figures = [figure for point in finding.curve for figure in (point.value, *point.controls.values())]
    places = decimals(figures)
    return Table(
        ("Images", "Units", spoken(finding.attack).capitalize(), *(spoken(name).capitalize() for name in names)),
        tuple(
            (
                count("all" if point.images is None else str(point.images)),
                count(str(point.units)),
                number(measured(point.value, places)),
                *(number(measured(point.controls.get(name), places)) for name in names),
            )
            for point in finding.curve
        ),
        note=metric(finding.headline),
    )


def rounds(finding: AttackFinding) -> Table:
    """What several rounds of one client's artifacts tell together, in figures."""
    figures = [figure for point in finding.rounds for figure in (point.value, point.rise) if figure is not None]
    places = decimals(figures)
    return Table(
        ("Rounds", "Images", "Units", "Figure", "Over one round", "p, that it rises", "Against every control"),
        tuple(
            (
                count(str(point.rounds)),
                count("all" if point.images is None else str(point.images)),
                count(str(point.units)),
                number(measured(point.value, places)),
                number(measured(point.rise, places)),
                text(_rises(point)),
                text("–") if point.verdict is None else verdict(point.verdict, _p(point.p_corrected)),
            )
            for point in finding.rounds
        ),
        note=metric(finding.headline),
    )


def _rises(point: RoundsPoint) -> str:
    return "–" if point.p_rise is None else f"{p_value(point.p_rise)}, {_p(point.p_rise_corrected)}"


def _p(corrected: float | None) -> str:
    return "" if corrected is None else f"corrected p {p_value(corrected)}"
