"""Trials: an attacked artifact, its control artifacts, and the ground truth of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Task


class TrialNeeds(NamedTuple):
    """A task's requirements on its trials, besides artifacts and controls.

    Attributes:
        image_bounds: Bounds of reconstructed images are scored: ``nearest_own``, ``own_colour``, ``own_mean`` and
            ``autoencoder``; there are fewer random artifacts.
        hidden_size: The number of images of an artifact is hidden. Controls have any number of images; for a whole client
            they are other whole clients.
        contributions: Ground truth contains each image's contribution to the artifact.
        many_singles: More artifacts of one image are evaluated, if that is cheap.
        mean_image: Ground truth contains the mean image.
        hidden_domain: The domains of artifacts are hidden from adversaries that otherwise know them.
        hidden_names: The senders of the last round are hidden.
        held_out: Members are the images that a client holds out, not those that it trains on.
    """

    image_bounds: bool = False
    hidden_size: bool = False
    contributions: bool = False
    many_singles: bool = False
    hidden_names: bool = False
    mean_image: bool = False
    hidden_domain: bool = False
    held_out: bool = False

    @classmethod
    def of(cls, task: Task | None) -> "TrialNeeds":
        """The task's requirements; none for None."""
        if task is None:
            return cls()
        return cls(
            task.draws_images,
            task.hides_size,
            task.needs_contributions,
            task.many_singles,
            task.hides_names,
            task.needs_mean_image or any(implied.needs_mean_image for implied in task.implied),
            task.hides_domain,
            task.of_held_out,
        )


@dataclass(frozen=True, eq=False)
class ScoredObservation:
    """An observation, and the ground truth that its prediction is scored against."""

    observation: Observation
    truth: GroundTruth


@dataclass(frozen=True, eq=False)
class Trial:
    """An attacked artifact, its controls, and their ground truth.

    Attributes:
        unit: The independent unit's name: a client, or one artifact of one.
        client: The client of the artifact.
        size: Number of images of the artifact; None for the whole client.
        truth: The truth about the attacked artifact.
        by_role: By role (``attack``, then controls and bounds), the observations to predict; their scores are averaged.
        given: By role, predictions that need no adversary, with their ground truth (``nearest_own``).
        crossed: For a whole client, by client, the observation of that client's artifact with this trial's candidates and
            truth; for a global artifact, by number, observations with candidates that are not among its images.
    """

    unit: str
    client: str
    size: int | None
    truth: GroundTruth
    by_role: Mapping[str, Sequence[ScoredObservation]]
    given: Mapping[str, Sequence[tuple[Prediction, GroundTruth]]]
    crossed: Mapping[str, ScoredObservation] = field(default_factory=dict)

    def observations(self) -> Iterator[Observation]:
        """All observations of the trial; the same one may occur several times."""
        for observations in self.by_role.values():
            yield from (scored.observation for scored in observations)
        yield from (scored.observation for scored in self.crossed.values())


@dataclass(frozen=True, eq=False)
class CalibrationTrial:
    """A simulated artifact that an adversary calibrates with.

    Attributes:
        client: The simulated client.
        size: Number of images of the artifact; None for the whole client.
        scored: The observation and its ground truth, which the adversary knows.
    """

    client: str
    size: int | None
    scored: ScoredObservation


@dataclass(frozen=True, eq=False)
class AdversaryTrials:
    """One adversary and its trials.

    Attributes:
        adversary: The adversary.
        trials: The evaluated trials.
        calibration: The simulated trials that it calibrates with.
        shifted: Whether each simulated client of the calibration has images in another look.
        misfit: Why simulated clients cannot stand for whole clients, in one clause; None if they can.
    """

    adversary: Adversary
    trials: Sequence[Trial]
    calibration: Sequence[CalibrationTrial] = ()
    shifted: bool = False
    misfit: str | None = None
