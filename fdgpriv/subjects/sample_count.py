"""The number of samples that a client shares for a weighted average, as a subject."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import SERVER, Artifact, ModelState, SampleCount
from fdgpriv.roles import Defense
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class CountCraft(Craft):
    """How many images there are.

    Attributes:
        defense: Of the run.
        round: Of the artifacts, from 0.
    """

    defense: Defense
    round: int

    kind = SampleCount.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        made = SampleCount(client=SERVER, round=self.round, count=torch.tensor(len(index)))
        return self.defense.protect(made, rng) if defended else made

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """The count (1,)."""
        assert isinstance(artifact, SampleCount)
        return artifact.count.float()[None]

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        count = row[0].round().clamp_min(1).to(torch.int64)
        return SampleCount(client=SERVER, round=self.round, count=count)


def count_subject(transcript: Transcript, defense: Defense) -> Subject[Craft] | None:
    """The counts that clients shared in the last round in which any did."""
    counts = {r.origin: a for r, a in transcript.of_kind(SampleCount.kind) if r.receiver == SERVER and a is not None}
    if not counts:
        return None
    last = max(artifact.round for artifact in counts.values())
    wire = {name: artifact for name, artifact in counts.items() if artifact.round == last}
    return Subject(
        craft=CountCraft(defense, last),
        level="client",
        wire=wire,
        clients=tuple(wire),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.KNOWS_N}),
    )
