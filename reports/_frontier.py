"""Defenses on the first screen: one row each, and accuracy drawn against leakage and against epsilon."""

from collections.abc import Sequence

from fdgpriv.results.finding import Results
from fdgpriv.statistics.measured import Measured

from ._advice import Score, scores
from ._effects import brief, effect
from ._figures import Drawing, Point, points
from ._leaks import Leak
from ._numbers import interval, plain, share
from ._numbers import number as decimal
from ._tables import Cell, Section, Table, count, number, text, verdict
from ._tradeoff import LOSS, Row, rows
from ._words import LEARNT, SECRETS, VERDICTS, upper

MOST_WORDS = 320  # of the table; a larger one says less in each cell
MOST_SECRETS = 2  # that are drawn

_RULES = (
    "Each secret: the strongest attack, by an adversary that knows the defense; “unaware” is the same attack without that "
    "knowledge, which carries no verdict.",
    "Dominated: another row of the method has at least its accuracy and at most its leakage on every secret, and is better in "
    "one; by the figures, not their intervals.",
    f"DP at matched accuracy: of rows that prove an ε, the smallest whose interval does not exclude a loss of at most "
    f"{100 * LOSS:.0f} points against no defense (by pairs with several seeds).",
)


def frontier(results: Results) -> tuple[tuple[Section, ...], tuple[Drawing, ...]]:
    """The table with its rules beneath, and the drawings; nothing where there is one defense only."""
    if len({run.defense for run in results.runs}) < 2:
        return (), ()
    told, counts = rows(results), {one.arm.name: one for one in scores(results.runs)}
    table = _table(told, counts, whole=True)
    if words(table) > MOST_WORDS:
        table = _table(told, counts, whole=False)
    return (Section("", table), Section("", lines=_rules(told))), (*_leakage(told), *_epsilon(told))


def words(table: Table) -> int:
    """How many words stand in the cells."""
    return sum(len(f"{cell.text} {cell.sub}".split()) for row in table.rows for cell in row)


def _rules(told: Sequence[Row]) -> tuple[str, ...]:
    """What the marks mean that the table has."""
    unaware, dominated, matched = _RULES
    has_unaware = any(leak and leak.unaware for row in told for leak in row.leaks.values())
    return (
        *((unaware,) if has_unaware else ()),
        *((dominated,) if any(row.dominated_by for row in told) else ()),
        *((matched,) if any(row.privacy.epsilon_proved is not None for row in told) else ()),
    )


def _table(told: Sequence[Row], counts: dict[str, Score], whole: bool) -> Table:
    secrets = list(told[0].leaks)
    heads = ("Defense", "Unseen-domain accuracy", *(SECRETS[secret] for secret in secrets), "Leaks", "Proved ε")
    body = tuple(
        (
            text(row.arm.name, _marks(row)),
            number(share(row.accuracy), _cost(row.cost)),
            *(_secret(leak, whole) for leak in row.leaks.values()),
            _answers(counts[row.arm.name]),
            _proof(row),
        )
        for row in told
    )
    return Table(heads, body)


def _marks(row: Row) -> str:
    dominated = f"Dominated by {row.dominated_by}" if row.dominated_by else ""
    return "\n".join(said for said in (dominated, "DP at matched accuracy" if row.matched else "") if said)


def _cost(cost: Measured | None) -> str:
    if cost is None or cost.value is None:
        return ""
    sign = "+" if cost.value > 0 else ""
    ends = "" if cost.ci95 is None else f" {interval((100 * cost.ci95[0], 100 * cost.ci95[1]), 1)}"
    return f"{sign}{decimal(100 * cost.value, 1)}{ends} points"


def _secret(leak: Leak | None, whole: bool) -> Cell:
    if leak is None:
        return text("–")
    say = effect if whole else brief
    lines = [upper(say(leak.effect))] if leak.effect else []
    lines += [f"Unaware: {say(leak.unaware)}"] if leak.unaware else []
    called, runs = leak.calls
    lines += [f"In {called} of {runs} runs"] if called < runs else []
    return verdict(leak.verdict, "\n".join(lines), f"{upper(leak.grade)} leak" if leak.grade else "")


