"""A linear axis: round ticks, and where a value stands on it in percent."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ._numbers import number


@dataclass(frozen=True)
class Tick:
    """A place on the axis in percent, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Axis:
    """The range [low, high], low < high."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float], room: float = 0.06) -> "Axis":
        """The axis that shows all `values` with `room` (a share of their range) on either side."""
        known = list(values) or [0.0, 1.0]
        low, high = min(known), max(known)
        span = high - low if high > low else max(abs(high), 1.0) * 0.2
        return cls(low - room * span, high + room * span)

    def at(self, value: float) -> float:
        """Where `value` stands, in percent of the axis, rounded so that pages compare."""
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def ticks(self, about: int = 5) -> tuple[Tick, ...]:
        """Some `about` ticks at 1, 2 or 5 times a power of ten."""
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
        places = max(0, -math.floor(math.log10(step) + 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple(Tick(self.at(i * step), number(i * step, places)) for i in range(first, last + 1))
