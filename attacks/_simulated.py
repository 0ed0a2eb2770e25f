"""Clients simulated from public images, on which readers of properties practise; each is made once, whoever reads."""

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
    concentration is one of `alphas` in turn, since nobody tells how skewed the clients are.
    """
    domains = held(view)

    def made(turn: int) -> SimulatedClient:
        rng = generator(view.seed, 16, size, turn)
        d, alpha = turn % len(domains), alphas[turn % len(alphas)]
        draws = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        skew = torch.from_numpy(draws.dirichlet([alpha] * view.classes)).float() + 1e-9
        index = torch.multinomial(skew[domains[d].labels], min(size, len(domains[d])), generator=rng)
        artifact = view.make(domains[d].images, domains[d].labels, index, rng, sent)
        shares = domains[d].labels[index].bincount(minlength=view.classes) / len(index)
        return SimulatedClient(view.vector(artifact, sent), shares, d)

    return [view.learned.get((simulated, size, turn, alphas, sent), partial(made, turn)) for turn in range(count)]
