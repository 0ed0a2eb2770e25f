"""A measured figure with interval, number of units, direction, and a reason if it is missing."""

from typing import Literal, Self

from pydantic import model_validator

from fdgpriv.utils.records import Count, Entry, IntervalEnds, Text

Direction = Literal["higher_leaks", "lower_leaks", "higher_better", "lower_better", "neutral"]


class Measured(Entry):
    """One figure: value, 95% interval, number of units, and which direction leaks or is better."""

    value: float | None
    ci95: IntervalEnds | None = None
    n: Count | None = None
    direction: Direction
    reason: Text | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if self.value is None and not self.reason:
            raise ValueError("want a reason where value is null, got none")
        if self.value is None and self.ci95 is not None:
            raise ValueError(f"want no interval where value is null, got {list(self.ci95)}")
        return self
