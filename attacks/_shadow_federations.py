"""Shadow federations: the run's own method, trained anew on public images alone, by an adversary that holds some.

They are to the model of all what shadow models are to a client's: they never saw a suspect, and tell how sure of it a
model is that did not (Carlini et al., "Membership inference attacks from first principles", S&P 2022; offline).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState
from fdgpriv.exam import View
from fdgpriv.federation import generator
from fdgpriv.subjects import SharedModelCraft

from ._reading import held, public_images

_HELD = 0.5  # of each domain's public images; the next federation holds the others, for RMIA to compare with
_COST = 0.2  # at most so many images for each of the clients', so that sixteen cost about three trainings
_LEAST = 4  # images of a domain


@dataclass(frozen=True, eq=False)
class ShadowFederation:
    """One of them.

    Attributes:
        sent: The model that its server sent last; of a personal method, each client's.
        saw: (M,) which of all public images in one row its clients held.
    """

    sent: list[ModelState]
    saw: Tensor


def shadow_federations(view: View, count: int) -> list[ShadowFederation]:
    """`count` of them; each is trained once, whoever asks."""
    images, labels = public_images(view)
    craft = view.craft(SharedModelCraft)

    def made(turn: int) -> ShadowFederation:
        parts = list(_parts(view, len(craft.federation.clients), turn))
        saw = torch.zeros(len(images), dtype=torch.bool)
        saw[torch.cat(parts)] = True
        parties = [(images[index], labels[index]) for index in parts]
        return ShadowFederation(craft.trained_anew(parties, generator(view.seed, 18, turn)), saw)

    return [view.learned.get((shadow_federations, turn), partial(made, turn)) for turn in range(count)]


def _parts(view: View, clients: int, turn: int) -> Iterator[Tensor]:
    """Indices of the public images that each client of a shadow federation holds, for a run of so many clients.

    These are about as large as the run's, of one domain each, two at least. Federations 2i and 2i + 1 have no image in
    common, save where a domain has few.
    """
    domains = held(view)
    pair, second = divmod(turn, 2)
    rng = generator(view.seed, 19, pair)
    share = min(_HELD, _COST * clients * view.typical / sum(len(domain) for domain in domains))
    start = 0
    for domain in domains:
        order = start + torch.randperm(len(domain), generator=rng)
        size = min(len(domain), max(_LEAST, int(share * len(domain))))
        parts = max(round(size / view.typical), 2 if len(domains) == 1 else 1)
        yield from (order[-size:] if second else order[:size]).tensor_split(max(1, min(parts, size // 2)))
        start += len(domain)
