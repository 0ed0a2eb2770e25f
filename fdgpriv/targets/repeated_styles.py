"""Target: the styles of the same images in several rounds, concatenated to one artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import Moments
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.defense import Defense
from fdgpriv.targets.recorded_styles import RecordedStyles
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.style import StyleSimulator
from fdgpriv.targets.target import Target
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class RepeatedStyles(StyleSimulator):
    """Every moment is (kC,) for k rounds instead of (C,); the defense is applied to each round separately.

    Attributes:
        rounds: The simulator of each round, the last round last.
    """

    rounds: tuple[StyleSimulator, ...]

    @classmethod
    def of(cls, rounds: Sequence[StyleSimulator]) -> "RepeatedStyles":
        """The simulator of these rounds combined."""
        last, template = rounds[-1], joined([simulator.template for simulator in rounds])
        return cls(last.evidence, last.defense, template, tuple(rounds))

    def styles(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return _concatenated([simulator.styles(images, among) for simulator in self.rounds])

    def moments(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return _concatenated([simulator.moments(images, among) for simulator in self.rounds])

    def parts(self, held: HeldImages, index: Tensor) -> tuple[Tensor, Tensor]:
        return _concatenated([simulator.parts(held, index) for simulator in self.rounds])

    def make(
        self,
        held: HeldImages,
        index: Tensor,
        rng: torch.Generator,
        *,
        granularity: str = "client",
        defended: bool = True,
    ) -> StyleStatistics:
        return joined(
            [simulator.make(held, index, rng, granularity=granularity, defended=defended) for simulator in self.rounds]
        )

    def layers(self) -> tuple[str, ...]:
        return ()

    def at(self, layer: str) -> "StyleSimulator":
        return self.of([simulator.at(layer) for simulator in self.rounds])

    def last(self, count: int) -> "RepeatedStyles":
        """The simulator of the last `count` rounds."""
        return self.of(self.rounds[-count:])

    def cut(self, artifact: Artifact, count: int) -> Artifact:
        """The part of the artifact that belongs to the last `count` rounds."""
        every = len(self.rounds)
        return artifact.map(lambda moment: moment[len(moment) // every * (every - count) :])


def _concatenated(moments: Sequence[Moments]) -> Moments:
    mean, std = zip(*moments, strict=True)
    return torch.cat(mean, dim=1), torch.cat(std, dim=1)


def joined(styles: Sequence[StyleStatistics]) -> StyleStatistics:
    """One artifact of several rounds: their moments concatenated, the metadata of the last."""
    tensors = [style.tensors() for style in styles]
    return StyleStatistics.build(
        {name: torch.cat([t[name] for t in tensors]) for name in tensors[0]}, styles[-1].facts()
    )


def repeated_target(evidence: RecordedStyles, defense: Defense) -> Target[Simulator] | None:
    """The styles of all rounds in which the clients of the last one shared; None where there are fewer than two."""
    rounds = evidence.rounds
    if len(rounds) < 2 or evidence.template.level != "client":
        return None
    wire: Mapping[str, Artifact] = {name: joined([one.wire[name] for one in rounds]) for name in evidence.wire}
    return Target(
        simulator=RepeatedStyles.of([StyleSimulator(one, defense, one.template) for one in rounds]),
        level="client",
        wire=wire,
        clients=tuple(wire),
        receiver=evidence.receiver,
        needs=frozenset({Capability.SEES_ALL_ROUNDS}),
    )
