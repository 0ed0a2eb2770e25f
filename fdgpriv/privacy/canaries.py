"""Orthonormal canaries in style space for one-run audits: the score of each is free of the others' contributions.

Interference between canaries is a known limit of one-run audits (arXiv 2503.07199); between orthogonal directions there is
none, so with isotropic noise one release gives m independent tests.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdgpriv.privacy.adjacency import Adjacency

Array: TypeAlias = NDArray[np.float64]
Coins: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class VectorCanaries:
    """m canaries of norm C, one per direction, for a claim of one adjacency.

    Attributes:
        directions: Orthonormal rows (m, D), m <= D: the release has D entries (2 x channels for a mean and std).
        clip: C > 0, the norm to which the defense clips each image's vector; a canary attains it.
        adjacency: Of the claim. ADD_REMOVE: a coin puts the canary in or leaves it out. REPLACE_ONE: a coin gives it the
            sign + or -. In/out canaries audit a replace-one claim with half of its mu, hence too mildly.
    """

    directions: Array
    clip: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        shape = self.directions.shape
        if len(shape) != 2 or not 1 <= shape[0] <= shape[1]:
            raise ValueError(f"want directions (m, D) with 1 <= m <= D, got {shape}")
        if not np.allclose(self.directions @ self.directions.T, np.eye(shape[0]), atol=1e-6):
            raise ValueError("want orthonormal directions, got others")
        if not self.clip > 0:
            raise ValueError(f"want a clipping norm C > 0, got {self.clip}")

    @classmethod
    def drawn(
        cls, count: int, dim: int, clip: float, adjacency: Adjacency, rng: np.random.Generator
    ) -> "VectorCanaries":
        """`count` canaries in uniformly random directions of a space of `dim` >= `count` dimensions."""
        if not 1 <= count <= dim:
            raise ValueError(f"want 1 <= count <= {dim} dimensions, got {count}")
        columns, _ = np.linalg.qr(rng.normal(size=(dim, count)))
        return cls(np.ascontiguousarray(columns.T), clip, adjacency)

    def coins(self, rng: np.random.Generator) -> Coins:
        """Independent fair coins (m,)."""
        return rng.random(len(self.directions)) < 0.5

    def vectors(self, coins: Coins) -> Array:
        """The canaries' clipped vectors (m, D): C e or 0 for add/remove, C e or -C e for replace-one."""
        absent = 0.0 if self.adjacency is Adjacency.ADD_REMOVE else -1.0
        vectors: Array = self.clip * np.where(coins, 1.0, absent)[:, None] * self.directions
        return vectors

    def scores(self, release: ArrayLike) -> Array:
        """Membership scores (m,), higher means "in" or "+": the inner products with a release (D,).

        What is common to both outcomes of a coin (other images, the decoder's offset) should be subtracted beforehand
        where it is known; the audit is valid either way.
        """
        values = np.asarray(release, dtype=np.float64)
        if values.shape != self.directions.shape[1:]:
            raise ValueError(f"want a release of shape {self.directions.shape[1:]}, got {values.shape}")
        scores: Array = self.directions @ values
        return scores
