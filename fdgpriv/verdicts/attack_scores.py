"""The scores of one attack by one adversary on one kind of artifact, and the tests of its lead over the controls.

Which controls it is compared with is fixed here, before any score is computed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from fdgpriv.results.score_tables import SCHEMAS, EvaluationRow, RunKey, ScoreTables
from fdgpriv.statistics.measured import Direction
from fdgpriv.statistics.questions import Absent
from fdgpriv.statistics.rule import NO_OTHER_CLIENT, ONE_DOMAIN, LeadTest
from fdgpriv.threat import Capability
from fdgpriv.utils.records import Probability, Word, one_line
from fdgpriv.verdicts.trial_scores import LAYER, UNAWARE, UNDEFENDED, Condition, TrialScores

LABEL_PRIORS = ("uniform", "public_shares", "half_uniform", "domain_shares")
DOMAIN_CONTROLS = ("noise", "mean_image", "domain_mean", *LABEL_PRIORS, "random_style", "other_domain")
CLIENT_CONTROLS = (*DOMAIN_CONTROLS, "unconditional", "other_client")
KNOWN_DOMAIN_CONTROLS = ("domain_mean", "domain_shares")  # controls of an adversary that knows the client's domain
ARTIFACT_FREE = ("noise", "mean_image", "domain_mean", *LABEL_PRIORS, "unconditional")
BOUNDS = ("nearest_own", "own_colour", "own_mean", "own_domain_mean", "autoencoder")
CONTINUOUS = ("mse",)  # metrics whose least value is no hit: leads far below their bounds are tested without these
ONE_ROUND = "one_round"  # the control of scores on several rounds
ROUNDING = 1e-6
_EXACT = 0.01  # of the least lead that matters: closer readings of a secret are exact
_PLANTED = "planted"  # a variant: how often a planted leak is found, with the scope as role


class AttackScores(EvaluationRow):
    """An evaluation with its scores by condition, and further facts that verdicts need.

    Attributes:
        conditions: The scores by condition. Those of one variant are in the order in which they were evaluated.
        planted: By scope, how often a leak of relevant size planted in these artifacts is found.
        shadows: Clients among the units that took no part in training.
        domains: By client, the name of its main domain.
    """

    conditions: dict[Condition, TrialScores] = Field(default_factory=dict)
    planted: dict[Word, Probability] = Field(default_factory=dict)
    shadows: tuple[Word, ...] = ()
    domains: dict[Word, Word] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete_and_in_range(self) -> Self:
        low, high = self.bounds or (-math.inf, math.inf)
        for scores in self.conditions.values():
            scores.check()
            for score in (score for values in scores.headline.values() for score in values):
                if not low - ROUNDING <= score <= high + ROUNDING:
                    raise ValueError(f"want {self.metric} in [{low}, {high}], got {score}")
        if not self.by_size and self.not_applicable is None:
            raise ValueError("want scores, or not_applicable with a reason; got neither")
        return self

    @property
    def by_size(self) -> dict[int | None, TrialScores]:
        """The scores of the attack as configured, by number of images of the artifact; None is the whole client."""
        return {
            condition.n_images: scores
            for condition, scores in self.conditions.items()
            if condition.variant == "" and condition.rounds == 0
        }

    @property
    def ablations(self) -> dict[str, TrialScores]:
        """The scores on single images by layer, or by variant of the attack, the strongest last."""
        return {
            condition.variant.removeprefix(LAYER): scores
            for condition, scores in self.conditions.items()
            if condition.variant not in ("", UNDEFENDED, UNAWARE)
        }

    @property
    def by_rounds(self) -> list[tuple[int, int | None, TrialScores]]:
        """By number of rounds and of images, ascending, the scores on views that are cut to that many rounds."""
        return [
            (condition.rounds, condition.n_images, scores)
            for condition, scores in self.conditions.items()
            if condition.rounds > 0
        ]

    @property
    def undefended(self) -> TrialScores | None:
        """The scores of the same attack without the defense, on single images if the attack reads them."""
        return self._first_of_variant(UNDEFENDED)

    @property
    def unaware(self) -> TrialScores | None:
        """The scores on the wire's artifacts of an adversary that does not know the defense; None without a defense."""
        return self._first_of_variant(UNAWARE)

    def _first_of_variant(self, variant: str) -> TrialScores | None:
        return next((scores for condition, scores in self.conditions.items() if condition.variant == variant), None)

    @property
    def size(self) -> int | None:
        """Number of images of the artifact that the verdict is about; None for the whole client."""
        return 1 if self.level == "image" else None

    @property
    def sign(self) -> int:
        """1 if a higher score leaks more, else -1."""
        return 1 if self.higher_leaks else -1

    @property
    def direction(self) -> Direction:
        """Whether higher or lower scores leak more."""
        return "higher_leaks" if self.higher_leaks else "lower_leaks"

    @property
    def sent_in_clear(self) -> bool:
        """Whether the artifact on the wire is the secret: its kind says so, and the attack reads every value exactly.

        Exactly is within a hundredth of the least lead that matters: attacks that learn to read are off by rounding. A defense
        that changes the value makes the readings inexact, and the question a test like any other.
        """
        scores = self.by_size.get(self.size)
        if not self.shared or scores is None or not scores.secret_stated or self.perfect is None:
            return False
        tolerance = max(ROUNDING, _EXACT * self.relevant_effect(scores))
        return all(abs(score - self.perfect) <= tolerance for score in scores.headline["attack"])

    @property
    def main_scope(self) -> str:
        """The scope that its positive control is tested in."""
        return "client" if "client" in self.scopes else "domain"

    def controls(self, scope: str, scores: TrialScores) -> dict[str, list[float]]:
        """The controls of this scope, ``client`` or ``domain``, that the threat model allows and the evaluation has.

        An adversary that knows the domain has its mean image and shares of labels without any artifact, so that in both
        scopes it must beat those.
        """
        names = list(CLIENT_CONTROLS if scope == "client" else DOMAIN_CONTROLS)
        if Capability.KNOWS_DOMAIN not in self.threat.capabilities:
            names = [name for name in names if name not in KNOWN_DOMAIN_CONTROLS]
        return {name: scores.headline[name] for name in names if name in scores.headline}

    def perfect_score(self, scores: TrialScores) -> float | None:
        """The score of a perfect attack: the task's, or that of the attack's own decoder; None if unknown."""
        decoder = scores.headline.get("autoencoder")
        return float(np.mean(decoder)) if self.perfect is None and decoder else self.perfect

    def relevant_effect(self, scores: TrialScores) -> float:
        """The least lead that matters, in the metric's unit."""
        return self.relevant * (self._strongest(scores) if self.relative_to else 1.0)

    def _strongest(self, scores: TrialScores) -> float:
        """The mean score of the strongest of the controls that the relevant effect is relative to; else of the attack."""
        controls = self.controls(self.main_scope, scores)
        rows = [controls[name] for name in self.relative_to if name in controls] or [scores.headline["attack"]]
        return self.sign * max(self.sign * float(np.mean(values)) for values in rows)

    def lead_test(self, scope: str, scores: TrialScores | None) -> LeadTest | Absent:
        """The test of the lead over the controls of this scope; `Absent` with a reason if it cannot be tested."""
        if self.failed:
            return Absent(self.not_applicable or "", because="failed")
        if self.not_applicable or scores is None:
            return Absent(self.not_applicable or "nothing was evaluated at this level", "not_applicable")
        if scope not in self.scopes:
            return Absent(f"the {self.secret} is not asked for in the {scope} scope", "not_applicable")
        controls = self.controls(scope, scores)
        if any(not any(controls[name]) for name in self.relative_to if name in controls):
            return Absent("the public prior already answers this exactly", "not_applicable")
        if scope == "domain" and len(set(self.domains.values())) == 1:
            return Absent(ONE_DOMAIN, "not_applicable")
        needed = "other_client" if scope == "client" else "other_domain"
        if needed not in controls:
            return Absent(NO_OTHER_CLIENT if scope == "client" else "no client of another domain exists")
        return self._lead_test(scores, controls, scores.units)

    def rise(self, size: int | None, scores: TrialScores) -> LeadTest:
        """The test of whether scores on several rounds exceed those on one; all artifacts of a client are one unit."""
        return self._lead_test(scores, {ONE_ROUND: self.one_round(size).headline["attack"]}, scores.clients)

    def _lead_test(
        self, scores: TrialScores, controls: Mapping[str, Sequence[float]], cluster: Sequence[str]
    ) -> LeadTest:
        bounds = None if self.metric in CONTINUOUS else self.bounds
        if bounds is not None and not self.higher_leaks:
            bounds = (-bounds[1], -bounds[0])
        return LeadTest(
            attack=self.sign * np.asarray(scores.headline["attack"]),
            controls={name: self.sign * np.asarray(values) for name, values in controls.items()},
            cluster=np.asarray(cluster),
            bounds=bounds,
            shared_variance=scores.shared_variance,
            artifact_used=scores.artifact_used,
            artifact_free=ARTIFACT_FREE,
        )

    @property
    def max_rounds(self) -> int:
        """The largest number of rounds that were combined; 0 where none were."""
        return max((rounds for rounds, _, _ in self.by_rounds), default=0)

    def one_round(self, size: int | None) -> TrialScores:
        """The scores on one round at this size."""
        return self.conditions[Condition(rounds=1, n_images=size)]

    def positive(self) -> TrialScores | None:
        """The positive control's scores: of undefended single images (or whole clients), or at the deepest layer."""
        layers = [scores for condition, scores in self.conditions.items() if condition.variant.startswith(LAYER)]
        if self.undefended is None and layers:
            return layers[-1]
        return self.undefended or self.by_size.get(1)


