"""Sensitivity of released vectors: the norm of the change if one image or one client is replaced, added or removed.

The bounds require that every image's vector is clipped to norm C before averaging. They hold in any norm: clip in the L2
norm for Gaussian noise, and in the L1 norm for Laplace noise. A *pooled* standard deviation is not a mean of clipped
vectors (it changes by order 1/sqrt(n)): release the mean of clipped moments and take the root afterwards.

The sensitivity of PARDON's local style does not decrease with n: its FINCH clusters have equal weights whatever their
size, and one image can change the clustering. Example: n = 100 unit vectors in the plane at the angles a_0 = 0,
a_j = a_(j-1) + 0.5 * 0.98^(j-1) degrees (j = 1..97), 180 and 180.1. Moving the image at 180 to a_50 + 0.01 changes the
coarsest partition from 98 + 2 to 53 + 47 and the equal-weight style by 0.968 C: 48 times 2C/n. Clip the client's final
vector and use `whole_vector`, which is valid for any clustering.
"""

import math

from fdgpriv.privacy.adjacency import Adjacency


def mean_sensitivity(clip: float, n: int, adjacency: Adjacency) -> float:
    """Sensitivity of a sum of vectors of norm at most C, divided by n: C/n for add/remove, 2C/n for replace-one.

    Args:
        clip: C > 0.
        n: The divisor, public and fixed: the number of images for replace-one, any constant n0 for add/remove.
        adjacency: Of the guarantee.
    """
    return adjacency.value * _norm(clip) / _count("n", n)


def mean_replace_one(clip: float, n: int) -> float:
    """2C/n: sensitivity of the mean of n vectors of norm at most C, when one image is replaced; n is public."""
    return mean_sensitivity(clip, n, Adjacency.REPLACE_ONE)


def whole_vector(clip: float) -> float:
    """2C: sensitivity of one client's vector of norm at most C, when any part of the client's data is replaced.

    This gives client-level privacy, which implies image-level privacy. The smaller sensitivity C (add/remove) applies
    only to sums over clients with hidden participation, not to vectors received under a client's name.
    """
    return 2 * _norm(clip)


def l1_of_l2(sensitivity: float, dim: int) -> float:
    """sqrt(dim) times the L2 sensitivity: the L1 sensitivity of a vector (dim,) whose L2 sensitivity is known."""
    return math.sqrt(_count("dim", dim)) * _norm(sensitivity, "a sensitivity")


def _norm(clip: float, name: str = "a clipping norm C") -> float:
    if not (math.isfinite(clip) and clip > 0):
        raise ValueError(f"want {name} > 0, got {clip}")
    return clip


def _count(name: str, n: int) -> int:
    if n < 1 or n != int(n):
        raise ValueError(f"want {name} a whole number >= 1, got {n}")
    return n
