"""Divides images that no client holds among adversaries and shadow clients.

Shadow clients take no part in the federation. They are additional units of evaluation: the artifacts that they would
have shared are attacked and scored like those of clients.
"""

from dataclasses import dataclass

import torch

from fdgpriv.data.dataset import Domain

FEW = 4  # domains with fewer clients are filled up to this number even at the expense of public images
ENOUGH = 10  # clients and shadow clients of a domain, if images are left over
LEAST = 8  # minimum images of a shadow client; with fewer, a client's artifact reveals almost as much as one image's


@dataclass(frozen=True, eq=False)
class Reserve:
    """One domain's images that no client holds, by use.

    Attributes:
        public: The auxiliary data of adversaries.
        shadows: The images of each shadow client.
        unused: Number of images in neither.
    """

    public: Domain
    shadows: list[Domain]
    unused: int


def reserve(
    public: Domain, left_out: Domain, clients: list[int], classes: int, auxiliary: int | None, enough: int
) -> Reserve:
    """Divides one domain's images that no client holds.

    Shadow clients have as many images as the domain's smallest client, and are made of what is left over, up to
    `enough` clients and shadows. If these are fewer than `FEW` and `auxiliary` is None, more are made of at most half
    of the public images: at least `LEAST` images each, and adversaries keep more images than there are classes.

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
        return Reserve(public, [], len(left_out))
    size = min(clients)
    count = max(0, min(enough - len(clients), len(left_out) // size))
    shadows = [left_out.part(i * size, (i + 1) * size) for i in range(count)]
    unused = len(left_out) - count * size
    if auxiliary is not None:
        return Reserve(public, shadows, unused)
    spare = min(len(public) // 2, len(public) - classes - 1)
    count = min(FEW - len(clients) - count, spare // LEAST)
    if count <= 0:
        return Reserve(public, shadows, unused)
    size = min(size, spare // count)
    kept = len(public) - count * size
    shadows += [public.part(kept + i * size, kept + (i + 1) * size) for i in range(count)]
    return Reserve(public.part(0, kept), shadows, unused)


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
    known = len(public) + len(left_out)
    if count > known:
        raise ValueError(
            f"--auxiliary: want at most the {known} images of {public.name} that no client holds, got {count}"
        )
    more = max(0, count - len(public))
    held = public.part(0, count).followed_by(left_out.part(0, more))
    return held, public.part(count, known).followed_by(left_out.part(more, known))
