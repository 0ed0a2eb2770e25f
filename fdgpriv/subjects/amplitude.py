"""Amplitude spectra as a subject."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import PEER, SERVER, Artifact, ModelState
from fdgpriv.evidence import halfway
from fdgpriv.kinds import AmplitudeSpectrum
from fdgpriv.roles import Defense
from fdgpriv.transcript import Transcript

from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class AmplitudeCraft(Craft):
    """Amplitudes of images' spectra, averaged over them.

    Attributes:
        defense: Of the run.
        template: One artifact as it is on the wire, for its form.
    """

    defense: Defense
    template: AmplitudeSpectrum

    kind = AmplitudeSpectrum.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        amplitude = torch.fft.fft2(held.images[index].double()).abs().mean(0).float()
        made = self._spectrum(amplitude, behind)
        return self.defense.protect(made, rng) if defended else made

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """All amplitudes (3HW,)."""
        assert isinstance(artifact, AmplitudeSpectrum)
        return artifact.amplitude.flatten()

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        return self._spectrum(row.view_as(self.template.amplitude).clamp_min(0), self.template.behind)

    def alike(self, artifact: Artifact, behind: str) -> Artifact:
        return AmplitudeSpectrum.build(artifact.tensors(), {**artifact.facts(), "client": PEER, "behind": behind})

    def _spectrum(self, amplitude: Tensor, behind: str) -> AmplitudeSpectrum:
        like = self.template
        return AmplitudeSpectrum(client=like.client, round=like.round, amplitude=amplitude, behind=behind)


def amplitude_subject(transcript: Transcript, defense: Defense) -> Subject[Craft] | None:
    """The spectra that clients shared; the last of each client's."""
    wire: dict[str, Artifact] = {}
    told: dict[str, list[str]] = {}
    for record, artifact in transcript.of_kind(AmplitudeSpectrum.kind):
        if record.receiver == SERVER and artifact is not None:
            wire[record.origin] = artifact
        elif record.relayed and record.receiver != record.origin:
            told.setdefault(record.origin, []).append(record.receiver)
    if not wire:
        return None
    template = next(iter(wire.values()))
    assert isinstance(template, AmplitudeSpectrum)
    crossed: Mapping[str, Artifact] = wire if template.level == "client" else {}
    receivers = {name: halfway(list(dict.fromkeys(told[name])), i) for i, name in enumerate(wire) if name in told}
    return Subject(
        craft=AmplitudeCraft(defense, template),
        level=template.level,
        wire=crossed,
        clients=tuple(wire),
        receiver=receivers,
        costly=True,  # to read
    )
