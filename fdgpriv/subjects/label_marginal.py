"""The share of each label that a client tells the server outright, as a subject (LSI with ``inversion_labels=marginal``)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import SERVER, Artifact, ModelState
from fdgpriv.roles import Defense
from fdgpriv.states import LabelMarginal
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class MarginalCraft(Craft):
    """How many of the images are of each class, over their number.

    Attributes:
        defense: Of the run.
        classes: K.
    """

    defense: Defense
    classes: int

    kind = LabelMarginal.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        counts = held.labels[index].bincount(minlength=self.classes).float()
        made = LabelMarginal(client=SERVER, round=0, share=counts / counts.sum())
        return self.defense.protect(made, rng) if defended else made

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """The shares (K,)."""
        assert isinstance(artifact, LabelMarginal)
        return artifact.share

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        share = row.float().clamp_min(0)
        return LabelMarginal(client=SERVER, round=0, share=share / share.sum().clamp_min(1e-9))


def marginal_subject(transcript: Transcript, defense: Defense) -> Subject[Craft] | None:
    """The shares that clients told."""
    wire = {r.origin: a for r, a in transcript.of_kind(LabelMarginal.kind) if isinstance(a, LabelMarginal)}
    if not wire:
        return None
    return Subject(
        craft=MarginalCraft(defense, len(next(iter(wire.values())).share)),
        level="client",
        wire=wire,
        clients=tuple(wire),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
    )
