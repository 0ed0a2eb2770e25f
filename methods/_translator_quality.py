"""How well a translator keeps what a latent is: its class, and itself where it is translated to its own client."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ._latent_classifier import Head
from ._translator import Synthesised


@torch.no_grad()
def translator_quality(translator: nn.Module, data: Synthesised, heads: Sequence[Head]) -> dict[str, float]:
    """Figures of a translator on synthesised latents, in evaluation mode, for the log of a run.

    Args:
        translator: G(z, d, d').
        data: The latents that it was trained on.
        heads: By place, of all clients; latents of d were inverted from head d.

    Returns:
        ``identity_error``: mean |G(z, d, d) - z| over mean |z|; 0 is perfect. Where there are at least two clients,
        ``class_preservation``: how often head d' finds the class of z in G(z, d, d'), d' another client than d, and
        ``class_untranslated``: how often it finds it in z. Each latent is tried with one d'; all are equally frequent.
    """
    z, own, clients = data.latents, data.clients, len(heads)
    found = {"identity_error": relative_error(translator(z, own, own), z)}
    if clients == 1:
        return found
    other = (own + 1 + torch.arange(len(z), device=z.device) % (clients - 1)) % clients
    translated = translator(z, own, other)
    found["class_preservation"] = _hits(translated, data.labels, other, heads)
    found["class_untranslated"] = _hits(z, data.labels, other, heads)
    return found


def relative_error(made: Tensor, latents: Tensor) -> float:
    """Mean |made - latents| over mean |latents|, both (N, p)."""
    return float((made - latents).abs().mean() / latents.abs().mean().clamp_min(1e-12))


def _hits(latents: Tensor, labels: Tensor, places: Tensor, heads: Sequence[Head]) -> float:
    """How often the head at each latent's place finds its label."""
    right = [head.eval()(latents[places == d]).argmax(1) == labels[places == d] for d, head in enumerate(heads)]
    return float(torch.cat(right).float().mean())
