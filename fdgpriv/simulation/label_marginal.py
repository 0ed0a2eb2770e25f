"""Artifact kind: the class distribution that a client shares with the server (LSI with ``inversion_labels=marginal``)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import LabelMarginal
from fdgpriv.defense import Defense
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, DefendedSimulator, Simulator
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class MarginalSimulator(DefendedSimulator):
    """The share of the images in each class.

    Attributes:
        defense: Of the run.
        classes: K.
    """

    defense: Defense
    classes: int

    kind = LabelMarginal.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        counts = sample.labels.bincount(minlength=self.classes).float()
        return [LabelMarginal(client=SERVER, round=0, share=counts / counts.sum())]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The shares (K,)."""
        assert isinstance(artifact, LabelMarginal)
        return artifact.share

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        share = row.float().clamp_min(0)
        return LabelMarginal(client=SERVER, round=0, share=share / share.sum().clamp_min(1e-9))


def marginal_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The class distributions that clients shared."""
    wire = {r.origin: a for r, a in run.transcript.of_kind(LabelMarginal.kind) if isinstance(a, LabelMarginal)}
    if not wire:
        return None
    return ArtifactSeries(
        simulator=MarginalSimulator(run.defense, len(next(iter(wire.values())).share)),
        level="client",
        wire=wire,
        clients=tuple(wire),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
    )
