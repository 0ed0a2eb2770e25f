"""Translator quality: class preservation, and identity error when translating to the own client."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ._latent_classifier import Head
from ._translator import Synthesised


@torch.no_grad()
def translator_quality(translator: nn.Module, data: Synthesised, heads: Sequence[Head]) -> dict[str, float]:
    """Quality figures of a translator on synthesised latents, in evaluation mode, for the training log.

    Args:
        translator: G(z, d, d').
        data: The latents it was trained on.
        heads: Of all clients, in order; latents of client d were inverted from head d.

    Returns:
        ``identity_error``: mean |G(z, d, d) - z| over mean |z|; 0 is perfect. With at least two clients also
        ``class_preservation``: accuracy of head d' on G(z, d, d') with d' != d, and ``class_untranslated``: its accuracy
        on z. Each latent is evaluated with one d'; all are equally frequent.
    """
    z, own, clients = data.latents, data.clients, len(heads)
    found = {"identity_error": relative_error(translator(z, own, own), z)}
    if clients == 1:
        return found
    other = (own + 1 + torch.arange(len(z), device=z.device) % (clients - 1)) % clients
    translated = translator(z, own, other)
    found["class_preservation"] = _accuracy(translated, data.labels, other, heads)
    found["class_untranslated"] = _accuracy(z, data.labels, other, heads)
    return found


def relative_error(translated: Tensor, latents: Tensor) -> float:
    """Mean |translated - latents| over mean |latents|, both (N, p)."""
    return float((translated - latents).abs().mean() / latents.abs().mean().clamp_min(1e-12))


def _accuracy(latents: Tensor, labels: Tensor, assigned: Tensor, heads: Sequence[Head]) -> float:
    """Accuracy of head d on the latents assigned to client d."""
    correct = [head.eval()(latents[assigned == d]).argmax(1) == labels[assigned == d] for d, head in enumerate(heads)]
    return float(torch.cat(correct).float().mean())
