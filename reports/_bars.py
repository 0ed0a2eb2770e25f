"""Bars of a lead over the best control, in multiples of the least lead that matters, on one scale for all cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fdgpriv.results.question import Question
from fdgpriv.statistics.measured import Measured

from ._numbers import decimal, decimals, interval, pooled


def in_effects(lead: Measured, relevant: float) -> Measured:
    """The lead in multiples of the least that matters."""
    if lead.value is None:
        return lead
    ends = None if lead.ci95 is None else (lead.ci95[0] / relevant, lead.ci95[1] / relevant)
    return lead.model_copy(update={"value": lead.value / relevant, "ci95": ends})


def pooled_in_effects(questions: Sequence[Question]) -> Measured | None:
    """The lead of the strongest attack in multiples of the least that matters, over the runs; None if not tested."""
    return pooled([in_effects(q.lead, q.relevant) for q in questions if q.lead and q.relevant])


@dataclass(frozen=True)
class LeadBar:
    """A lead with its 95% interval, both in multiples of the least that matters; `numbered`: its value stands beside."""

    value: float
    ends: tuple[float, float] | None
    numbered: bool = True

    unit: ClassVar[str] = (
        "A figure with × is the lead of the attack over its best control: 3.3× is 3.3 times the least lead that matters."
    )
    low: ClassVar[float] = -0.5  # of the scale
    high: ClassVar[float] = 4.0
    width: ClassVar[float] = 90.0  # of the drawing

    @classmethod
    def of(cls, lead: Measured | None) -> "LeadBar | None":
        """The bar of a lead in multiples of the least that matters; None if unknown."""
        return None if lead is None or lead.value is None else cls(lead.value, lead.ci95)

    def at(self, value: float) -> str:
        """The horizontal position of a value, at an end of the scale if beyond it."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return f"{self.width * share:.1f}"

    @property
    def number(self) -> str:
        """``3.3×``."""
        return f"{decimal(self.value, 1 if abs(self.value) < 9.95 else 0)}×"

    @property
    def words(self) -> str:
        """``lead 3.3 [2.4, 3.6] times the least that matters``."""
        figure = Measured(value=self.value, ci95=self.ends, direction="higher_leaks")
        places = min(2, decimals([figure]))
        ends = f" {interval(self.ends, places)}" if self.ends else ""
        return f"lead {decimal(self.value, places)}{ends} times the least that matters"
