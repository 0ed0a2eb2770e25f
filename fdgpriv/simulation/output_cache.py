"""Caches model outputs that do not depend on the adversary's data."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.simulation.mixture import Sent, identity
from fdgpriv.utils.cache import Cache

Evaluate = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class OutputCache:
    """Caches the outputs of artifacts' models.

    All membership candidates of an artifact are evaluated in one batch, so that outputs do not depend on which
    adversary comes first.

    Attributes:
        candidates: By `identity`, the artifact (kept so that its id stays unique) and all adversaries' membership
            candidates, (N,) sorted indices into the pool; other outputs are not cached.
    """

    candidates: Mapping[Hashable, tuple[Sent, Tensor]] = field(default_factory=dict)
    _outputs: Cache[tuple[object, Tensor]] = field(default_factory=Cache, init=False)

    @classmethod
    def among(cls, candidates: Iterable[tuple[Sent, Tensor]]) -> "OutputCache":
        """A cache for these artifacts and the membership candidates of each; an artifact may occur several times."""
        by_artifact: dict[Hashable, tuple[Sent, list[Tensor]]] = {}
        for artifact, membership_candidates in candidates:
            by_artifact.setdefault(identity(artifact), (artifact, []))[1].append(membership_candidates)
        return cls({name: (artifact, torch.cat(asked).unique()) for name, (artifact, asked) in by_artifact.items()})

    def of(self, sent: Sent, under: object, index: Tensor, evaluate: Evaluate) -> Tensor:
        """Outputs (N, K) of the artifact's model on the images at `index` (N,).

        Args:
            sent: The artifact as it was shared.
            under: What else the outputs depend on.
            index: Into the pool.
            evaluate: Computes the outputs (n, K) on the images at some indices (n,).
        """
        name = identity(sent)
        every_index = self.candidates[name][1] if name in self.candidates else index[:0]
        if not torch.isin(index, every_index).all():
            return evaluate(index)
        _, outputs = self._outputs.get(
            (name, id(under)), lambda: (under, evaluate(every_index))
        )  # kept, so that its id stays unique
        return outputs[torch.searchsorted(every_index, index)]
