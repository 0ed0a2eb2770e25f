"""Parameter importances (Aljundi et al., "Memory aware synapses", ECCV 2018) and importance-weighted model averaging."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.parameters import STATISTICS
from fdgpriv.models.cpu_io import device_of

from ._federation import average
from ._latent_classifier import LatentClassifier

Output = Literal["logits", "paper"]
Sign = Literal["absolute", "signed"]
_BATCH_SIZE = 256  # images in one pass
NEGLIGIBLE = 1e-12  # where the sum of importances is at most this, clients are weighted equally

TensorsByName = Mapping[str, Tensor]


def importance(
    model: LatentClassifier, images: Tensor, batch_size: int, output: Output, sign: Sign
) -> dict[str, Tensor]:
    """By parameter, the mean gradient over images of the output's norm, in evaluation mode.

    Args:
        model: Left in evaluation mode.
        images: (N, 3, H, W).
        batch_size: Images over which gradients are summed before taking the absolute value; 1 in the definition of MAS.
        output: ``logits``: squared norm of the logits, for all parameters (MAS, the released code). ``paper``: Eq. 17, norm
            of the latent for the encoder's parameters and of the logits for the head's, not squared.
        sign: ``absolute``, or ``signed`` as in Eq. 17.
    """
    device = device_of(model.eval())
    parameters = dict(model.named_parameters())
    head = [f"head.{name}" for name, _ in model.head.named_parameters()]
    encoder = [name for name in parameters if name not in head]
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    for batch in images.split(batch_size):
        latents = model.embedding(batch.to(device))
        logits = model.head(latents)
        if output == "logits":
            norms = [(logits.square().sum(), list(parameters))]
        else:
            norms = [(latents.norm(dim=1).sum(), encoder), (logits.norm(dim=1).sum(), head)]
        for norm, names in norms:
            gradients = torch.autograd.grad(
                norm, [parameters[name] for name in names], retain_graph=True, materialize_grads=True
            )
            for name, gradient in zip(names, gradients, strict=True):
                total[name] += gradient.abs() if sign == "absolute" else gradient
    return {name: (gradient_sum / len(images)).cpu() for name, gradient_sum in total.items()}


@torch.no_grad()
def last_layer_gradients(model: LatentClassifier, images: Tensor, output: Output) -> Tensor:
    """Per-image gradients of the output's norm by the last layer's weight (K, p) and bias (K,), flattened.

    Args:
        model: Left in evaluation mode.
        images: (N, 3, H, W).
        output: As in `importance`.

    Returns: (N, K (p + 1)), signed.
    """
    gradients, device = [], device_of(model.eval())
    for batch in images.split(_BATCH_SIZE):
        inputs = model.head.norm(model.embedding(batch.to(device)))
        logits = model.head.linear(inputs)
        by_bias = 2 * logits if output == "logits" else nn.functional.normalize(logits, dim=1)
        gradients.append(torch.cat([(by_bias[:, :, None] * inputs[:, None, :]).flatten(1), by_bias], dim=1).cpu())
    return torch.cat(gradients)


def pooled(gradients: Tensor, batch_size: int, sign: Sign) -> Tensor:
    """Importances (..., D), as by `importance`, from per-image gradients (..., n, D)."""
    sums = [part.sum(-2) for part in gradients.split(batch_size, dim=-2)]
    total = torch.stack([part.abs() if sign == "absolute" else part for part in sums]).sum(0)
    return total / gradients.shape[-2]


def summed(states: Sequence[TensorsByName]) -> dict[str, Tensor]:
    """Sum of the clients' states by name, in double precision."""
    return {name: torch.stack([state[name].double() for state in states]).sum(0) for name in states[0]}


def share(importances: TensorsByName, total: TensorsByName, clients: int) -> dict[str, Tensor]:
    """Weight of each parameter: its importance over the sum of all clients' importances; 1 / clients where the sum is 0."""
    return {
        name: torch.where(
            total[name].abs() > NEGLIGIBLE, importances[name].double() / total[name].double(), 1 / clients
        )
        for name in importances
    }


def effective_clients(importances: Sequence[TensorsByName]) -> float:
    """Effective number of clients in an average weighted by these importances, from 1 to their number.

    For each scalar parameter it is 1 / (sum over clients of the squared weight); the result is the median over all scalar
    parameters.
    """
    total = summed(importances)
    shares = [share(of_client, total, len(importances)) for of_client in importances]
    squared_shares = [
        torch.stack([shares_of_client[name] for shares_of_client in shares]).square().sum(0).flatten() for name in total
    ]
    return float((1 / torch.cat(squared_shares)).median())


def weighted(state: TensorsByName, shares: TensorsByName) -> dict[str, Tensor]:
    """Parameters multiplied by their weights, in double precision."""
    return {name: state[name].double() * weight for name, weight in shares.items()}


def combined(states: Sequence[TensorsByName], weights: Sequence[TensorsByName]) -> dict[str, Tensor]:
    """Element-wise mean of `states`, weighted by `weights`."""
    total = summed(weights)
    parts = [
        weighted(state, share(importances, total, len(states)))
        for state, importances in zip(states, weights, strict=True)
    ]
    return {name: tensor.to(states[0][name].dtype) for name, tensor in summed(parts).items()}


def buffers(states: Sequence[TensorsByName], weights: Sequence[float] | None) -> dict[str, Tensor]:
    """Averages BatchNorm statistics by `weights`; takes the largest of each counter."""
    statistics = [
        {name: tensor for name, tensor in state.items() if name.rpartition(".")[2] in STATISTICS} for state in states
    ]
    merged = average(statistics, weights)
    for name in merged:
        if not merged[name].is_floating_point():
            merged[name] = torch.stack([state[name] for state in statistics]).amax(0)
    return merged
