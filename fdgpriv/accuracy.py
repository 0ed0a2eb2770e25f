"""What methods are worth over targets and seeds: means over trainings, with intervals whose independent unit is the seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdgpriv.finding import Measured, PersonalUtility, Results, Run, Utility
from fdgpriv.verdict import mean_interval

ONE_SEED = "one seed: no interval over trainings"
Training = tuple[int, str]  # seed, target


@dataclass(frozen=True)
class Accuracy:
    """One method under one defense, over all its trainings.

    A seed enters the means where every target of the report was trained with it, so that rows are means of the same.

    Attributes:
        method, defense: Which.
        model: Empty where the method ends with one model; where it ends with one for everyone and one for each client,
            which are two rows, whose model it is.
        target, source: Accuracy in [0, 1]: the mean over targets within a seed, then over seeds, with the 95 % t interval
            over seeds, cut to [0, 1] (null below two, with the reason). n counts the seeds.
        by_target: By target, the mean over all seeds that have it, n of them; without interval.
        left_out: The seeds that do not have every target.
        missing: What they lack, in words.
    """

    method: str
    defense: str
    model: str
    target: Measured
    source: Measured
    by_target: Mapping[str, Measured]
    left_out: tuple[int, ...]
    missing: tuple[str, ...]


def several_trainings(results: Results) -> bool:
    """Whether the runs differ in more than their defense, so that there is something to average or to compare."""
    return len({(run.method, run.target, run.seed) for run in results.runs}) > 1


def accuracies(results: Results) -> tuple[Accuracy, ...]:
    """One row for each method and defense, in the order of the runs; two where clients have models of their own too.

    Wanted of every row are all targets and all seeds that any run of the report has. A run that diverged or failed, and
    one that is not there, is named as missing; none is averaged as 0.
    """
    groups: dict[tuple[str, str], dict[Training, Run]] = {}
    for run in results.runs:
        if run.target is not None:
            groups.setdefault((run.method, run.defense), {})[run.seed, run.target] = run
    seeds = sorted({seed for group in groups.values() for seed, _ in group})
    targets = list(dict.fromkeys(target for group in groups.values() for _, target in group))
    wanted = [(seed, target) for seed in seeds for target in targets]
    rows = []
    for (method, defense), group in groups.items():
        found = {training: run.utility for training, run in group.items()}
        own = {training: utility.personal if utility else None for training, utility in found.items()}
        why = {
            training: "training diverged" if run.failed is None else "training failed"
            for training, run in group.items()
        }
        personal = any(own.values())
        rows.append(_row(method, defense, "the model for everyone" if personal else "", found, wanted, why))
        if personal:
            rows.append(_row(method, defense, "each client its own model", own, wanted, why))
    return tuple(rows)


def _row(
    method: str,
    defense: str,
    model: str,
    found: Mapping[Training, Utility | PersonalUtility | None],
    wanted: Sequence[Training],
    why: Mapping[Training, str],
) -> Accuracy:
    pairs = {training: _pair(utility) for training, utility in found.items()}
    known = {training: pair for training, pair in pairs.items() if pair is not None}
    lacking = [training for training in wanted if training not in known]
    left_out = tuple(sorted({seed for seed, _ in lacking}))
    whole = [training for training in known if training[0] not in left_out]
    seeds = np.array([seed for seed, _ in whole])
    return Accuracy(
        method=method,
        defense=defense,
        model=model,
        target=_over_seeds([known[training][0] for training in whole], seeds),
        source=_over_seeds([known[training][1] for training in whole], seeds),
        by_target={
            target: _plain([pair[0] for (_, at), pair in known.items() if at == target])
            for target in dict.fromkeys(target for _, target in wanted)
        },
        left_out=left_out,
        missing=tuple(
            f"target {target}, seed {seed}: {why.get((seed, target), 'not trained')}" for seed, target in lacking
        ),
    )


def _pair(utility: Utility | PersonalUtility | None) -> tuple[float, float] | None:
    if utility is None or utility.target_accuracy.value is None or utility.source_accuracy.value is None:
        return None
    return utility.target_accuracy.value, utility.source_accuracy.value


def _over_seeds(values: Sequence[float], seeds: NDArray[Any]) -> Measured:
    """The mean over seeds of each seed's mean."""
    if not len(values):
        return Measured(value=None, n=0, direction="higher_better", reason="no seed has every target")
    mean = mean_interval(values, seeds)
    if mean.lower is None or mean.upper is None:
        return Measured(value=mean.value, n=mean.n, direction="higher_better", reason=ONE_SEED)
    ends = max(0.0, mean.lower), min(1.0, mean.upper)
    return Measured(value=mean.value, ci95=ends, n=mean.n, direction="higher_better")


def _plain(values: Sequence[float]) -> Measured:
    if not values:
        return Measured(value=None, n=0, direction="higher_better", reason="no training finished")
    return Measured(value=float(np.mean(values)), n=len(values), direction="higher_better")
