"""FedProx: FedAvg whose clients pay for the distance to the received model (Li et al., MLSys 2020)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fdgpriv.utils.fields import NonNegativeFloat

from ._averaging import FederatedAveraging


@dataclass(frozen=True)
class FedProx(FederatedAveraging):
    """Adds mu / 2 ||w - w_t||^2 to the client's loss, over all parameters w; w_t are those of the received model.

    Its gradient, mu (w - w_t), depends on no image: it is added in the optimiser's step, after a defense has clipped and
    noised the gradients of images. The released codes of later benchmarks sum norms that are not squared; this is the paper's.
    As in FedAvg, clients are drawn uniformly and all train equally long; in the paper they are drawn by their numbers of
    images, averaged equally, and may stop early.

    Attributes:
        mu: Weight of the proximal term; 0 is FedAvg. The paper's grid is 0.001 to 1, hFedF's and CCST's value 0.01.
    """

    mu: NonNegativeFloat = 0.01

    @property
    def coupling(self) -> None:
        return None

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        optimizer = super().new_optimizer(model, round)
        parameters = list(model.parameters())
        received = [parameter.detach().clone() for parameter in parameters]

        @torch.no_grad()
        def add_proximal_gradient(*_: Any) -> None:
            for parameter, start in zip(parameters, received, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - start, alpha=self.mu)

        optimizer.register_step_pre_hook(add_proximal_gradient)
        return optimizer
