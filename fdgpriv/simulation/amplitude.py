"""Artifact kind: amplitude spectra of images."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import PEER, SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import AmplitudeSpectrum
from fdgpriv.defense import Defense
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.relays import receiver_of, relayed_to
from fdgpriv.simulation.simulator import ClientSample, DefendedSimulator, Simulator


@dataclass(frozen=True, eq=False)
class AmplitudeSimulator(DefendedSimulator):
    """The mean amplitude spectrum of images.

    Attributes:
        defense: The run's defense.
        template: A recorded artifact, for its form.
    """

    defense: Defense
    template: AmplitudeSpectrum

    kind = AmplitudeSpectrum.kind

    def spectra(self, images: Tensor) -> Tensor:
        """The amplitudes (N, 3, H, W) of each image (N, 3, H, W)."""
        amplitudes: Tensor = torch.fft.fft2(images.double()).abs().float()
        return amplitudes

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        return [self._spectrum(self.spectra(sample.images).mean(0), sample.granularity)]

    def each(self, sample: ClientSample, rng: torch.Generator) -> Tensor:
        return self.spectra(sample.images).flatten(1)

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """All amplitudes (3HW,)."""
        assert isinstance(artifact, AmplitudeSpectrum)
        return artifact.amplitude.flatten()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return self._spectrum(row.view_as(self.template.amplitude).clamp_min(0), self.template.granularity)

    def anonymised(self, artifact: Artifact, granularity: str) -> Artifact:
        return AmplitudeSpectrum.build(
            artifact.tensors(), {**artifact.facts(), "client": PEER, "granularity": granularity}
        )

    def _spectrum(self, amplitude: Tensor, granularity: str) -> AmplitudeSpectrum:
        template = self.template
        return AmplitudeSpectrum(
            client=template.client, round=template.round, amplitude=amplitude, granularity=granularity
        )


def amplitude_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The last recorded spectrum of each client."""
    wire: dict[str, Artifact] = {}
    for record, artifact in run.transcript.of_kind(AmplitudeSpectrum.kind):
        if record.receiver == SERVER and artifact is not None:
            wire[record.origin] = artifact
    if not wire:
        return None
    template = next(iter(wire.values()))
    assert isinstance(template, AmplitudeSpectrum)
    client_spectra: Mapping[str, Artifact] = wire if template.level == "client" else {}
    return ArtifactSeries(
        simulator=AmplitudeSimulator(run.defense, template),
        level=template.level,
        wire=client_spectra,
        clients=tuple(wire),
        receiver=receiver_of(relayed_to(run.transcript, AmplitudeSpectrum.kind), list(wire)),
    )
