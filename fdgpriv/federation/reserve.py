"""Divides images that no client holds among adversaries and shadow clients.

Shadow clients take no part in the federation. They are additional units of evaluation: the artifacts that they would
have shared are attacked and scored like those of clients.
"""

from itertools import cycle

import torch

from fdgpriv.data.dataset import Domain

FEW = 4  # domains with fewer clients are filled up to this number even at the expense of public images
ENOUGH = 10  # clients and shadow clients of a domain, if images are left over
LEAST = 8  # minimum images of a shadow client; with fewer, a client's artifact reveals almost as much as one image's


def reserve(
    public: Domain, left_out: Domain, clients: list[int], classes: int, auxiliary: int | None, enough: int
) -> tuple[Domain, list[Domain]]:
    """Divides one domain's images that no client holds: those of adversaries, and those of each shadow client.

    Shadow clients are made of what is left over, up to `enough` clients and shadows, and are as large as the domain's
    clients in turn: smaller ones reveal more. If there are fewer than the smaller of `FEW` and `enough`, and `auxiliary`
    is None, more are made of at most half of the public images, as large as the smallest client or smaller; adversaries
    keep more images than there are classes. No shadow client has fewer than `LEAST` images, unless the smallest client has.

    Args:
        public: The domain's public images.
        left_out: Images of the domain that the federation does without.
        clients: Number of images of each client of this domain; empty for no shadow clients.
        classes: K.
        auxiliary: Number of images of adversaries; None for all public ones that are not needed for shadow clients.
        enough: Number of clients and shadow clients of the domain to aim at.

    Raises:
        ValueError: There are fewer than `auxiliary` images.
    """
    if auxiliary is not None:
        public, left_out = _held(public, left_out, auxiliary)
    if not clients:
        return public, []
    shadows, start = list[Domain](), 0
    for _, size in zip(range(enough - len(clients)), cycle(clients), strict=False):
        if size >= LEAST and start + size <= len(left_out):
            shadows.append(left_out.part(start, start + size))
            start += size
    spare = min(len(public) // 2, len(public) - classes - 1)
    count = min(min(FEW, enough) - len(clients) - len(shadows), spare // LEAST)
    if auxiliary is not None or count <= 0:
        return public, shadows
    size = min(*clients, spare // count)
    remaining = len(public) - count * size
    return public.part(0, remaining), [
        *shadows,
        *(public.part(remaining + i * size, remaining + (i + 1) * size) for i in range(count)),
    ]


def of_third_parties(target: Domain, left_out: Domain, auxiliary: int | None, rng: torch.Generator) -> Domain:
    """The images of the target domain that third parties hold: all evaluated ones by default.

    Args:
        target: The domain's images for evaluation.
        left_out: Its other images.
        auxiliary: Number of images; the evaluated ones come first, in random order.
        rng: Of the order.

    Raises:
        ValueError: There are fewer than `auxiliary` images.
    """
    if auxiliary is None:
        return target
    shuffled = target.take(torch.randperm(len(target), generator=rng))
    return _held(shuffled, left_out, auxiliary)[0]


def _held(public: Domain, left_out: Domain, count: int) -> tuple[Domain, Domain]:
    """The first `count` images of `public` and then `left_out`, and the others; ValueError if there are fewer."""
    available = len(public) + len(left_out)
    if count > available:
        raise ValueError(
            f"--auxiliary: want at most the {available} images of {public.name} that no client holds, got {count}"
        )
    from_left_out = max(0, count - len(public))
    first = public.part(0, count).followed_by(left_out.part(0, from_left_out))
    return first, public.part(count, available).followed_by(left_out.part(from_left_out, available))