def _answers(score: Score) -> Cell:
    return count(f"{score.leaks} of {score.asked}") if score.asked else count("–", VERDICTS[score.word])


def _proof(row: Row) -> Cell:
    """What is proved, coloured by whether the measurement agrees, with the measured bound."""
    found, bounds = row.privacy, row.privacy.epsilon_measured
    if found.epsilon_proved is None:
        return Cell("none", found.verdict)
    told = [f"δ {plain(found.delta)}", VERDICTS[found.verdict]]
    measured = [value for value in (bounds.clopper_pearson, bounds.gdp, bounds.one_run) if value is not None]
    told += [f"measured at least {plain(measured[0])}"] if measured else []  # the first needs no assumption
    return Cell(plain(found.epsilon_proved), found.verdict, "\n".join(told))


def _leakage(told: Sequence[Row]) -> tuple[Drawing, ...]:
    """For each of the secrets that leak most in any row: accuracy against the lead, where two rows have both."""
    most = {
        secret: max((leak.size or 0.0 for row in told if (leak := row.leaks[secret])), default=0.0)
        for secret in told[0].leaks
    }
    found = []
    for secret in sorted(most, key=lambda one: -most[one]):
        drawn = [point for i, row in enumerate(told) if (point := _point(i, row, row.leaks[secret])) is not None]
        if len(drawn) < 2:
            continue
        alt = "; ".join(f"{one.name}: {_said(one)}" for one in drawn)
        hollow = " Hollow: unaware of the defense." if any(one.other is not None for one in drawn) else ""
        caption = (
            f"Learning {LEARNT[secret]}: the strongest attack's lead over its best control, in effects that matter (1 is the "
            f"least that does). Better is lower and further right.{hollow}"
        )
        axes = "accuracy on the unseen domain", f"lead: {SECRETS[secret].lower().rstrip('?')}"
        found.append(points(f"frontier-{secret}", caption, alt, *axes, drawn))
    return tuple(found[:MOST_SECRETS])


def _point(look: int, row: Row, leak: Leak | None) -> Point | None:
    """A row that shares nothing to learn this secret from leaks none of it."""
    if row.accuracy is None or row.level is None or not row.attacked:
        return None
    if leak is None:
        return Point(row.arm.name, look, row.level, 0.0, row.accuracy.ci95)
    if leak.amount is None or leak.amount.value is None:
        return None
    wide, tall = row.accuracy.ci95, leak.amount.ci95
    return Point(row.arm.name, look, row.level, leak.amount.value, wide, tall, leak.unaware_amount)


def _said(one: Point) -> str:
    other = "" if one.other is None else f", unaware {one.other:.3g}"
    return f"lead {one.y:.3g}{other} at accuracy {one.x:.3f}".replace("-", "−")


def _epsilon(told: Sequence[Row]) -> tuple[Drawing, ...]:
    """Accuracy against epsilon, where two rows prove one."""
    drawn = []
    for look, row in enumerate(told):
        proved, bounds = row.privacy.epsilon_proved, row.privacy.epsilon_measured
        if proved is not None and row.accuracy is not None and row.level is not None:
            wide = row.accuracy.ci95
            drawn.append(Point(row.arm.name, look, row.level, proved, wide, None, bounds.clopper_pearson))
    if len(drawn) < 2:
        return ()
    alt = "; ".join(f"{one.name}: ε {plain(one.y)} at accuracy {one.x:.3f}" for one in drawn)
    bare = [(row.arm.name, row.level) for row in told if row.arm.defense == "none" and row.level is not None]
    hollow = " Hollow: ε measured, at least." if any(one.other is not None for one in drawn) else ""
    caption = (
        f"Proved ε against accuracy on the unseen domain. Better is lower and further right.{hollow} "
        f"{'Dashed: accuracy without a defense, which proves none.' if bare else ''}"
    ).strip()
    lines = [level for _, level in bare]
    return (points("frontier-epsilon", caption, alt, "accuracy on the unseen domain", "ε proved", drawn, lines),)
