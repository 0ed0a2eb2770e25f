"""Formats numbers: digits by the interval, true minus signs, p-values that are never zero; pools seeds into one figure."""

import math
from collections.abc import Iterable, Sequence

from scipy.special import stdtrit

from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL


def pooled(figures: Sequence[Measured | None]) -> Measured | None:
    """The mean over seeds with its 95% t interval; the figure itself of a single seed; None without figures.

    Example:
        >>> figures = [Measured(value=v, direction="higher_better") for v in (1.0, 2.0)]
        >>> [round(end, 2) for end in pooled(figures).ci95]
        [-4.85, 7.85]
    """
    present = [figure for figure in figures if figure is not None]
    values = [figure.value for figure in present if figure.value is not None]
    if len(present) <= 1 or len(values) <= 1:
        return next((figure for figure in present if figure.value is not None), present[0] if present else None)
    if len(values) < len(present):
        reason = f"null for {len(present) - len(values)} of {len(present)} seeds"
        return Measured(value=None, n=len(present), direction=present[0].direction, reason=reason)
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    half = float(stdtrit(len(values) - 1, 0.975)) * spread
    return Measured(value=mean, ci95=(mean - half, mean + half), n=len(values), direction=present[0].direction)


def decimals(figures: Iterable[Measured]) -> int:
    """The decimals that the narrowest interval supports: two digits of a half-width that starts below 3, else one."""
    measured_figures = [figure for figure in figures if figure.value is not None]
    with_interval = [figure for figure in measured_figures if figure.ci95 is not None]
    return min(4, max((_decimals(figure) for figure in with_interval or measured_figures), default=2))


def _decimals(figure: Measured) -> int:
    assert figure.value is not None
    if figure.ci95 is not None and figure.ci95[1] > figure.ci95[0]:
        half = (figure.ci95[1] - figure.ci95[0]) / 2
        power = math.floor(math.log10(half))
        return max(0, -power + (1 if half / 10.0**power < 2.95 else 0))
    if figure.value == round(figure.value):
        return 0 if figure.ci95 is None else 2
    return max(0, 2 - math.floor(math.log10(abs(figure.value))))


def decimal(value: float, places: int) -> str:
    """`value` with `places` decimals and a true minus sign; never a negative zero."""
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def percent(value: float, places: int = 0) -> str:
    """A share in percent: `12%`."""
    return f"{decimal(100 * value, places)}%"


def interval(ends: tuple[float, float], places: int) -> str:
    """`[low, high]`."""
    return f"[{decimal(ends[0], places)}, {decimal(ends[1], places)}]"


def measured(figure: Measured | None, places: int | None = None) -> str:
    """`20.2 [19.8, 20.6]`; the reason if the value is null; a dash for None."""
    if figure is None:
        return "–"
    if figure.value is None:
        return f"not available: {figure.reason}"
    places = decimals([figure]) if places is None else places
    text = decimal(figure.value, places)
    return text if figure.ci95 is None else f"{text} {interval(figure.ci95, places)}"


def share(figure: Measured | None) -> str:
    """An accuracy in percent with its interval: `67.2% [64.1, 70.3]`."""
    if figure is None or figure.value is None:
        return measured(figure)
    text = percent(figure.value, 1)
    return text if figure.ci95 is None else f"{text} {interval((100 * figure.ci95[0], 100 * figure.ci95[1]), 1)}"


def in_points(difference: Measured) -> str:
    """A difference of accuracies with sign and interval in percentage points: `+1.2 [0.3, 2.1]`."""
    assert difference.value is not None
    sign = "+" if difference.value > 0 else ""
    ends = "" if difference.ci95 is None else f" {interval((100 * difference.ci95[0], 100 * difference.ci95[1]), 1)}"
    return f"{sign}{decimal(100 * difference.value, 1)}{ends}"


def p_value(p: float | None) -> str:
    """Two significant digits, more if rounding would cross the level of a verdict; `<0.0001` below that."""
    if p is None:
        return "–"
    if p < 0.0001:
        return "<0.0001"
    places = 2 if p >= 0.1 else 1 - math.floor(math.log10(p))
    while (round(p, places) <= LEVEL) != (p <= LEVEL):
        places += 1
    return f"{p:.{places}f}"


def plain(value: float | None, unit: str = "") -> str:
    """A number at three significant digits, an integer from 100 on."""
    if value is None:
        return "–"
    text = f"{value:,.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"
    return f"{text.replace('e-0', 'e-').replace('-', '−')}{unit}"


def quantity(n: int, noun: str) -> str:
    """`1 test`, `2,000 tests`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def rounded_bytes(size: int) -> str:
    """`2.80 MB`, `38.4 kB`; empty below 10,000 bytes, which read as well unrounded."""
    if size < 10_000:
        return ""
    return f"{size / 1e6:.2f} MB" if size >= 1_000_000 else f"{size / 1e3:.1f} kB"
