"""Recovers a client's embedding and update from the gradient of its hypernetwork (hFedF, App. C.3)."""

from typing import Any

import torch

from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.utils.seeds import generator


def embedding_key(evaluator: Evaluator) -> dict[str, float]:
    """``key_error`` and ``update_error``: largest errors of the embedding and the update, relative to their largest entry.

    A server without the embedding nu cannot form the hypernetwork's gradient from a client's update Delta, so the client
    must send that gradient. The first linear layer maps nu to W nu + b, so that its weight's gradient is the outer
    product of its bias's gradient with nu; the gradient of the heads' biases is Delta. Both are solved for on the run's
    hypernetwork before training, for a random Delta; {} for methods other than hFedF.
    """
    method: Any = evaluator.method
    if method.name() != "hfedf":
        return {}
    rng = generator(evaluator.seed, 18)
    hypernetwork = method.hypernetwork(evaluator.federation, rng)
    key = hypernetwork.embeddings[0].detach()
    with torch.enable_grad():
        flat = hypernetwork(key[None])[0]
        update = torch.randn(flat.shape, generator=rng).to(flat.device)
        first = hypernetwork.trunk[0]
        weight, bias, heads = torch.autograd.grad(flat @ update, [first.weight, first.bias, hypernetwork.heads.bias])
    solved = bias @ weight / bias.square().sum()
    return {
        "key_error": float((solved - key).abs().max() / key.abs().max()),
        "update_error": float((heads - update).abs().max() / update.abs().max()),
    }
