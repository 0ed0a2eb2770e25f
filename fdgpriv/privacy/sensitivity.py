"""L2 sensitivity Delta of released vectors, when one image or one client is replaced.

The bounds require that every image's vector is clipped to norm C before averaging. A *pooled* standard deviation is not a
mean of clipped vectors (it changes by order 1/sqrt(n)): release the mean of clipped moments and take the root afterwards.

The sensitivity of PARDON's local style does not decrease with n: its FINCH clusters have equal weights whatever their
size, and one image can change the clustering. Example: n = 100 unit vectors in the plane at the angles a_0 = 0,
a_j = a_(j-1) + 0.5 * 0.98^(j-1) degrees (j = 1..97), 180 and 180.1. Moving the image at 180 to a_50 + 0.01 changes the
coarsest partition from 98 + 2 to 53 + 47 and the equal-weight style by 0.968 C: 48 times 2C/n. Clip the client's final
vector and use `whole_vector`, which is valid for any clustering.
"""

import math


def mean_replace_one(clip: float, n: int) -> float:
    """2C/n: sensitivity of the mean of n vectors of norm at most C, when one image is replaced; n is public."""
    return 2 * _norm(clip) / _count("n", n)


def whole_vector(clip: float) -> float:
    """2C: sensitivity of one client's vector of norm at most C, when any part of the client's data is replaced.

    This gives client-level privacy, which implies image-level privacy. The smaller sensitivity C (add/remove) applies
    only to sums over clients with hidden participation, not to vectors received under a client's name.
    """
    return 2 * _norm(clip)


def _norm(clip: float) -> float:
    if not (math.isfinite(clip) and clip > 0):
        raise ValueError(f"want a clipping norm C > 0, got {clip}")
    return clip


def _count(name: str, n: int) -> int:
    if n < 1 or n != int(n):
        raise ValueError(f"want {name} a whole number >= 1, got {n}")
    return n
