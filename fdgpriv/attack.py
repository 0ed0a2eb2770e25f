"""The role Attack: infers private facts from artifacts under a stated threat model."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import torch

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.registry import Role
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.tasks.task import Predictions, Task

GroupSizes = tuple[int | None, ...]
GROUP_SIZES: GroupSizes = (1, 2, 5, 20, None)
FEW_GROUP_SIZES: GroupSizes = (1, None)  # if simulating an artifact is expensive


class Attack(Role):
    """An algorithm that infers private facts from artifacts, as an adversary could.

    Attributes:
        reads: The kinds of artifact that it reads, as classes, or names of artifact series; the first is its main one. It
            is evaluated on each of them that a run shared.
        task: The secret that it infers, with metric, chance and artifact-free baselines.
        threats: The adversaries that can run it, as in fdgpriv/threat.py.
        presets: By preset of the audit, the fields that it sets.
        group_sizes: Numbers of images of the artifacts that it is evaluated on, with None for the whole client. If None,
            `GROUP_SIZES`, or `FEW_GROUP_SIZES` if simulating an artifact is expensive.
        ablations: Additional evaluations; ``layer``: single images at every layer; ``rounds``: artifacts of one client
            from several rounds combined.
        evaluates_models: Whether it passes images through models that clients shared, whose outputs must then be finite.
        learned: Whether it learns from simulated artifacts; against a planted leak it learns from artifacts with the same
            leak.
    """

    folder = "attacks"
    reads: ClassVar[tuple[type[Artifact] | str, ...]]
    task: ClassVar[Task]
    threats: ClassVar[tuple[str, ...]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    group_sizes: ClassVar[GroupSizes | None] = None
    ablations: ClassVar[tuple[str, ...]] = ()
    evaluates_models: ClassVar[bool] = False
    learned: ClassVar[bool] = False

    @abstractmethod
    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> Predictions | Sequence[Prediction] | torch.Tensor:
        """A prediction for each observation, in the form of the task."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks that its predictions answer; the first is `task`."""
        return self.task, *self.task.implied

    @classmethod
    def kinds(cls) -> tuple[str, ...]:
        """The names of the kinds of artifact that it reads."""
        return tuple(kind if isinstance(kind, str) else kind.kind for kind in cls.reads)

    @classmethod
    def sizes(cls, series: ArtifactSeries[Simulator]) -> GroupSizes:
        """The numbers of images of these artifacts that it is evaluated on.

        Few sizes are used if clients receive different models, since simulations cannot be shared between them.
        """
        sizes = cls.group_sizes or (FEW_GROUP_SIZES if series.expensive else GROUP_SIZES)
        return tuple(size for size in sizes if size in FEW_GROUP_SIZES or not series.own_models)

    def check(self, image_size: int) -> None:
        """Raises ValueError in one line, before any training, if it cannot work on images of this side in pixels."""

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        """Why it cannot be applied to this series of artifacts, in one sentence; None if it can."""
        return None

    def variants(self, kind: str) -> Mapping[str, "Attack"]:
        """By name, further configurations that are evaluated on single images, the strongest last.

        Args:
            kind: Kind of the artifacts.
        """
        return {}

    def budget(self) -> str:
        """Its configuration as text, for the reason of a verdict."""
        settings: Sequence[Any] = fields(self) if is_dataclass(self) else ()
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in settings) or "no settings"
