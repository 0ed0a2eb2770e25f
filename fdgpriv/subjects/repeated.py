"""Styles of the same images in several rounds, each under the model of its round, as one longer artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import Artifact, StyleStatistics
from fdgpriv.evidence import Evidence
from fdgpriv.roles import Defense
from fdgpriv.style import Moments
from fdgpriv.threat import Capability

from .style import StyleCraft
from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class RepeatedStyles(StyleCraft):
    """Every moment is (kC,) for k rounds instead of (C,), and each round's went through the defense by itself.

    Attributes:
        crafts: Of each round, the last one's last.
    """

    crafts: tuple[StyleCraft, ...]

    @classmethod
    def of(cls, crafts: Sequence[StyleCraft]) -> "RepeatedStyles":
        """The craft of these rounds together."""
        last, template = crafts[-1], joined([craft.template for craft in crafts])
        return cls(last.evidence, last.defense, template, tuple(crafts))

    def styles(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return _side_by_side([craft.styles(images, among) for craft in self.crafts])

    def moments(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return _side_by_side([craft.moments(images, among) for craft in self.crafts])

    def parts(self, held: Holding, index: Tensor) -> tuple[Tensor, Tensor]:
        return _side_by_side([craft.parts(held, index) for craft in self.crafts])

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> StyleStatistics:
        return joined([craft.make(held, index, rng, behind=behind, defended=defended) for craft in self.crafts])

    def layers(self) -> tuple[str, ...]:
        return ()

    def at(self, layer: str) -> "StyleCraft":
        return self.of([craft.at(layer) for craft in self.crafts])

    def last(self, count: int) -> "RepeatedStyles":
        """The craft of the last `count` rounds."""
        return self.of(self.crafts[-count:])

    def cut(self, artifact: Artifact, count: int) -> Artifact:
        """What the artifact says of the last `count` rounds."""
        rounds = len(self.crafts)
        return artifact.map(lambda moment: moment[len(moment) // rounds * (rounds - count) :])


def _side_by_side(moments: Sequence[Moments]) -> Moments:
    mean, std = zip(*moments, strict=True)
    return torch.cat(mean, dim=1), torch.cat(std, dim=1)


def joined(styles: Sequence[StyleStatistics]) -> StyleStatistics:
    """One artifact of what was shared in several rounds: their moments one after the other, the facts of the last."""
    tensors = [style.tensors() for style in styles]
    return StyleStatistics.build(
        {name: torch.cat([t[name] for t in tensors]) for name in tensors[0]}, styles[-1].facts()
    )


def repeated_subject(evidence: Evidence, defense: Defense) -> Subject[Craft] | None:
    """The styles of all rounds in which the clients of the last one shared; None where those are fewer than two."""
    rounds = evidence.rounds
    if len(rounds) < 2 or evidence.template.level != "client":
        return None
    wire: Mapping[str, Artifact] = {name: joined([one.wire[name] for one in rounds]) for name in evidence.wire}
    return Subject(
        craft=RepeatedStyles.of([StyleCraft(one, defense, one.template) for one in rounds]),
        level="client",
        wire=wire,
        clients=tuple(wire),
        receiver=evidence.receiver,
        needs=frozenset({Capability.SEES_ALL_ROUNDS}),
    )
