"""Translator quality: class preservation, and identity error when translating to the own client."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ._latent_classifier import Head
from ._translator import Synthesised

LEAST_ACCURACY = 0.8  # of each client's stage-1 model on its training images; below, its head is undertrained
KEPT = 0.95  # class preservation of a translator that keeps classes, however often heads find them without translation


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


def training_warning(log: Mapping[str, float]) -> str | None:
    """What stages 1 and 3 did not learn, by the training log, and what to change; None if heads and translator are trained.

    Heads must fit their clients' training images, and translation must preserve classes better than no translation; where
    that preserves them all, as from a common pre-trained network, nearly as well.
    """
    least, kept, plain = (log.get(n) for n in ("stage1_accuracy_min", "class_preservation", "class_untranslated"))
    if least is None or kept is None or plain is None:
        return "the run's log lacks stage 1's accuracy or the translator's class preservation"
    if not least >= LEAST_ACCURACY:
        return (
            f"stage 1 trained too little: a client's accuracy on its own training images is {least:.2f}, "
            f"below {LEAST_ACCURACY}; raise pretrain_epochs"
        )
    if not (kept > plain or kept >= KEPT):
        return (
            f"the translator does not keep classes: accuracy {kept:.2f} under the other client's head, {plain:.2f} without "
            "translation; raise head_weight (0.5 for three clients) or translator_steps"
        )
    return None


def relative_error(translated: Tensor, latents: Tensor) -> float:
    """Mean |translated - latents| over mean |latents|, both (N, p)."""
    return float((translated - latents).abs().mean() / latents.abs().mean().clamp_min(1e-12))


def _accuracy(latents: Tensor, labels: Tensor, assigned: Tensor, heads: Sequence[Head]) -> float:
    """Accuracy of head d on the latents assigned to client d."""
    correct = [head.eval()(latents[assigned == d]).argmax(1) == labels[assigned == d] for d, head in enumerate(heads)]
    return float(torch.cat(correct).float().mean())
