"""Accuracy of methods over targets and seeds: means over trainings, with intervals over independent seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fdgpriv.federation.weights import Weights
from fdgpriv.results.baseline import TrainingKey, matched, unmatched
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.defaults import BASELINE

ONE_SEED = "one seed: no interval over trainings"
RETURNED = "returned"
RULES = ("last_round", "selected_round", "last_five")  # fields of Utility: rules for selecting a round's model
Accuracies = Mapping[
    TrainingKey, Mapping[str, float]
]  # target accuracy by rule, and "source": that of the returned model


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one method under one defense, over all its trainings.

    Means are over seeds for which every target of the report was trained, so that rows are comparable.

    Attributes:
        method, defense: Names with settings.
        model: Empty if the method returns one model; if it returns a common model and one per client, which of the two this
            row is about.
        target, source: Accuracy in [0, 1] of the returned model: the mean over targets within a seed, then over seeds, with
            the 95 % t interval over seeds, clipped to [0, 1] (null below two seeds, with the reason). n counts seeds.
        by_target: By target, the mean over all n seeds that have it; without interval.
        by_rule: By rule for selecting a round's model (`RULES`), the mean target accuracy as in `target`; empty if no
            training has it.
        base: The first run of the baseline, FedAvg by default, under the same defense with the method's own weights of
            clients (`matched`); empty if there is none, and for itself.
        unmatched: Why `base` is empty although there is a run of the baseline, and what to add; else empty.
        leads: By rule, and for the ``returned`` model, target accuracy minus that of `base` by the same rule: the mean over
            pairs of target and seed, over seeds that have every target in both, with the t interval over seeds.
        cost: Returned model's target accuracy minus that of the same method without a defense, by the same pairs; None
            without a defense, or if the report has no such run.
        recomputed_statistics: As in `Utility`, of any training of the common model.
        left_out: Seeds without every target.
        missing: The missing trainings, with reasons.
    """

    method: str
    defense: str
    model: str
    target: Measured
    source: Measured
    by_target: Mapping[str, Measured]
    by_rule: Mapping[str, Measured]
    base: str
    unmatched: str
    leads: Mapping[str, Measured]
    cost: Measured | None
    recomputed_statistics: bool
    left_out: tuple[int, ...]
    missing: tuple[str, ...]


def is_averaged(results: Results) -> bool:
    """Whether the runs differ in method, target or seed."""
    return len({(run.method, run.target, run.seed) for run in results.runs}) > 1


def accuracies(results: Results, baseline: str = BASELINE) -> tuple[Accuracy, ...]:
    """One row per method and defense, in the order of the runs; two if clients also have personal models.

    Every row is expected to have all targets and seeds of the report. Runs that diverged, failed or were not trained are
    listed as missing and excluded from means. `baseline` is the name or specification of the method for `leads`.
    """
    trainings: dict[tuple[str, str], dict[TrainingKey, Run]] = {}
    for run in results.runs:
        if run.target is not None:
            trainings.setdefault((run.method, run.defense), {})[run.seed, run.target] = run
    table = _Trainings(trainings, baseline)
    return tuple(
        table.row(method, defense, model, personal)
        for method, defense in trainings
        for model, personal in (_MODELS if table.has_personal(method, defense) else (("", False),))
    )


