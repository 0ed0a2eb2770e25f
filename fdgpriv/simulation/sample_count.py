"""Artifact kind: the number of samples that a client shares for a weighted average."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.defense import Defense
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, DefendedSimulator, Simulator
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class CountSimulator(DefendedSimulator):
    """Counts the images.

    Attributes:
        defense: Of the run.
        round: Of the artifacts, from 0.
    """

    defense: Defense
    round: int

    kind = SampleCount.kind

    def answer(self, party: ClientImages, index: Tensor, rng: torch.Generator, granularity: str) -> Message:
        return [SampleCount(client=SERVER, round=self.round, count=torch.tensor(len(index)))]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The count (1,)."""
        assert isinstance(artifact, SampleCount)
        return artifact.count.float()[None]

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        count = row[0].round().clamp_min(1).to(torch.int64)
        return SampleCount(client=SERVER, round=self.round, count=count)


def count_series(transcript: Transcript, defense: Defense) -> ArtifactSeries[Simulator] | None:
    """The counts of the last round in which any were shared."""
    counts = {r.origin: a for r, a in transcript.of_kind(SampleCount.kind) if r.receiver == SERVER and a is not None}
    if not counts:
        return None
    last = max(artifact.round for artifact in counts.values())
    wire = {name: artifact for name, artifact in counts.items() if artifact.round == last}
    return ArtifactSeries(
        simulator=CountSimulator(defense, last),
        level="client",
        wire=wire,
        clients=tuple(wire),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.SEES_SAMPLE_COUNTS}),
    )
