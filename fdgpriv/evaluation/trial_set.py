"""The trials laid out on one artifact series, which all adversaries share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.evaluation.trial import Trial
from fdgpriv.evaluation.trial_layout import TrialLayout
from fdgpriv.simulation.output_cache import OutputCache


@dataclass(frozen=True, eq=False)
class TrialSet:
    """Trials on one artifact series, shared by all adversaries.

    Attributes:
        layout: The layout of the trials.
        sizes: Numbers of images of the artifacts; None for the whole client.
        leaked_share: The share of each client's images that leaked to the adversary; None if none leaked.
        leaked: By client, indices of the leaked images.
        trials: The trials.
    """

    layout: TrialLayout
    sizes: Sequence[int | None]
    leaked_share: float | None
    leaked: Mapping[str, Tensor]
    trials: Sequence[Trial]

    @property
    def linkable(self) -> list[Artifact]:
        """The artifacts of all clients whose earlier artifact is known to adversaries."""
        trials = [trial for trial in self.trials if trial.size is None and trial.client in self.layout.earlier]
        return [trial.by_role["attack"][0].observation.artifact for trial in trials]

    @cached_property
    def output_cache(self) -> OutputCache:
        """Cache of the artifacts' model outputs, shared by all adversaries."""
        observations = [observation for trial in self.trials for observation in trial.observations()]
        return OutputCache.among((observation.sent, observation.membership_candidates) for observation in observations)
