"""Trains one client by DP-SGD with artificial records, a random half included, and scores how visible each is in the model.

Reference: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, arXiv 2305.08846.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation

from ._per_image import trained_parameters
from ._private_steps import GradientCanaries, PrivateSGD

_MAX_CANARIES = 2**14  # the bound hardly grows beyond


def canary_scores(
    training: PrivateSGD, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Scores (m,) of canaries in the training of one client over all rounds, and whether each was included (m,).

    The client trains alone, by the method's settings, and receives its own model back. A canary's score is the change of
    its coordinate, summed over rounds in units of their learning rates.

    Args:
        training: The private steps.
        method: The method, as trained under the defense.
        federation: Builds the network.
        data: The client's images.
        rng: Draws the canaries and seeds the training.
    """
    model = method.model(federation, rng).to(federation.device)
    parameters = trained_parameters(model)
    dim = sum(parameter.numel() for parameter in parameters)
    count = min(dim, _MAX_CANARIES, max(2**9, int(0.2 / training.delta)))  # m delta weakens the bound
    positions = torch.randperm(dim, generator=rng)[:count]
    signs = 1.0 - 2.0 * torch.randint(2, (count,), generator=rng)
    included = torch.rand(count, generator=rng) < 0.5
    audited = method.trained_by(replace(training, canaries=GradientCanaries(positions, signs, included)))
    scores = torch.zeros(count)
    for round in range(method.rounds):
        received = _values(parameters, positions)
        audited.train_plainly(model, data, round, rng)
        scores += (received - _values(parameters, positions)) * signs / audited.lr_at(round)
    return scores, included


@torch.no_grad()
def _values(parameters: list[torch.nn.Parameter], positions: Tensor) -> Tensor:
    return torch.cat([parameter.flatten() for parameter in parameters]).cpu()[positions]
