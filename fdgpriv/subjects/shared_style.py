"""The one style that a server makes of its clients' (PARDON), as a subject: what it tells everybody about their images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import PEER, Artifact, StyleStatistics
from fdgpriv.evidence import Evidence, halfway
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
        return like_a_client(self.blend(styles), self.template)

    def layers(self) -> tuple[str, ...]:
        return ()


def like_a_client(style: InterpolationStyle, template: StyleStatistics) -> StyleStatistics:
    """The style of all in the form of a client's."""
    nothing = style.mean.new_empty(0)
    tensors = {"mean": style.mean, "std": style.std, "mean_var": nothing, "std_var": nothing}
    return StyleStatistics.build(tensors, {**template.facts(), "client": PEER})


def shared_style_subject(
    transcript: Transcript, method: Method, evidence: Evidence | None, defense: Defense
) -> Subject[Craft] | None:
    """The last style of all that the server sent; None where it made none, or clients' styles hold more than it does."""
    sent = [style for _, style in transcript.of_kind(InterpolationStyle.kind) if isinstance(style, InterpolationStyle)]
    blend: Blend | None = getattr(method, "interpolation", None)
    if not sent or blend is None or evidence is None or len(evidence.wire) < 2 or len(evidence.template.mean_var):
        return None
    template, clients = evidence.template, tuple(evidence.wire)
    one: Artifact = like_a_client(sent[-1], template)
    sizes = sorted(record.samples for record in transcript.records if record.kind == StyleStatistics.kind)
    return Subject(
        craft=SharedStyleCraft(evidence, defense, template, blend, sizes[len(sizes) // 2]),
        level="group",
        wire=dict.fromkeys(clients, one),
        clients=clients,
        receiver={name: halfway(clients, i) for i, name in enumerate(clients)},
    )
