"""Changes of accuracy: over pairs of runs if there are several, else from the two intervals over images."""

from collections.abc import Sequence

import numpy as np

from fdgpriv.compare.matching import Matched
from fdgpriv.results.change import AccuracyChange, Change
from fdgpriv.results.run import Run
from fdgpriv.statistics.change import difference_of_intervals, p_of_few
from fdgpriv.statistics.interval import Interval, mean_interval, unit_means
from fdgpriv.statistics.measured import Measured

IMAGES = ("target", "source")
Pair = tuple[Run, Run]


def accuracy_changes(matched: Matched) -> tuple[AccuracyChange, ...]:
    """Target and source accuracy, before and after, of every method under every defense."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in matched.pairs:
        before, after = (f"{run.method}, defense {run.defense}" for run in pair)
        groups.setdefault((before, after), []).append(pair)
    return tuple(
        AccuracyChange(before=before, after=after, images=images, change=_change(pairs, images))
        for (before, after), pairs in groups.items()
        for images in IMAGES
    )


def _change(pairs: Sequence[Pair], images: str) -> Change:
    measured = [pair for pair in pairs if all(_accuracy(run, images).value is not None for run in pair)]
    if len(measured) > 1:
        return _paired_change(measured, images, len(pairs))
    before, after = (_accuracy(run, images) for run in (measured or pairs)[0])
    difference, p = difference_of_intervals(before, after)
    basis = "two intervals over images, taken as independent: one pair of trainings"
    return Change(before=before, after=after, difference=_clipped(difference), paired=False, basis=basis, p=p)


def _paired_change(pairs: Sequence[Pair], images: str, n_matched: int) -> Change:
    """The change of the mean over pairs; units are seeds, or the targets of a single seed."""
    values = np.array([[_accuracy(run, images).value for run in pair] for pair in pairs], dtype=np.float64)
    seeds = [before.seed for before, _ in pairs]
    units = np.array(seeds if len(set(seeds)) > 1 else [str(before.target) for before, _ in pairs])
    before, after = (_mean(mean_interval(column, units)) for column in values.T)
    differences = values[:, 1] - values[:, 0]
    mean = mean_interval(differences, units)
    difference = Measured(value=mean.value, ci95=mean.ends, n=mean.n, direction="higher_better", reason=mean.reason)
    basis = f"paired over {mean.n} {'seeds' if len(set(seeds)) > 1 else 'targets'}"
    if len(pairs) < n_matched:
        basis += f"; {len(pairs)} of {n_matched} pairs were trained"
    p = p_of_few(unit_means(differences, units))
    return Change(before=before, after=after, difference=_clipped(difference), paired=True, basis=basis, p=p)


def _accuracy(run: Run, images: str) -> Measured:
    if run.utility is None:
        reason = "training failed" if run.failed is not None else "training diverged"
        return Measured(value=None, n=0, direction="higher_better", reason=reason)
    return run.utility.target_accuracy if images == "target" else run.utility.source_accuracy


def _mean(interval: Interval) -> Measured:
    return Measured(value=interval.value, n=interval.n, direction="higher_better")


def _clipped(difference: Measured) -> Measured:
    """The difference of two accuracies with its interval clipped to [-1, 1]."""
    if difference.ci95 is None:
        return difference
    return difference.model_copy(update={"ci95": (max(-1.0, difference.ci95[0]), min(1.0, difference.ci95[1]))})
