"""Corrections for several tests: Simes within a group, Benjamini-Hochberg and Holm over groups."""

from collections.abc import Sequence


def holm(p: Sequence[float]) -> list[float]:
    """Corrected p-values in the order given: p_(k)adj = max over j <= k of min(1, (M - j + 1) p_(j)).

    Reference: Holm, Scandinavian Journal of Statistics 1979.
    Example: `holm([.001, .01, .02, .04])` is `[.004, .03, .04, .04]`.
    """
    corrected, running = [0.0] * len(_checked(p)), 0.0
    for rank, index in enumerate(_ascending(p)):
        running = max(running, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = running
    return corrected


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """q-values in the order given: q_(k) = min over j >= k of min(1, M p_(j) / j).

    Of the tests with q <= a, at most a share a is expected to be false.
    Reference: Benjamini and Hochberg, JRSS B 1995.
    Example: `benjamini_hochberg([.001, .01, .02, .04])` is `[.004, .02, .0267, .04]`.
    """
    corrected, running = [0.0] * len(_checked(p)), 1.0
    for rank, index in reversed(list(enumerate(_ascending(p), start=1))):
        running = min(running, len(p) * p[index] / rank)
        corrected[index] = running
    return corrected


def simes(p: Sequence[float]) -> float:
    """One p for the hypothesis that none of n tests has an effect: min over i of n p_(i) / i.

    Reference: Simes, Biometrika 1986.

    Raises:
        ValueError: There is no p.
    """
    if not _checked(p):
        raise ValueError("want at least one p, got none")
    return min(1.0, *(len(p) * value / rank for rank, value in enumerate(sorted(p), start=1)))


def _ascending(p: Sequence[float]) -> list[int]:
    return sorted(range(len(p)), key=lambda i: p[i])


def _checked(p: Sequence[float]) -> Sequence[float]:
    for value in p:
        if not 0 <= value <= 1:
            raise ValueError(f"want p in [0, 1], got {value}")
    return p