@dataclass(frozen=True, eq=False)
class _Trainings:
    """The trainings of a report, by method and defense, and the baseline."""

    runs: Mapping[tuple[str, str], Mapping[TrainingKey, Run]]
    baseline: str

    @cached_property
    def expected(self) -> list[TrainingKey]:
        """The trainings that each row should have: every target with every seed."""
        keys = [key for group in self.runs.values() for key in group]
        targets = dict.fromkeys(target for _, target in keys)
        return [(seed, target) for seed in sorted({seed for seed, _ in keys}) for target in targets]

    def has_personal(self, method: str, defense: str) -> bool:
        """Whether clients of a training have models of their own."""
        return any(run.utility and run.utility.personal for run in self.runs[method, defense].values())

    def row(self, method: str, defense: str, model: str, personal: bool) -> Accuracy:
        """The accuracies of the common model, or of the personal ones, which `model` names."""
        group, expected = self.runs[method, defense], self.expected
        measured = _accuracies(group, personal)
        weights = self._weights(defense)
        base = matched(method, weights, self.baseline) or method
        against = _accuracies(self.runs[base, defense], personal=False) if base != method else None
        bare = self.runs.get((method, "none")) if defense != "none" else None
        absent = [training for training in expected if training not in measured]
        measured_rules = [rule for rule in RULES if any(rule in by_rule for by_rule in measured.values())]
        return Accuracy(
            method=method,
            defense=defense,
            model=model,
            target=_over_seeds(measured, RETURNED, expected),
            source=_over_seeds(measured, "source", expected),
            by_target={target: _of_target(measured, target) for target in dict.fromkeys(t for _, t in expected)},
            by_rule={rule: _over_seeds(measured, rule, expected) for rule in measured_rules},
            base="" if against is None else base,
            unmatched=unmatched(method, weights, self.baseline) or "",
            leads={} if against is None else _leads(measured, against, expected),
            cost=None if bare is None else _leads(measured, _accuracies(bare, personal), expected).get(RETURNED),
            recomputed_statistics=not personal
            and any(run.utility.recomputed_statistics for run in group.values() if run.utility),
            left_out=tuple(sorted({seed for seed, _ in absent})),
            missing=tuple(
                f"target {target}, seed {seed}: {_why(group.get((seed, target)))}" for seed, target in absent
            ),
        )

    def _weights(self, defense: str) -> dict[str, dict[TrainingKey, Weights | None]]:
        """By method, how the trainings under this defense weigh clients."""
        return {
            method: {training: run.weights for training, run in group.items()}
            for (method, other), group in self.runs.items()
            if other == defense
        }


_MODELS = (("the model for everyone", False), ("each client its own model", True))


def _why(run: Run | None) -> str:
    """Reason why a training has no accuracies."""
    if run is None:
        return "not trained"
    return "training diverged" if run.failed is None else "training failed"


def _accuracies(group: Mapping[TrainingKey, Run], personal: bool) -> Accuracies:
    """Accuracies of finished trainings: of the common model, or of the clients' personal models."""
    accuracies: dict[TrainingKey, Mapping[str, float]] = {}
    for training, run in group.items():
        utility = run.utility
        returned = utility and (utility.personal if personal else utility)
        if utility is None or returned is None:
            continue
        target, source = returned.target_accuracy.value, returned.source_accuracy.value
        if target is None or source is None:
            continue
        rounds_apply = personal or utility.personal is None  # rounds are evaluated on personal models if there are any
        chosen = {rule: getattr(utility, rule) for rule in RULES if rounds_apply}
        values = {rule: selected.target_accuracy.value for rule, selected in chosen.items() if selected is not None}
        accuracies[training] = {"source": source, RETURNED: target} | {r: v for r, v in values.items() if v is not None}
    return accuracies


def _leads(accuracies: Accuracies, base: Accuracies, expected: Sequence[TrainingKey]) -> dict[str, Measured]:
    pairs = {training: (values, base[training]) for training, values in accuracies.items() if training in base}
    leads = {
        training: {rule: values[rule] - other[rule] for rule in (RETURNED, *RULES) if rule in values and rule in other}
        for training, (values, other) in pairs.items()
    }
    rules = [rule for rule in (RETURNED, *RULES) if any(rule in lead for lead in leads.values())]
    return {rule: _over_seeds(leads, rule, expected, lowest=-1.0) for rule in rules or [RETURNED]}


def _over_seeds(accuracies: Accuracies, rule: str, expected: Sequence[TrainingKey], lowest: float = 0.0) -> Measured:
    """Mean of per-seed means over seeds with every target; the interval is clipped to [`lowest`, 1]."""
    partial = {seed for seed, target in expected if rule not in accuracies.get((seed, target), {})}
    complete = [(seed, values[rule]) for (seed, _), values in accuracies.items() if seed not in partial]
    if not complete:
        return Measured(value=None, n=0, direction="higher_better", reason="no seed has every target")
    mean = mean_interval([value for _, value in complete], np.array([seed for seed, _ in complete]))
    if mean.lower is None or mean.upper is None:
        return Measured(value=mean.value, n=mean.n, direction="higher_better", reason=ONE_SEED)
    ends = max(lowest, mean.lower), min(1.0, mean.upper)
    return Measured(value=mean.value, ci95=ends, n=mean.n, direction="higher_better")


def _of_target(accuracies: Accuracies, target: str) -> Measured:
    values = [by_rule[RETURNED] for (_, of_training), by_rule in accuracies.items() if of_training == target]
    if not values:
        return Measured(value=None, n=0, direction="higher_better", reason="no training finished")
    return Measured(value=float(np.mean(values)), n=len(values), direction="higher_better")
