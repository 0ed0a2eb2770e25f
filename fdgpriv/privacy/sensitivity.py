"""How far one image or one client can move what is released: the Delta that noise is scaled to.

All norms are L2 and every vector is clipped to norm C before it is averaged; clipping per image what depends on one
image is what makes these bounds true. A *pooled* standard deviation is no mean of clipped vectors (it moves by order
1/sqrt(n)): release the mean of clipped moments and take the root afterwards.

PARDON's local style has none of the sensitivities that shrink with n. Its FINCH clusters weigh the same however few
images they hold, and one image can change who clusters with whom. With n = 100 unit vectors in the plane at the angles
a_0 = 0, a_j = a_(j-1) + 0.5 * 0.98^(j-1) degrees (j = 1..97), 180 and 180.1, moving the image at 180 to a_50 + 0.01
turns the coarsest partition from 98 + 2 into 53 + 47, and the equal-weight style moves by 0.968 C: 48 times 2C/n.
Clip the client's final vector and use `whole_vector`, which holds whatever the clustering does.
"""

import math


def mean_replace_one(clip: float, n: int) -> float:
    """2C/n: the mean of n vectors of norm at most C, when one image is replaced; n is public and the same in both."""
    return 2 * _norm(clip) / _count("n", n)


def whole_vector(clip: float) -> float:
    """2C: one client's vector of norm at most C, when the client's data (any part of it) is replaced.

    It protects the client, and so each of its images too. The smaller C (add/remove) holds only for a sum over clients
    whose participation is hidden; a vector received under a client's name has only this one.
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
