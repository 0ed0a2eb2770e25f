"""Target: the single style that a server computes from all clients' styles and broadcasts (PARDON)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.transcript import Transcript
from fdgpriv.targets.recorded_styles import RecordedStyles, each_halfway
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.style import StyleSimulator
from fdgpriv.targets.target import Target

Blend = Callable[[Sequence[StyleStatistics]], InterpolationStyle]


@dataclass(frozen=True, eq=False)
class SharedStyleSimulator(StyleSimulator):
    """Simulates the shared style, in the form of a client's style.

    Attributes:
        blend: The server's function from clients' styles to the shared one.
        typical: The median number of images of a client.
    """

    blend: Blend
    typical: int

    kind = InterpolationStyle.kind

    def make(
        self,
        held: HeldImages,
        index: Tensor,
        rng: torch.Generator,
        *,
        granularity: str = "client",
        defended: bool = True,
    ) -> StyleStatistics:
        """The shared style of a federation whose clients hold `typical` of these images each, the last one the rest."""
        parts = index.split(self.typical)
        styles = [
            super(SharedStyleSimulator, self).make(held, p, rng, granularity=granularity, defended=defended)
            for p in parts
        ]
        return self.formed(self.blend(styles))

    def formed(self, style: InterpolationStyle) -> StyleStatistics:
        """The shared style in the form of a client's style."""
        return self.unflat(torch.cat([style.mean, style.std]), None)

    def layers(self) -> tuple[str, ...]:
        return ()


def shared_style_target(
    transcript: Transcript, method: FederatedMethod, evidence: RecordedStyles | None, defense: Defense
) -> Target[Simulator] | None:
    """The last shared style that the server sent; None where there is none, or where clients' styles have more moments
    than it.
    """
    shared = [
        style for _, style in transcript.of_kind(InterpolationStyle.kind) if isinstance(style, InterpolationStyle)
    ]
    blend: Blend | None = method.disclosure().interpolation
    if not shared or blend is None or evidence is None or len(evidence.wire) < 2 or len(evidence.template.mean_var):
        return None
    sizes = sorted(record.samples for record in transcript.records if record.kind == StyleStatistics.kind)
    simulator = SharedStyleSimulator(evidence, defense, evidence.template, blend, sizes[len(sizes) // 2])
    clients = tuple(evidence.wire)
    return Target(
        simulator=simulator,
        level="group",
        wire=dict.fromkeys(clients, simulator.formed(shared[-1])),
        clients=clients,
        receiver=each_halfway(clients),
    )
