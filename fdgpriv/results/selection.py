"""Round selection, the same for all methods: last round, best source accuracy, or mean of the last five rounds.

The model of round r is the one after r rounds of training, which the server sends in round r; the final one is of round T.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fdgpriv.results.utility_finding import ChosenUtility, PersonalUtility, Utility
from fdgpriv.statistics.measured import Measured

LAST = 5
LOOKS = 2  # evaluations of a client's personal model at most, in addition to the last rounds

Evaluated = Mapping[int, Utility | PersonalUtility]  # by round


def rounds_to_try(rounds: int, personal: bool) -> frozenset[int]:
    """Rounds after which models are evaluated; for personal models the last five and few others."""
    every = -(-rounds // LOOKS) if personal else 1
    return frozenset(r for r in range(1, rounds + 1) if r % every == 0 or r > rounds - LAST)


def chosen(evaluated: Evaluated) -> dict[str, ChosenUtility | None]:
    """By field of `Utility`: last_round, selected_round and last_five."""
    rounds = sorted(evaluated)
    return {
        "last_round": _mean(evaluated, rounds[-1:]),
        "selected_round": _mean(evaluated, _selected(evaluated)),
        "last_five": _mean(evaluated, rounds[-LAST:]),
    }


def _selected(evaluated: Evaluated) -> Sequence[int]:
    """The earliest round with the best source accuracy; empty if none is known."""
    accuracy = {round: evaluated[round].source_accuracy.value for round in sorted(evaluated)}
    measured = {round: value for round, value in accuracy.items() if value is not None}
    return [max(measured, key=lambda round: measured[round])] if measured else []  # max returns the first of equals


def _mean(evaluated: Evaluated, rounds: Sequence[int]) -> ChosenUtility | None:
    if not rounds:
        return None
    return ChosenUtility(
        rounds=tuple(rounds),
        source_accuracy=_figure([evaluated[round].source_accuracy for round in rounds]),
        target_accuracy=_figure([evaluated[round].target_accuracy for round in rounds]),
    )


def _figure(figures: Sequence[Measured]) -> Measured:
    """Mean of the values and of the interval bounds.

    The models are evaluated on the same images. The standard deviation of a mean is at most the mean of standard
    deviations, so the interval is conservative.
    """
    if len(figures) == 1:
        return figures[0]
    values = [figure.value for figure in figures if figure.value is not None]
    if len(values) < len(figures):
        reason = f"known after {len(values)} of these {len(figures)} rounds"
        return Measured(value=None, n=figures[-1].n, direction="higher_better", reason=reason)
    ends = [figure.ci95 for figure in figures if figure.ci95 is not None]
    low, high = np.mean(ends, axis=0) if len(ends) == len(figures) else (None, None)
    interval = None if low is None or high is None else (float(low), float(high))
    return Measured(value=float(np.mean(values)), ci95=interval, n=figures[-1].n, direction="higher_better")
