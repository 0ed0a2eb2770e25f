"""Weighted mixtures of two artifacts, which are computed each time they are read."""

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.utils.cache import ObjectNumbers


@dataclass(frozen=True, eq=False)
class Mixture:
    """(1 - weight) times `base` plus weight times `leak`; counters are those of `base`.

    It holds only the two artifacts, since hundreds of mixed models would fill the memory.
    """

    base: "Sent"
    leak: "Sent"
    weight: float

    def artifact(self) -> Artifact:
        """The mixed artifact."""
        base = read(self.base)
        if self.weight == 0:
            return base
        leak = read(self.leak).tensors()
        return type(base).build(
            {name: self._mixed(tensor, leak[name]) for name, tensor in base.tensors().items()}, base.facts()
        )

    def _mixed(self, base: Tensor, leak: Tensor) -> Tensor:
        if not base.is_floating_point():
            return base
        return leak if self.weight == 1 else (1 - self.weight) * base + self.weight * leak


Sent = Artifact | Mixture

_NUMBERS = ObjectNumbers()


def read(sent: Sent) -> Artifact:
    """The artifact; a mixture is computed."""
    return sent.artifact() if isinstance(sent, Mixture) else sent


def identity(sent: Sent) -> Hashable:
    """A key that is equal for artifacts that share their tensors, whatever their sender's name is.

    No later artifact has it, so that caches need not hold the artifact.
    """
    if not isinstance(sent, Mixture):
        return _NUMBERS.of(next(iter(sent.tensors().values())))
    if sent.weight in (0, 1):
        return identity(sent.base if sent.weight == 0 else sent.leak)
    return _NUMBERS.of(sent)
