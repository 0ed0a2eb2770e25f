"""What artifacts say of images where that hangs on nobody's own: computed once, for all adversaries that ask."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.artifact import Artifact
from fdgpriv.once import Once

Ask = Callable[[Tensor], Tensor]


def first_tensor(artifact: Artifact) -> int:
    """Names an artifact by its first tensor, which is the same wherever it stands."""
    return id(next(iter(artifact.tensors().values())))


@dataclass(eq=False)
class Heard:
    """Remembers what artifacts said.

    All suspects that anybody is asked about beside one artifact are looked at together, so that what it says does not
    hang on who came first.

    Attributes:
        asked: By artifact, itself, so that its name stays its own, and everybody's suspects, (N,) sorted indices into the
            pool; of other artifacts nothing is remembered.
    """

    asked: Mapping[int, tuple[Artifact, Tensor]] = field(default_factory=dict)
    _said: Once[tuple[object, Tensor]] = field(default_factory=Once, init=False)

    @classmethod
    def among(cls, asked: Iterable[tuple[Artifact, Tensor]]) -> "Heard":
        """Of these artifacts, and of the suspects beside each; an artifact may come several times."""
        found: dict[int, tuple[Artifact, list[Tensor]]] = {}
        for artifact, suspects in asked:
            found.setdefault(first_tensor(artifact), (artifact, []))[1].append(suspects)
        return cls({name: (artifact, torch.cat(some).unique()) for name, (artifact, some) in found.items()})

    def of(self, artifact: Artifact, under: object, index: Tensor, ask: Ask) -> Tensor:
        """(N, K): what it says of the images at `index` (N,).

        Args:
            artifact: Read as it was sent.
            under: What else its reading hangs on.
            index: Into the pool.
            ask: What it says (n, K) of the images at some indices (n,).
        """
        name = first_tensor(artifact)
        if name not in self.asked:
            return ask(index)
        everybody = self.asked[name][1]
        _, said = self._said.get((name, id(under)), lambda: (under, ask(everybody)))  # it stays, so that its id does
        return said[torch.searchsorted(everybody, index)]
