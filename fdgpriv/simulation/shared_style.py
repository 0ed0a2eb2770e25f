"""Artifact kind: the style that a server computes from all clients' styles and broadcasts (PARDON, interpolate)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.recorded_styles import RecordedStyles
from fdgpriv.simulation.relays import opposite_clients
from fdgpriv.simulation.simulator import ClientSample, Simulator
from fdgpriv.simulation.style import StyleSimulator

Blend = Callable[[Sequence[StyleStatistics]], StyleStatistics]


@dataclass(frozen=True, eq=False)
class SharedStyleSimulator(StyleSimulator):
    """Simulates the shared style, in the form of a client's style.

    Attributes:
        blend: The server's function from clients' styles to the shared one, in the form of a client's.
        typical: The median number of images of a client.
    """

    blend: Blend
    typical: int

    kind = InterpolationStyle.kind

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> StyleStatistics:
        """The shared style of a federation whose clients have `typical` of these images each; the last one has the rest."""
        return self._blended([replace(sample, index=index) for index in sample.index.split(self.typical)], rng)

    def simulate_jointly(self, samples: Sequence[ClientSample], rng: torch.Generator) -> list[Artifact]:
        """The shared style, once for each of these clients."""
        return [self._blended(samples, rng)] * len(samples)

    def _blended(self, samples: Sequence[ClientSample], rng: torch.Generator) -> StyleStatistics:
        """The shared style of these clients, without those whose style the defense withholds."""
        client_style = super().simulate
        sharing = [
            sample
            for sample in samples
            if not (sample.defended and self.defense.withholds(self.template, len(sample.index)))
        ]
        return self.blend([client_style(sample, rng) for sample in sharing or samples])

    def layers(self) -> tuple[str, ...]:
        return ()


def shared_style_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The last shared style that the server sent, computed by the method or by a defense; None if there is none.

    None, too, if clients' styles have more moments than the method's shared style.
    """
    recorded_styles, transcript = run.recorded_styles, run.transcript
    if recorded_styles is None or len(recorded_styles.wire) < 2:
        return None
    clients = tuple(recorded_styles.wire)
    shared_and_blend = _style_of_method(transcript, run.method, recorded_styles)
    shared_and_blend = shared_and_blend or _style_of_defense(transcript, recorded_styles, run.defense)
    if shared_and_blend is None:
        return None
    shared, blend = shared_and_blend
    sizes = sorted(r.samples for r in transcript.records if r.kind == StyleStatistics.kind and r.receiver == SERVER)
    return ArtifactSeries(
        simulator=SharedStyleSimulator(
            recorded_styles, run.defense, recorded_styles.template, blend, sizes[len(sizes) // 2]
        ),
        level="group",
        wire=dict.fromkeys(clients, shared),
        clients=clients,
        receiver=opposite_clients(clients),
    )


def _style_of_method(
    transcript: Transcript, method: FederatedMethod, recorded_styles: RecordedStyles
) -> tuple[StyleStatistics, Blend] | None:
    """The last style that the method's server broadcast, and the function that computes it."""
    sent = [style for _, style in transcript.of_kind(InterpolationStyle.kind) if isinstance(style, InterpolationStyle)]
    interpolation = method.disclosure().interpolation
    if not sent or interpolation is None or len(recorded_styles.template.mean_var):
        return None

    def as_client_style(style: InterpolationStyle) -> StyleStatistics:
        return replace(recorded_styles.template, mean=style.mean, std=style.std)

    return as_client_style(sent[-1]), lambda styles: as_client_style(interpolation(styles))


def _style_of_defense(
    transcript: Transcript, recorded_styles: RecordedStyles, defense: Defense
) -> tuple[StyleStatistics, Blend] | None:
    """The last style that the server sent instead of another client's, and the function by which the defense computes it."""
    sent = [
        style
        for record, style in transcript.of_kind(StyleStatistics.kind)
        if record.origin == SERVER and isinstance(style, StyleStatistics) and style.level == "client"
    ]
    if not sent:
        return None

    def blend(styles: Sequence[StyleStatistics]) -> StyleStatistics:
        """Blends with each style repeated as often as the run has clients, since a defense may require many styles."""
        repeated = [style for style in styles for _ in recorded_styles.wire]
        blended = defense.relayed(styles[0], {str(i): style for i, style in enumerate(repeated)})
        assert isinstance(blended, StyleStatistics)
        return blended

    return sent[-1], blend
