"""Artifact kind: the number of samples that a client shares for a weighted average."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.defense import Defense
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, DefendedSimulator, Simulator
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class CountSimulator(DefendedSimulator):
    """Counts the images.

    Attributes:
        defense: The run's defense.
        round: The round of the artifacts, from 0.
    """

    defense: Defense
    round: int

    kind = SampleCount.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        return [SampleCount(client=SERVER, round=self.round, count=torch.tensor(len(sample.index)))]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The count (1,)."""
        assert isinstance(artifact, SampleCount)
        return artifact.count.float()[None]

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        count = row[0].round().clamp_min(1).to(torch.int64)
        return SampleCount(client=SERVER, round=self.round, count=count)


def count_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The counts of the last round in which any were shared."""
    shared = run.transcript.of_kind(SampleCount.kind)
    counts = {record.origin: count for record, count in shared if record.receiver == SERVER and count is not None}
    if not counts:
        return None
    last = max(artifact.round for artifact in counts.values())
    wire = {name: artifact for name, artifact in counts.items() if artifact.round == last}
    return ArtifactSeries(
        simulator=CountSimulator(run.defense, last),
        level="client",
        wire=wire,
        clients=tuple(wire),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.SEES_SAMPLE_COUNTS}),
    )
