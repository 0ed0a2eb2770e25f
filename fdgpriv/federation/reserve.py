"""Divides images that no client holds among adversaries and shadow clients.

Shadow clients take no part in the federation. They are additional units of evaluation: the artifacts that they would
have shared are attacked and scored like those of clients.
"""

from itertools import cycle

import torch

from fdgpriv.data.dataset import Domain

MIN_UNITS = 4  # clients and shadow clients of a domain, for which public images are used if necessary
UNITS_PER_DOMAIN = 10  # clients and shadow clients of a domain, if images are left over
MIN_SHADOW_IMAGES = 8  # with fewer, a client's artifact reveals almost as much as one image's


def reserve(
    public: Domain, left_out: Domain, sizes: list[int], classes: int, auxiliary: int | None, units_per_domain: int
) -> tuple[Domain, list[Domain]]:
    """Divides one domain's images that no client holds: those of adversaries, and those of each shadow client.

    Shadow clients get the left-out images first, until there are `units_per_domain` clients and shadow clients. Their sizes
    repeat those of the domain's clients, since smaller ones would reveal more. If there are fewer than `MIN_UNITS` (or
    `units_per_domain`, if smaller) and `auxiliary` is None, further shadow clients get at most half of the public images:
    they are as large as the smallest client or smaller, and adversaries keep more images than there are classes. Shadow
    clients have at least `MIN_SHADOW_IMAGES` images, or as many as the smallest client.

    Args:
        public: The domain's public images.
        left_out: Images of the domain that the federation does not use.
        sizes: Number of images of each client of this domain; empty for no shadow clients.
        classes: K.
        auxiliary: Number of images of adversaries; None for all public ones that are not needed for shadow clients.
        units_per_domain: Desired number of clients and shadow clients of the domain.

    Raises:
        ValueError: There are fewer than `auxiliary` images.
    """
    if auxiliary is not None:
        public, left_out = _first_images(public, left_out, auxiliary)
    if not sizes:
        return public, []
    shadows, start = list[Domain](), 0
    for _, size in zip(range(units_per_domain - len(sizes)), cycle(sizes), strict=False):
        if size >= MIN_SHADOW_IMAGES and start + size <= len(left_out):
            shadows.append(left_out.part(start, start + size))
            start += size
    spare = min(len(public) // 2, len(public) - classes - 1)
    count = min(min(MIN_UNITS, units_per_domain) - len(sizes) - len(shadows), spare // MIN_SHADOW_IMAGES)
    if auxiliary is not None or count <= 0:
        return public, shadows
    size = min(*sizes, spare // count)
    remaining = len(public) - count * size
    return public.part(0, remaining), [
        *shadows,
        *(public.part(remaining + i * size, remaining + (i + 1) * size) for i in range(count)),
    ]


def third_party_images(target: Domain, left_out: Domain, auxiliary: int | None, rng: torch.Generator) -> Domain:
    """The images of the target domain that third parties hold: all evaluated ones by default.

    Args:
        target: The domain's images for evaluation.
        left_out: Its other images.
        auxiliary: Number of images; the evaluated ones come first, in random order.
        rng: Random numbers of the order.

    Raises:
        ValueError: There are fewer than `auxiliary` images.
    """
    if auxiliary is None:
        return target
    shuffled = target.take(torch.randperm(len(target), generator=rng))
    return _first_images(shuffled, left_out, auxiliary)[0]


def _first_images(public: Domain, left_out: Domain, count: int) -> tuple[Domain, Domain]:
    """The first `count` images of `public` and then `left_out`, and the others; ValueError if there are fewer."""
    available = len(public) + len(left_out)
    if count > available:
        raise ValueError(
            f"--auxiliary: want at most the {available} images of {public.name} that no client holds, got {count}"
        )
    from_left_out = max(0, count - len(public))
    first = public.part(0, count).followed_by(left_out.part(0, from_left_out))
    return first, public.part(count, available).followed_by(left_out.part(from_left_out, available))
