"""The first screen of a comparison of defenses: a row for each, and accuracy drawn against leakage and epsilon."""

from collections.abc import Sequence

from fdgpriv.results.finding import Results

from ._arms import ArmAnswers, arm_answers
from ._bars import LeadBar
from ._effects import effect_in_figures, effect_in_words
from ._figures import Drawing, Point, scatter_chart
from ._numbers import in_points, plain, share
from ._tables import Section, Table, TableCell, count_cell, number_cell, text_cell, verdict_cell
from ._tradeoff import LOSS, Leak, TradeoffRow, tradeoff
from ._words import LEARNT, SECRETS, VERDICTS, guaranteed, upper

MAX_WORDS = 320  # of the table; above it effects are given in figures only
MAX_SECRETS = 2  # that are drawn

_UNAWARE = (
    "Each secret: the strongest attack, by an adversary that knows the defense; “unaware” is the same attack without that "
    "knowledge, which carries no verdict."
)
_DOMINATED = (
    "Dominated: another row of the method has at least its accuracy and at most its leakage on every secret, and is better in "
    "one; by the figures, not their intervals."
)
_MATCHED = (
    "DP at matched accuracy: of rows that prove an ε, the smallest whose interval does not exclude a loss of at most "
    f"{100 * LOSS:.0f} points against no defense (by pairs with several seeds)."
)


def frontier(results: Results) -> tuple[tuple[Section, ...], tuple[Drawing, ...]]:
    """The table with explanations, and the drawings; empty for a single defense."""
    if len({run.defense for run in results.runs}) < 2:
        return (), ()
    rows, answers = tradeoff(results), {arm.arm.name: arm for arm in arm_answers(results.runs)}
    table = _table(rows, answers, in_words=True)
    if table.word_count() > MAX_WORDS:
        table = _table(rows, answers, in_words=False)
    return (Section("", table), Section("", lines=_explanations(rows))), (
        *_leakage_charts(rows),
        *_epsilon_charts(rows),
    )


def _explanations(rows: Sequence[TradeoffRow]) -> tuple[str, ...]:
    """The terms that the table uses."""
    has_unaware = any(leak and leak.unaware for row in rows for leak in row.leaks.values())
    has_leads = any(leak and leak.amount for row in rows for leak in row.leaks.values())
    return (
        *((LeadBar.unit,) if has_leads else ()),
        *((_UNAWARE,) if has_unaware else ()),
        *((_DOMINATED,) if any(row.dominated_by for row in rows) else ()),
        *((_MATCHED,) if any(row.privacy.epsilon_proved is not None for row in rows) else ()),
    )


def _table(rows: Sequence[TradeoffRow], answers: dict[str, ArmAnswers], in_words: bool) -> Table:
    secrets = (SECRETS[secret] for secret in rows[0].leaks)
    headings = ("Defense", "Unseen-domain accuracy", *secrets, "Leaks", "Proved ε")
    cells = tuple(
        (
            text_cell(row.arm.name, _marks(row)),
            number_cell(share(row.accuracy), _cost(row)),
            *(_leak_cell(leak, in_words) for leak in row.leaks.values()),
            _leaks_cell(answers[row.arm.name]),
            _proof_cell(row),
        )
        for row in rows
    )
    return Table(headings, cells)


def _marks(row: TradeoffRow) -> str:
    dominated = f"Dominated by {row.dominated_by}" if row.dominated_by else ""
    not_learned = any(run.utility is not None and run.utility.not_learned for run in row.arm.runs)
    guesses = "Not learned" if not_learned else "No better than guessing" if row.guesses else ""
    matched = "DP at matched accuracy" if row.matched else ""
    return "\n".join(mark for mark in (guesses, dominated, matched) if mark)


def _cost(row: TradeoffRow) -> str:
    """The difference in accuracy from no defense; empty if unknown."""
    return "" if row.cost is None or row.cost.value is None else f"{in_points(row.cost)} points"


def _leak_cell(leak: Leak | None, in_words: bool) -> TableCell:
    """The verdict on one secret with its effects; a dash if no artifact exposes the secret."""
    if leak is None:
        return text_cell("–")
    phrase = effect_in_words if in_words else effect_in_figures
    lines = [upper(phrase(leak.effect))] if leak.effect else []
    lines += [f"Unaware: {phrase(leak.unaware)}"] if leak.unaware else []
    calls, runs = leak.calls
    lines += [f"In {calls} of {runs} runs"] if calls < runs else []
    return verdict_cell(leak.verdict, "\n".join(lines), leak.grade, LeadBar.of(leak.amount))


