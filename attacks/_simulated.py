"""Clients simulated from public images, on which readers of properties practise; each is made once, whoever reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fdgpriv.artifact import ModelState
from fdgpriv.exam import View
from fdgpriv.federation import generator

from ._reading import held

ALPHAS = (0.5, 2.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False)
class SimulatedClient:
    """One simulated client.

    Attributes:
        vector: (D,) of its artifact (`View.vector`).
        shares: (K,) of each label among its images.
        domain: Index of the auxiliary domain that its images are of.
    """

    vector: Tensor
    shares: Tensor
    domain: int


def simulated(
    view: View, size: int, count: int, sent: ModelState | None, alphas: tuple[float, ...] = ALPHAS
) -> list[SimulatedClient]:
    """`count` clients of `size` images, made through the run's defense.

    Each draws its images from one domain, the next in turn, and its label distribution from a Dirichlet, whose
    concentration is one of `alphas` in turn, since nobody tells how skewed the clients are. Where artifacts come to be only
    together, they are one federation.
    """
    domains = held(view)

    def drawn(turn: int) -> tuple[int, Tensor, torch.Generator]:
        rng = generator(view.seed, 16, size, turn)
        d, alpha = turn % len(domains), alphas[turn % len(alphas)]
        draws = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        skew = torch.from_numpy(draws.dirichlet([alpha] * view.classes)).float() + 1e-9
        return d, torch.multinomial(skew[domains[d].labels], min(size, len(domains[d])), generator=rng), rng

    def made(turns: Sequence[int]) -> list[SimulatedClient]:
        parties = [drawn(turn) for turn in turns]
        artifacts = view.make_all([(domains[d], index) for d, index, _ in parties], parties[0][2], sent)
        return [
            SimulatedClient(
                view.vector(artifact, sent), domains[d].labels[i].bincount(minlength=view.classes) / len(i), d
            )
            for artifact, (d, i, _) in zip(artifacts, parties, strict=True)
        ]

    every = [tuple(range(count))] if view.together else [(turn,) for turn in range(count)]
    learned = [view.learned.get((simulated, size, turns, alphas, sent), partial(made, turns)) for turns in every]
    return [client for clients in learned for client in clients]