def to_tables(run: RunKey, scores: Mapping[str, AttackScores]) -> ScoreTables:
    """The tables of these evaluations of one run, by the name of each evaluation; without candidates."""
    return ScoreTables.of_rows(table_rows(run, scores))


def table_rows(run: RunKey, scores: Mapping[str, AttackScores]) -> dict[str, list[dict[str, Any]]]:
    """By name of the table, the rows of `to_tables`."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
    for name, attack in scores.items():
        rows["evaluations"].append({"evaluation": name, **run._asdict(), **attack.columns()})
        rows["scores"] += _score_rows(name, run, attack)
        for condition, condition_scores in attack.conditions.items():
            rows["aggregates"] += [
                {"evaluation": name, **_columns(condition), **row} for row in condition_scores.aggregate_rows()
            ]
        rows["aggregates"] += [
            {
                "evaluation": name,
                **_columns(Condition(variant=_PLANTED)),
                "role": scope,
                "metric": "power",
                "value": power,
                "direction": "neutral",
            }
            for scope, power in attack.planted.items()
        ]
    return rows


def _score_rows(name: str, run: RunKey, attack: AttackScores) -> Iterator[dict[str, Any]]:
    evaluation_columns = {
        "evaluation": name,
        **run._asdict(),
        "artifact": attack.kind,
        "level": attack.level,
        "adversary": attack.threat.role,
        "attack": attack.attack,
        "secret": attack.secret,
    }
    for condition, scores in attack.conditions.items():
        for row in scores.score_rows(attack.metric):
            client = {"domain": attack.domains.get(row["client"]), "is_shadow": row["client"] in attack.shadows}
            yield {**evaluation_columns, **_columns(condition), **row, **client}


def from_tables(tables: ScoreTables) -> dict[str, AttackScores]:
    """The evaluations in these tables by name, in order.

    Raises:
        ValueError: Rows contradict each other, or a value is out of range.
    """
    blocks = _by_condition(_blocks(tables.scores.to_pandas()))
    aggregates = _by_condition(tables.aggregates.to_pylist())
    clients_by_evaluation = _clients(tables.scores)
    attacks = {}
    for row in tables.evaluations.to_pylist():
        columns = {name: value for name, value in row.items() if name not in ("evaluation", *RunKey._fields)}
        name = row["evaluation"]
        planted = {
            aggregate["role"]: aggregate["value"]
            for aggregate in aggregates.get(name, {}).pop(Condition(variant=_PLANTED), ())
        }
        conditions = {
            condition: TrialScores.read(score_blocks, aggregates[name].get(condition, ()), row["metric"])
            for condition, score_blocks in blocks.get(name, {}).items()
        }
        clients = clients_by_evaluation.get(name, ())
        try:
            attacks[name] = AttackScores.read(
                columns,
                conditions=conditions,
                planted=planted,
                shadows=tuple(sorted(client for client, _, is_shadow in clients if is_shadow)),
                domains={client: domain for client, domain, _ in clients if domain is not None},
            )
        except ValidationError as error:
            raise ValueError(f"{name}: {one_line(error)}") from None
    return attacks


def _columns(condition: Condition) -> dict[str, Any]:
    """The condition as columns of a table, where 0 images stand for the whole client."""
    return {**condition._asdict(), "n_images": condition.n_images or 0}


def _by_condition(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[Condition, list[Mapping[str, Any]]]]:
    """The rows by evaluation and condition, in order."""
    by_evaluation: dict[str, dict[Condition, list[Mapping[str, Any]]]] = {}
    for row in rows:
        condition = Condition(row["variant"], row["rounds"], row["n_images"] or None)
        by_evaluation.setdefault(row["evaluation"], {}).setdefault(condition, []).append(row)
    return by_evaluation


def _clients(scores: pa.Table) -> dict[str, list[tuple[str, str | None, bool]]]:
    """By evaluation each client once, with its domain and whether it is a shadow client, in order."""
    columns = ("evaluation", "client", "domain", "is_shadow")
    clients: dict[str, list[tuple[str, str | None, bool]]] = {}
    for evaluation, *client in dict.fromkeys(zip(*(scores[name].to_pylist() for name in columns), strict=True)):
        clients.setdefault(evaluation, []).append(tuple(client))
    return clients


_BLOCK = ("evaluation", "variant", "rounds", "n_images", "role", "crossed_with", "metric", "repeat")


def _blocks(scores: Any) -> list[dict[str, Any]]:
    """The rows of one evaluation, condition, role, metric and repeat as one, with the values of its trials as lists.

    Raises:
        ValueError: A trial is missing or there twice.
    """
    blocks = []
    trials = scores["trial"].to_numpy()
    values = {name: scores[name].to_numpy() for name in ("unit", "client", "value")}
    for key, row_indices in scores.groupby(list(_BLOCK), sort=False).indices.items():
        order = row_indices[np.argsort(trials[row_indices], kind="stable")]
        if not np.array_equal(trials[order], np.arange(len(order))):
            raise ValueError(f"want each trial once among the scores of {key[4]} in {key[0]}, got {len(order)} rows")
        blocks.append({**dict(zip(_BLOCK, key, strict=True)), **{n: v[order].tolist() for n, v in values.items()}})
    return blocks
