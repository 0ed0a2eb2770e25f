"""Importance of parameters to a model's output (Aljundi et al., "Memory aware synapses", ECCV 2018), and averages by it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.parameters import STATISTICS

from ._federation import average, batch_count
from ._latent_classifier import LatentClassifier

Output = Literal["logits", "paper"]
Sign = Literal["absolute", "signed"]
_AT_ONCE = 256  # images
DEAD = 1e-12  # a sum of importances that is no larger tells nothing: the clients weigh alike

Named = Mapping[str, Tensor]


def importance(
    model: LatentClassifier, images: Tensor, batch_size: int, output: Output, sign: Sign, device: torch.device
) -> dict[str, Tensor]:
    """By parameter, how fast the size of the output changes with it, a mean over images; in evaluation mode.

    Args:
        model: Left in evaluation mode.
        images: (N, 3, H, W).
        batch_size: Gradients of so many images are summed before their sign is dropped; 1 is the definition of MAS.
        output: ``logits``: the squared norm of the logits, for all parameters (MAS, the released code). ``paper``: Eq. 17,
            the norm of the latent for the encoder's and that of the logits for the head's, not squared.
        sign: ``absolute``, or ``signed`` as Eq. 17 has it.
        device: Where.
    """
    model.eval()
    named = dict(model.named_parameters())
    head = [f"head.{name}" for name, _ in model.head.named_parameters()]
    encoder = [name for name in named if name not in head]
    total = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
    for part in images.split(batch_size):
        latents = model.embedding(part.to(device))
        logits = model.head(latents)
        if output == "logits":
            sizes = [(logits.square().sum(), list(named))]
        else:
            sizes = [(latents.norm(dim=1).sum(), encoder), (logits.norm(dim=1).sum(), head)]
        for size, names in sizes:
            slopes = torch.autograd.grad(
                size, [named[name] for name in names], retain_graph=True, materialize_grads=True
            )
            for name, slope in zip(names, slopes, strict=True):
                total[name] += slope.abs() if sign == "absolute" else slope
    return {name: (sum_ / len(images)).cpu() for name, sum_ in total.items()}


def with_fresh_statistics(
    model: LatentClassifier, images: Tensor, batch_size: int, device: torch.device
) -> LatentClassifier:
    """A copy of `model` whose BatchNorm statistics are those of one pass of these images through it.

    After a few local steps the running statistics still lag behind the weights, and logits in evaluation mode are then
    hundreds of times too large. Image i of N is in batch i mod k, with k = max(1, N // batch_size): each image is in one
    batch, and no batch is smaller than `batch_size` unless N is. A single image leaves the statistics as they are.

    Args:
        model: Left as it is, buffers included.
        images: (N, 3, H, W).
        batch_size: The least size of a batch.
        device: Where.
    """
    copy = deepcopy(model)
    count = batch_count(len(images), batch_size)
    if len(images) > 1:
        recalibrate(copy, [images[i::count].to(device) for i in range(count)])
    return copy


@torch.no_grad()
def slopes(model: LatentClassifier, images: Tensor, output: Output, device: torch.device) -> Tensor:
    """How the size of each image's output changes with the last layer's weight (K, p) and bias (K,), in one row.

    Args:
        model: Left in evaluation mode.
        images: (N, 3, H, W).
        output: As of `importance`.
        device: Where.

    Returns: (N, K (p + 1)), signed.
    """
    model.eval()
    found = []
    for part in images.split(_AT_ONCE):
        inputs = model.head.norm(model.embedding(part.to(device)))
        logits = model.head.linear(inputs)
        slope = 2 * logits if output == "logits" else nn.functional.normalize(logits, dim=1)
        found.append(torch.cat([(slope[:, :, None] * inputs[:, None, :]).flatten(1), slope], dim=1).cpu())
    return torch.cat(found)


def pooled(slopes: Tensor, batch_size: int, sign: Sign) -> Tensor:
    """The importances (..., D) of n images with these slopes (..., n, D), as `importance` takes them."""
    sums = [part.sum(-2) for part in slopes.split(batch_size, dim=-2)]
    total = torch.stack([part.abs() if sign == "absolute" else part for part in sums]).sum(0)
    return total / slopes.shape[-2]


def summed(states: Sequence[Named]) -> dict[str, Tensor]:
    """The sum of what clients shared, name by name, in double precision."""
    return {name: torch.stack([state[name].double() for state in states]).sum(0) for name in states[0]}


def share(own: Named, total: Named, clients: int) -> dict[str, Tensor]:
    """Each parameter's weight: its importance over all clients' sum, or 1 / clients where that sum is 0."""
    return {
        name: torch.where(total[name].abs() > DEAD, own[name].double() / total[name].double(), 1 / clients)
        for name in own
    }


def effective_clients(importances: Sequence[Named]) -> float:
    """How many clients an average by these importances is made of, between 1 and their number.

    For each single number of a model it is 1 / (sum over clients of the squared share); the result is the median over all
    numbers of all parameters.
    """
    total = summed(importances)
    shares = [share(own, total, len(importances)) for own in importances]
    squared = [torch.stack([of[name] for of in shares]).square().sum(0).flatten() for name in total]
    return float((1 / torch.cat(squared)).median())


def weighted(state: Named, shares: Named) -> dict[str, Tensor]:
    """Each parameter times its weight, in double precision."""
    return {name: state[name].double() * weight for name, weight in shares.items()}


def combined(states: Sequence[Named], weights: Sequence[Named]) -> dict[str, Tensor]:
    """The parameters of `states`, each the mean by `weights` of the same names."""
    total = summed(weights)
    parts = [weighted(s, share(w, total, len(states))) for s, w in zip(states, weights, strict=True)]
    return {name: tensor.to(states[0][name].dtype) for name, tensor in summed(parts).items()}


def buffers(states: Sequence[Named], weights: Sequence[float] | None) -> dict[str, Tensor]:
    """BatchNorm's statistics, averaged by `weights`; its counters, the largest."""
    kept = [{name: t for name, t in state.items() if name.rpartition(".")[2] in STATISTICS} for state in states]
    merged = average(kept, weights)
    for name in merged:
        if not merged[name].is_floating_point():
            merged[name] = torch.stack([state[name] for state in kept]).amax(0)
    return merged


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Sequence[Tensor]) -> dict[str, Tensor]:
    """The BatchNorm statistics of `model` under its own parameters: means over a pass through batches of images.

    A layer that saw no batch large enough keeps what it had.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    before = {name: {k: t.clone() for k, t in layer.named_buffers()} for name, layer in layers.items()}
    momenta = {name: layer.momentum for name, layer in layers.items()}
    for layer in layers.values():
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over batches
    model.train()
    for images in batches:
        model(images)
    model.eval()
    for name, layer in layers.items():
        layer.momentum = momenta[name]
        if not int(layer.num_batches_tracked or 0):
            layer.load_state_dict(before[name], strict=False)
    return {
        f"{name}.{leaf}": tensor.to("cpu", copy=True)
        for name, layer in layers.items()
        for leaf, tensor in layer.named_buffers()
    }
