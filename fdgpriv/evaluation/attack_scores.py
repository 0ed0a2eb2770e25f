"""The stored scores of one attack by one adversary on one kind of artifact, and the hypotheses they test.

Which controls a hypothesis is compared with is fixed here, before any score is computed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, model_validator

from fdgpriv.attack import Attack
from fdgpriv.evaluation.scores import OF_DOMAIN, ONE_ROUND, Scores
from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.question import Secret
from fdgpriv.statistics.measured import Direction
from fdgpriv.statistics.questions import Absent
from fdgpriv.statistics.rule import NO_OTHER_CLIENT, Hypothesis
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Capability, ThreatModel
from fdgpriv.utils.records import Amount, Count, Entry, FileName, Probability, Sha256, Text, Word

LABEL_PRIORS = ("uniform", "public_shares", "half_uniform", "domain_shares")
DOMAIN_CONTROLS = ("noise", "mean_image", "domain_mean", *LABEL_PRIORS, "random_style", "other_domain")
CLIENT_CONTROLS = (*DOMAIN_CONTROLS, "unconditional", "other_client")
BOUNDS = ("nearest_own", "own_colour", "own_mean", "own_domain_mean", "autoencoder")
CONTINUOUS = ("mse",)  # metrics whose least value is no hit: leads far below their bounds are tested without these
ROUNDING = 1e-6

Images = Annotated[int, Field(ge=1)]
_BY_SIZE = TypeAdapter(dict[Images | None, Scores])


def _by_size(pairs: Any) -> dict[int | None, Scores]:
    """Validated here, where JSON's lists may stand for tuples: after a BeforeValidator they are Python's."""
    return _BY_SIZE.validate_python(dict(pairs), strict=False)


BySize = Annotated[  # a JSON object has no null among its names, so that on disk it is a list of pairs
    dict[Images | None, Scores], BeforeValidator(_by_size), PlainSerializer(lambda by_size: list(by_size.items()))
]


class AttackScores(Entry):
    """Scores of one attack, and what a verdict needs besides.

    Attributes:
        attack: Its name.
        task: Its name; secret, metric, higher_leaks, bounds, perfect, scopes, relevant, relative_to and exact are the task's.
        budget: Its settings, in words.
        single_images: Whether it is evaluated on single images.
        threat: The adversary.
        kind: Of the artifact.
        level: Of the artifact on the wire: image, client or group.
        shared: Whether that artifact is on the wire at all.
        rounds_read, clients_read: How many rounds, and the artifacts of how many clients, the attack read to predict.
        auxiliary_images: Number of images that the adversary held.
        by_size: Scores by number of images of the artifact; None is the whole client.
        ablations: Scores on single images by ``layer``, or by ``variant`` of the attack, the strongest last.
        ablation: Which of the two.
        by_rounds: By number of rounds and of images, ascending, scores on that many rounds' artifacts combined.
        undefended: On single images without the defense, at the deepest layer where it attacks layers, by the same attack
            with the same budget.
        unaware: On the artifacts on the wire, by an adversary that does not know the defense; None where there is nothing
            to know.
        planted: By scope, how often a leak of relevant size planted in these artifacts is found.
        chance: Expected score of a random prediction, where that is one number.
        not_applicable: Why nothing was evaluated, or None.
        failed: Whether that is an exception, or an answer that is no prediction.
        shadows: Clients among the units that took no part in training.
        domains: By client, the name of its main domain.
        figures: Image files, relative to the run's folder.
        tables: Further files beside the scores' own, by name, with their SHA-256.
        attack_s: Duration in seconds.
    """

    attack: Word
    task: Word
    secret: Secret
    metric: Word
    higher_leaks: bool
    bounds: tuple[float, float] | None
    perfect: float | None = None
    scopes: tuple[Word, ...]
    relevant: Amount
    relative_to: tuple[Word, ...] = ()
    exact: bool
    budget: Text
    single_images: bool
    threat: Threat
    kind: Word
    level: Word = "client"
    shared: bool = False
    rounds_read: Count = 1
    clients_read: Count = 1
    auxiliary_images: Count = 0
    by_size: BySize = Field(default_factory=dict)
    ablations: dict[Word, Scores] = Field(default_factory=dict)
    ablation: Literal["layer", "variant"] = "layer"
    by_rounds: list[tuple[Images, Images | None, Scores]] = Field(default_factory=list)
    undefended: Scores | None = None
    unaware: Scores | None = None
    planted: dict[Word, Probability] = Field(default_factory=dict)
    chance: float | None = None
    not_applicable: Text | None = None
    failed: bool = False
    shadows: tuple[Word, ...] = ()
    domains: dict[Word, Word] = Field(default_factory=dict)
    figures: tuple[FileName, ...] = ()
    tables: dict[FileName, Sha256] = Field(default_factory=dict)
    attack_s: Amount = 0.0

    @classmethod
    def of(cls, attack: Attack, threat: ThreatModel, kind: str, task: Task | None = None, **found: Any) -> Self:
        """Scores of this attack by this adversary on this kind of artifact; `found` are the fields from `level` on.

        They are on the attack's own task, or on one that this implies.
        """
        task = task or attack.task
        return cls(
            attack=attack.name(),
            task=task.name(),
            secret=task.secret,
            metric=task.metric,
            higher_leaks=task.higher_leaks,
            bounds=task.bounds,
            perfect=task.perfect,
            scopes=task.scopes,
            relevant=task.relevant,
            relative_to=task.relative_to,
            exact=task.exact,
            budget=attack.budget(),
            single_images=attack.group_sizes is None or 1 in attack.group_sizes,
            threat=Threat(
                role=threat.role, auxiliary=str(threat.auxiliary), capabilities=tuple(sorted(threat.capabilities))
            ),
            kind=kind,
            **found,
        )

    @model_validator(mode="after")
    def _whole_and_in_range(self) -> Self:
        every = [*self.by_size.values(), *(scores for _, _, scores in self.by_rounds), *self.ablations.values()]
        low, high = self.bounds or (-math.inf, math.inf)
        for scores in [*every, *(one for one in (self.undefended, self.unaware) if one)]:
            scores.check()
            for score in (score for values in scores.headline.values() for score in values):
                if not low - ROUNDING <= score <= high + ROUNDING:
                    raise ValueError(f"want {self.metric} in [{low}, {high}], got {score}")
        if not self.by_size and self.not_applicable is None:
            raise ValueError("want scores, or not_applicable with a reason; got neither")
        return self

    @property
    def size(self) -> int | None:
        """Number of images of the artifact that the verdict is about; None for the whole client."""
        return 1 if self.level == "image" else None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the predictions that the verdict is about; empty where they are not known."""
        return self.by_size.get(self.size, Scores()).fingerprint

    @property
    def sign(self) -> int:
        """1 where a higher score leaks more, else -1."""
        return 1 if self.higher_leaks else -1

    @property
    def direction(self) -> Direction:
        """The same as a `Direction`."""
        return "higher_leaks" if self.higher_leaks else "lower_leaks"

    @property
    def main_scope(self) -> str:
        """The scope that its positive control is tested in."""
        return "client" if "client" in self.scopes else "domain"

    def controls(self, scope: str, scores: Scores) -> dict[str, list[float]]:
        """The controls of this scope, ``client`` or ``domain``, that the threat model allows and the evaluation has.

        An adversary that knows the domain has its mean image and shares of labels without any artifact, so that in both
        scopes it must beat those.
        """
        names = list(CLIENT_CONTROLS if scope == "client" else DOMAIN_CONTROLS)
        if Capability.KNOWS_DOMAIN not in self.threat.capabilities:
            names = [name for name in names if name not in OF_DOMAIN]
        return {name: scores.headline[name] for name in names if name in scores.headline}

    def perfect_score(self, scores: Scores) -> float | None:
        """The score of a perfect attack: the task's, or the bound of the attack's own decoder; None where there is none."""
        decoder = scores.headline.get("autoencoder")
        return float(np.mean(decoder)) if self.perfect is None and decoder else self.perfect

    def relevant_effect(self, scores: Scores) -> float:
        """The least lead that matters, in the metric's unit."""
        return self.relevant * (self._strongest(scores) if self.relative_to else 1.0)

    def _strongest(self, scores: Scores) -> float:
        """The mean score of the strongest of the controls that the relevant effect is relative to; else of the attack."""
        controls = self.controls(self.main_scope, scores)
        rows = [controls[name] for name in self.relative_to if name in controls] or [scores.headline["attack"]]
        return self.sign * max(self.sign * float(np.mean(values)) for values in rows)

    def hypothesis(self, scope: str, scores: Scores | None) -> Hypothesis | Absent:
        """The hypothesis that these scores leak in this scope, or the reason why it cannot be tested."""
        if self.failed:
            return Absent(self.not_applicable or "", because="failed")
        if self.not_applicable or scores is None:
            return Absent(self.not_applicable or "nothing was evaluated at this level", "not_applicable")
        if scope not in self.scopes:
            return Absent(f"the {self.secret} is not asked for in the {scope} scope", "not_applicable")
        controls = self.controls(scope, scores)
        if any(not any(controls[name]) for name in self.relative_to if name in controls):
            return Absent("the public prior already answers this exactly", "not_applicable")
        needed = "other_client" if scope == "client" else "other_domain"
        if needed not in controls:
            return Absent(NO_OTHER_CLIENT if scope == "client" else "no client of another domain exists")
        return self._hypothesis(scores, controls, scores.units)

    def rise(self, size: int | None, scores: Scores) -> Hypothesis:
        """The hypothesis that these scores, on several rounds, exceed those on one; all artifacts of a client are one unit."""
        return self._hypothesis(scores, {ONE_ROUND: self.one_round(size).headline["attack"]}, scores.clients)

    def _hypothesis(
        self, scores: Scores, controls: Mapping[str, Sequence[float]], cluster: Sequence[str]
    ) -> Hypothesis:
        oriented = self.bounds if self.bounds is None or self.higher_leaks else (-self.bounds[1], -self.bounds[0])
        oriented = None if self.metric in CONTINUOUS else oriented
        return Hypothesis(
            attack=self.sign * np.asarray(scores.headline["attack"]),
            controls={name: self.sign * np.asarray(values) for name, values in controls.items()},
            cluster=np.asarray(cluster),
            bounds=oriented,
            shared_variance=scores.shared_variance,
            artifact_used=scores.artifact_used,
        )

    @property
    def most_rounds(self) -> int:
        """The largest number of rounds that were combined; 0 where none were."""
        return max((rounds for rounds, _, _ in self.by_rounds), default=0)

    def one_round(self, size: int | None) -> Scores:
        """The scores on one round at this size."""
        return next(scores for rounds, images, scores in self.by_rounds if (rounds, images) == (1, size))

    def positive(self) -> Scores | None:
        """The positive control's scores: of undefended single images (or whole clients), or at the deepest layer."""
        if self.undefended is None and self.ablations and self.ablation == "layer":
            return list(self.ablations.values())[-1]
        return self.undefended or self.by_size.get(1)
