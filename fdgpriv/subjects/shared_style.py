"""The one style that a server makes of its clients' (PARDON), as a subject: what it tells everybody about their images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.evidence import Evidence, each_halfway
from fdgpriv.kinds import InterpolationStyle
from fdgpriv.roles import Defense, Method
from fdgpriv.transcript import Transcript

from .style import StyleCraft
from .subject import Craft, Holding, Subject

Blend = Callable[[Sequence[StyleStatistics]], InterpolationStyle]


@dataclass(frozen=True, eq=False)
class SharedStyleCraft(StyleCraft):
    """Its artifacts have the form of a client's style, and are read as such.

    Attributes:
        blend: What the server makes of its clients' styles.
        typical: How many images a client holds, in the middle of all.
    """

    blend: Blend
    typical: int

    kind = InterpolationStyle.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> StyleStatistics:
        """The style of all of a federation whose clients hold `typical` of these images each, the last one the rest."""
        parts = index.split(self.typical)
        styles = [super(SharedStyleCraft, self).make(held, p, rng, behind=behind, defended=defended) for p in parts]
        return self.formed(self.blend(styles))

    def formed(self, style: InterpolationStyle) -> StyleStatistics:
        """The style of all in the form of a client's."""
        return self.unflat(torch.cat([style.mean, style.std]), None)

    def layers(self) -> tuple[str, ...]:
        return ()


def shared_style_subject(
    transcript: Transcript, method: Method, evidence: Evidence | None, defense: Defense
) -> Subject[Craft] | None:
    """The last style of all that the server sent; None where it made none, or clients' styles hold more than it does."""
    sent = [style for _, style in transcript.of_kind(InterpolationStyle.kind) if isinstance(style, InterpolationStyle)]
    blend: Blend | None = getattr(method, "interpolation", None)
    if not sent or blend is None or evidence is None or len(evidence.wire) < 2 or len(evidence.template.mean_var):
        return None
    sizes = sorted(record.samples for record in transcript.records if record.kind == StyleStatistics.kind)
    craft = SharedStyleCraft(evidence, defense, evidence.template, blend, sizes[len(sizes) // 2])
    clients = tuple(evidence.wire)
    return Subject(
        craft=craft,
        level="group",
        wire=dict.fromkeys(clients, craft.formed(sent[-1])),
        clients=clients,
        receiver=each_halfway(clients),
    )
