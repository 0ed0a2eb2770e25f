"""Scores of one attack under one condition, by trial, and their rows in the score tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fdgpriv.statistics.measured import Measured

ScoresByRole = dict[str, list[float]]
UNDEFENDED, UNAWARE = "undefended", "unaware"  # variants
LAYER = "layer="  # begins the variants that attack another layer
_CROSSED = "crossed"  # a role
_LEAD_VARIANCE, _MEAN_VARIANCE = "shared_variance_of_lead", "shared_variance_of_mean"
_USED, _WEIGHT, _MISFIT, _STATED = "artifact_used", "artifact_weight", "misfit", "secret_stated"


class Condition(NamedTuple):
    """What was evaluated: a variant, on the last `rounds` rounds, of artifacts of `n_images` images.

    Attributes:
        variant: Empty for the attack as configured on artifacts as they were shared; ``layer=NAME``; a variant of the
            attack; ``undefended`` for artifacts without the defense; ``unaware`` of an adversary that does not know it.
        rounds: Number of rounds that were read; 0 for all that the adversary sees.
        n_images: None for the whole client.
    """

    variant: str = ""
    rounds: int = 0
    n_images: int | None = None


@dataclass
class TrialScores:
    """Scores of one attack under one threat model and condition, by trial.

    Attributes:
        units: The independent unit of each trial.
        clients: The client of each trial.
        headline: By role (``attack``, controls, bounds), the headline metric of each trial.
        details: The same by further metric.
        crossed: Of whole clients, by client, the headline metric of each trial where the attack reads that client's
            artifact instead; of a global artifact, by number, with candidates that are not among its images.
        aggregates: By role, figures of the predictions as a set, by metric.
        shared_variance: By control, the variance of the attack's mean lead over it from what units share, such as
            membership candidates; nothing where they share nothing.
        shared_variance_of_mean: The same of the mean scores, by role.
        artifact_used: Whether any prediction differs from what the adversary predicts without the artifact.
        artifact_weight: The mean weight of artifacts against artifact-free predictions; None where the task has none.
        misfit: Why simulated clients, on which that weight was chosen, cannot stand for the attacked ones; None if they can, or
            there is no weight.
        secret_stated: Whether the artifact is the secret that is asked for, as a sample count is the size.
        fingerprint: SHA-256 of the attack's predictions, of each repeat; empty where they are not known.
        repeats: The scores of each repeat of the attack, of which these are the mean; empty for a single one.
    """

    units: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    headline: ScoresByRole = field(default_factory=dict)
    details: dict[str, ScoresByRole] = field(default_factory=dict)
    crossed: ScoresByRole = field(default_factory=dict)
    aggregates: dict[str, dict[str, Measured]] = field(default_factory=dict)
    shared_variance: dict[str, float] = field(default_factory=dict)
    shared_variance_of_mean: dict[str, float] = field(default_factory=dict)
    artifact_used: bool = True
    artifact_weight: float | None = None
    misfit: str | None = None
    secret_stated: bool = False
    fingerprint: str = field(default="", compare=False)
    repeats: tuple["TrialScores", ...] = field(default=(), compare=False)

    @property
    def recovered(self) -> list[float]:
        """Of an attack that recovers artifacts exactly or does not: 1 for each trial whose artifact it recovered, else 0."""
        return self.details.get("recovered", {}).get("attack", [])

    def check(self) -> None:
        """Checks that scores and trials correspond.

        Raises:
            ValueError: A trial has no score, or a score no trial.
        """
        count = len(self.units)
        if count == 0 or "attack" not in self.headline:
            raise ValueError(f"want scores of an attack on at least 1 target, got {count} targets")
        for metric, by_role in [("headline", self.headline), ("crossed", self.crossed), *self.details.items()]:
            for role, values in by_role.items():
                if len(values) != count:
                    raise ValueError(f"want {count} scores of {role} in {metric}, got {len(values)}")
        if len(self.clients) != count:
            raise ValueError(f"want the client of each of {count} targets, got {len(self.clients)}")

    def score_rows(self, headline: str) -> Iterator[dict[str, Any]]:
        """Rows of ``scores``: role, crossed_with, unit, client, trial, repeat, metric and value of each prediction."""
        for repeat, scores in enumerate(self.repeats or (self,)):
            columns = [(role, "", headline, values) for role, values in scores.headline.items()]
            columns += [
                (role, "", metric, values)
                for metric, by_role in scores.details.items()
                for role, values in by_role.items()
            ]
            columns += [(_CROSSED, client, headline, values) for client, values in scores.crossed.items()]
            for role, crossed_with, metric, values in columns:
                for trial, value in enumerate(values):
                    yield {
                        "role": role,
                        "crossed_with": crossed_with,
                        "unit": scores.units[trial],
                        "client": scores.clients[trial],
                        "trial": trial,
                        "repeat": repeat,
                        "metric": metric,
                        "value": value,
                    }

    def aggregate_rows(self) -> Iterator[dict[str, Any]]:
        """Rows of ``aggregates``: role, metric and figure."""
        for role, by_metric in self.aggregates.items():
            for metric, figure in by_metric.items():
                low, high = figure.ci95 or (None, None)
                columns = {"value": figure.value, "low": low, "high": high, "n": figure.n, "reason": figure.reason}
                yield {"role": role, "metric": metric, "direction": figure.direction, **columns}
        variances = [(_LEAD_VARIANCE, self.shared_variance), (_MEAN_VARIANCE, self.shared_variance_of_mean)]
        for metric, by_role in variances:
            for role, variance in by_role.items():
                yield {"role": role, "metric": metric, "value": variance, "direction": "neutral"}
        yield {"role": "attack", "metric": _USED, "value": float(self.artifact_used), "direction": "neutral"}
        if self.artifact_weight is not None:
            yield {"role": "attack", "metric": _WEIGHT, "value": self.artifact_weight, "direction": "neutral"}
        if self.secret_stated:
            yield {"role": "attack", "metric": _STATED, "value": 1.0, "direction": "neutral"}
        if self.misfit is not None:
            yield {"role": "attack", "metric": _MISFIT, "value": 1.0, "direction": "neutral", "reason": self.misfit}

    @classmethod
    def read(
        cls, scores: Iterable[Mapping[str, Any]], aggregates: Iterable[Mapping[str, Any]], headline: str
    ) -> "TrialScores":
        """The scores in blocks of rows of one role, metric and repeat each, and in rows of aggregates.

        Args:
            scores: Of each block role, crossed_with, repeat, metric, and the lists `unit`, `client` and `value` by trial.
            aggregates: Rows of ``aggregates``.
            headline: The headline metric.
        """
        repeats: dict[int, TrialScores] = {}
        for block in scores:
            repeat_scores = repeats.setdefault(block["repeat"], cls())
            values, role, metric = block["value"], block["role"], block["metric"]
            if role == _CROSSED:
                repeat_scores.crossed[block["crossed_with"]] = values
            elif metric == headline:
                repeat_scores.headline[role] = values
            else:
                repeat_scores.details.setdefault(metric, {})[role] = values
            if role == "attack" and metric == headline:
                repeat_scores.units, repeat_scores.clients = block["unit"], block["client"]
        mean = averaged_scores(list(repeats.values())) if repeats else cls()
        for row in aggregates:
            mean._add_aggregate(row)
        return mean

    def _add_aggregate(self, row: Mapping[str, Any]) -> None:
        """Reads back one of the rows that `aggregate_rows` gives."""
        role, metric, value = row["role"], row["metric"], row["value"]
        if metric == _LEAD_VARIANCE:
            self.shared_variance[role] = value
        elif metric == _MEAN_VARIANCE:
            self.shared_variance_of_mean[role] = value
        elif metric == _USED:
            self.artifact_used = bool(value)
        elif metric == _STATED:
            self.secret_stated = bool(value)
        elif metric == _WEIGHT:
            self.artifact_weight = value
        elif metric == _MISFIT:
            self.misfit = row["reason"]
        else:
            ends = None if row["low"] is None else (row["low"], row["high"])
            columns = {"value": value, "n": row["n"], "direction": row["direction"], "reason": row["reason"]}
            self.aggregates.setdefault(role, {})[metric] = Measured(ci95=ends, **columns)


def averaged_scores(repeats: Sequence[TrialScores]) -> TrialScores:
    """The mean scores of several repeats of one attack on the same trials; aggregates are the first repeat's.

    The variance of the mean of several repeats is at most the mean of their variances, which is what is given.
    """
    first = repeats[0]
    if len(repeats) == 1:
        return first

    def mean(tables: Sequence[ScoresByRole]) -> ScoresByRole:
        return {role: np.mean([table[role] for table in tables], axis=0).tolist() for role in tables[0]}

    def mean_variances(tables: Sequence[dict[str, float]]) -> dict[str, float]:
        return {role: float(np.mean([table[role] for table in tables])) for role in tables[0]}

    weights = [scores.artifact_weight for scores in repeats if scores.artifact_weight is not None]
    return replace(
        first,
        headline=mean([scores.headline for scores in repeats]),
        details={metric: mean([scores.details[metric] for scores in repeats]) for metric in first.details},
        crossed=mean([scores.crossed for scores in repeats]),
        shared_variance=mean_variances([scores.shared_variance for scores in repeats]),
        shared_variance_of_mean=mean_variances([scores.shared_variance_of_mean for scores in repeats]),
        artifact_used=any(scores.artifact_used for scores in repeats),
        artifact_weight=float(np.mean(weights)) if weights else None,
        fingerprint=" ".join(scores.fingerprint for scores in repeats).strip(),
        repeats=tuple(repeats),
    )
