"""The interface of a task: a secret, how a prediction of it is scored, and artifact-free baselines."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.results.question import Secret
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.statistics.measured import Measured

Baselines = dict[str, list[Prediction]]
Form = tuple[int | None, ...]  # the shape of a prediction; None stands for any number from 1 on


TrialAnswers = list[tuple[int, Prediction, GroundTruth]]  # number of the trial, prediction, truth


class SharedVariances(NamedTuple):
    """Variances due to images that units share: by role, of the mean score; by control, of the attack's mean lead over it."""

    of_mean: dict[str, float]
    of_lead: dict[str, float]


class ScoredCandidate(NamedTuple):
    """One scored membership candidate: its index into the pool, whether it is a member, and its score."""

    image: int
    is_member: bool
    score: float


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[Prediction]):
    """The predictions of an attack, one for each observation.

    Attributes:
        values: In the order of the observations, in the form that the task defines.
        baselines: By control, artifact-free predictions of the attack, which replace or complement the task's baselines.
        set_size: For tasks on sets of images, the number of images in a baseline; 0 for single images.
    """

    values: Sequence[Prediction]
    baselines: Mapping[str, list[Prediction]] = field(default_factory=dict)
    set_size: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Prediction:  # type: ignore[override]
        return self.values[index]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.values)

    @classmethod
    def of(cls, predictions: "Predictions | Sequence[Prediction] | Tensor") -> "Predictions":
        """Wraps the result of `Attack.infer`: a sequence of predictions, or a tensor whose rows they are."""
        return predictions if isinstance(predictions, Predictions) else cls(list(predictions))


class Task(ABC):
    """One secret.

    The name of a control that applies only to one domain or class contains it: ``domain_mean:NAME``, ``domain_shares:NAME``
    and ``class_mean:LABEL``. Several baselines of one name are scored separately, and the scores are averaged.

    Attributes:
        secret: The kind of secret: domain, labels, size, membership, content, average_look or identity.
        metric: The metric's name; `higher_leaks` is its direction, `bounds` its range if it has one.
        perfect: The score of a perfect prediction; None if it depends on the attack's decoder, or is no number.
        relevant: The smallest lead over a control that matters, in the metric's unit; with `relative_to`, as a share of the
            score of the strongest of these controls.
        scopes: The possible subjects of a leak: a ``client`` beyond its domain, or its ``domain``.
        compares_ratios: Whether scores are positive and of several orders of magnitude, so that gains are ratios.
        weighed: Whether predictions are blended with `prior_prediction`.
        ranks: Whether only the order of a prediction's scores counts.
        exact: Whether the secret is either recovered or not; a smaller error than a control's is then no leak.
        hides_size: Whether the number of images of an artifact is the secret, so that observations hide it.
        draws_images: Whether predictions are images, which are shown in the report and compared with further bounds.
        needs_contributions: Whether ground truth must contain each image's contribution to the artifact.
        hides_domain: Whether the domain of an artifact is the secret, so that observations hide it.
        hides_names: Whether the sender of an artifact of the last round is the secret, so that views hide it.
        needs_mean_image: Whether ground truth must contain the mean of the artifact's images.
        of_held_out: Whether members are the images that a client holds out, not those that it trains on.
        many_singles: Whether scores of single images are noisy, so that more of them are evaluated if that is cheap.
        implied: Further tasks that a prediction also answers.
    """

    secret: ClassVar[Secret]
    metric: ClassVar[str]
    higher_leaks: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float] | None] = None
    perfect: ClassVar[float | None] = None
    relevant: ClassVar[float]
    relative_to: ClassVar[tuple[str, ...]] = ()
    compares_ratios: ClassVar[bool] = False
    weighed: ClassVar[bool] = True
    ranks: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    scopes: ClassVar[tuple[str, ...]] = ("client", "domain")
    hides_size: ClassVar[bool] = False
    draws_images: ClassVar[bool] = False
    needs_contributions: ClassVar[bool] = False
    hides_domain: ClassVar[bool] = False
    hides_names: ClassVar[bool] = False
    needs_mean_image: ClassVar[bool] = False
    of_held_out: ClassVar[bool] = False
    many_singles: ClassVar[bool] = False
    implied: ClassVar[tuple["Task", ...]] = ()

    @classmethod
    def name(cls) -> str:
        """The class name in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        """The shapes that a prediction of this truth may have; empty if any shape is accepted."""
        return ()

    @abstractmethod
    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        """The metric (M,) of each prediction against its ground truth."""

    @abstractmethod
    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """By control, this adversary's predictions without any artifact, in the form of `predictions`."""

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction | None:
        """The adversary's artifact-free prediction; None if predictions from artifacts are never blended.

        Args:
            adversary: The adversary.
            like: A prediction of the same form.
            domain: The attacked client's domain, if the adversary knows it.
        """
        return None

    def blend(self, prediction: Prediction, prior_prediction: Prediction, weight: float) -> Prediction:
        """`weight` in [0, 1] times the prediction, plus 1 - `weight` times the artifact-free prediction."""
        return weight * prediction + (1 - weight) * prior_prediction

    def uninformative(self, prediction: Prediction, known: Sequence[Prediction]) -> bool:
        """Whether a prediction equals an artifact-free one in `known`; if only order counts, whether all scores are equal."""
        if self.ranks:
            return bool((prediction == prediction[0]).all())
        return any(torch.equal(prediction, other) for other in known if other.shape == prediction.shape)

    def chance(self, adversary: Adversary, truth: GroundTruth) -> float | None:
        """Expected score of a random prediction; None if it is no fixed number."""
        return None

    def answer(self, prediction: Prediction) -> Prediction:
        """The answer to this task in a prediction of the attack; for the attack's own task, the prediction itself."""
        return prediction

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        """Why these artifacts have no such secret, in one sentence; None if they have."""
        return None

    def askable(self, truth: GroundTruth) -> bool:
        """Whether this ground truth contains the secret."""
        return True

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        """Further metrics of each prediction, by name, (M,) each."""
        return {}

    def shared_variances(self, answers: Mapping[str, TrialAnswers], units: Sequence[str]) -> SharedVariances:
        """Variances of mean scores due to candidates that several units share.

        Args:
            answers: By name (``attack``, controls), the answers for each trial; every trial has one of each name.
            units: The independent unit of each trial.
        """
        return SharedVariances({}, {})

    def candidates(self, prediction: Prediction, truth: GroundTruth) -> list[ScoredCandidate]:
        """The scored membership candidates of a prediction; empty if the task has none."""
        return []

    def of_set(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
        """Figures of the predictions as a set, such as FID; no verdict depends on them."""
        return {}