def _leaks_cell(answers: ArmAnswers) -> TableCell:
    """The number of questions answered with a leak, of all that were asked."""
    return (
        count_cell(f"{answers.tally.leaks} of {answers.tally.asked}")
        if answers.tally.asked
        else count_cell("–", VERDICTS[answers.verdict])
    )


def _proof_cell(row: TradeoffRow) -> TableCell:
    """The proved epsilon, coloured by whether the measurement agrees, with the measured bound."""
    privacy, bounds = row.privacy, row.privacy.epsilon_measured
    if privacy.epsilon_proved is None:
        return TableCell("none", privacy.verdict)
    lines = [line for line in (f"δ {plain(privacy.delta)}", *guaranteed(privacy.unit, privacy.not_covered)) if line]
    lines.append(VERDICTS[privacy.verdict])
    measured = [value for value in (bounds.clopper_pearson, bounds.gdp, bounds.one_run) if value is not None]
    lines += [f"measured at least {plain(measured[0])}"] if measured else []  # Clopper-Pearson needs no assumption
    return TableCell(plain(privacy.epsilon_proved), privacy.verdict, "\n".join(lines))


def _leakage_charts(rows: Sequence[TradeoffRow]) -> tuple[Drawing, ...]:
    """Accuracy against the lead, for the secrets with the largest leaks for which two rows have both."""
    largest = {
        secret: max((leak.size or 0.0 for row in rows if (leak := row.leaks[secret])), default=0.0)
        for secret in rows[0].leaks
    }
    charts = []
    for secret in sorted(largest, key=lambda secret: -largest[secret]):
        points = [point for i, row in enumerate(rows) if (point := _point(i, row, row.leaks[secret])) is not None]
        if len(points) < 2:
            continue
        alt = "; ".join(f"{point.name}: {_point_in_words(point)}" for point in points)
        hollow = " Hollow: unaware of the defense." if any(point.second_y is not None for point in points) else ""
        caption = (
            f"Learning {LEARNT[secret]}: the strongest attack's lead over its best control, in effects that matter (1 is the "
            f"least that does). Better is lower and further right.{hollow}"
        )
        labels = "accuracy on the unseen domain", f"lead: {SECRETS[secret].lower().rstrip('?')}"
        charts.append(scatter_chart(f"frontier-{secret}", caption, alt, *labels, points))
    return tuple(charts[:MAX_SECRETS])


def _point(style: int, row: TradeoffRow, leak: Leak | None) -> Point | None:
    """Plot point of a defense; leakage 0 if no artifact exposes the secret, None if a figure is unknown."""
    if row.accuracy is None or row.mean_accuracy is None or not row.attacked:
        return None
    if leak is None:
        return Point(row.arm.name, style, row.mean_accuracy, 0.0, row.accuracy.ci95)
    if leak.amount is None or leak.amount.value is None:
        return None
    intervals = row.accuracy.ci95, leak.amount.ci95
    return Point(row.arm.name, style, row.mean_accuracy, leak.amount.value, *intervals, leak.unaware_amount)


def _point_in_words(point: Point) -> str:
    unaware = "" if point.second_y is None else f", unaware {point.second_y:.3g}"
    return f"lead {point.y:.3g}{unaware} at accuracy {point.x:.3f}".replace("-", "−")


def _epsilon_charts(rows: Sequence[TradeoffRow]) -> tuple[Drawing, ...]:
    """Accuracy against epsilon, if at least two rows prove one."""
    points = []
    for style, row in enumerate(rows):
        proved, bounds = row.privacy.epsilon_proved, row.privacy.epsilon_measured
        if proved is not None and row.accuracy is not None and row.mean_accuracy is not None:
            interval = row.accuracy.ci95
            points.append(Point(row.arm.name, style, row.mean_accuracy, proved, interval, None, bounds.clopper_pearson))
    if len(points) < 2:
        return ()
    alt = "; ".join(f"{point.name}: ε {plain(point.y)} at accuracy {point.x:.3f}" for point in points)
    undefended = [row.mean_accuracy for row in rows if row.arm.defense == "none" and row.mean_accuracy is not None]
    hollow = " Hollow: ε measured, at least." if any(point.second_y is not None for point in points) else ""
    caption = (
        f"Proved ε against accuracy on the unseen domain. Better is lower and further right.{hollow} Unit, δ and what is "
        "not covered stand in the table. "
        f"{'Dashed: accuracy without a defense, which proves none.' if undefended else ''}"
    ).strip()
    labels = "accuracy on the unseen domain", "ε proved"
    return (scatter_chart("frontier-epsilon", caption, alt, *labels, points, undefended),)
