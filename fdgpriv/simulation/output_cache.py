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

    All membership candidates of an artifact are evaluated in one batch, so that outputs do not depend on the order of
    adversaries.

    Attributes:
        candidates: By `identity`, the artifact (stored so that its id stays unique) and all adversaries' membership
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
        return cls({key: (artifact, torch.cat(indices).unique()) for key, (artifact, indices) in by_artifact.items()})

    def of(self, sent: Sent, context: object, index: Tensor, evaluate: Evaluate) -> Tensor:
        """Outputs (N, K) of the artifact's model on the images at `index` (N,).

        Args:
            sent: The shared artifact.
            context: Any further object on which the outputs depend.
            index: Indices into the pool.
            evaluate: Computes the outputs (n, K) on the images at some indices (n,).
        """
        key = identity(sent)
        cached_index = self.candidates[key][1] if key in self.candidates else index[:0]
        if not torch.isin(index, cached_index).all():
            return evaluate(index)
        # `context` is stored so that its id stays unique
        _, outputs = self._outputs.get((key, id(context)), lambda: (context, evaluate(cached_index)))
        return outputs[torch.searchsorted(cached_index, index)]
