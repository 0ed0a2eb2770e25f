"""Translator quality: class preservation, and identity error when translating to the own client."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ._latent_classifier import Head
from ._translator import Synthesised

MIN_ACCURACY = 0.8  # of each client's stage-1 model on its training images; below this, its head is undertrained
SUFFICIENT_PRESERVATION = 0.95  # class preservation that suffices, even if heads classify untranslated latents better


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
    latents, source, clients = data.latents, data.clients, len(heads)
    figures = {"identity_error": relative_error(translator(latents, source, source), latents)}
    if clients == 1:
        return figures
    target = (source + 1 + torch.arange(len(latents), device=latents.device) % (clients - 1)) % clients
    translated = translator(latents, source, target)
    figures["class_preservation"] = _accuracy(translated, data.labels, target, heads)
    figures["class_untranslated"] = _accuracy(latents, data.labels, target, heads)
    return figures


def training_warning(log: Mapping[str, float]) -> str | None:
    """What stages 1 and 3 failed to learn, by the training log, and how to change it; None if heads and translator are trained.

    Heads must fit their clients' training images. Translated latents must be classified better than untranslated ones, or
    nearly perfectly, as from a common pre-trained network even untranslated latents are.
    """
    accuracy, preserved, untranslated = (
        log.get(name) for name in ("stage1_accuracy_min", "class_preservation", "class_untranslated")
    )
    if accuracy is None or preserved is None or untranslated is None:
        return "the run's log lacks stage 1's accuracy or the translator's class preservation"
    if not accuracy >= MIN_ACCURACY:
        return (
            f"stage 1 trained too little: a client's accuracy on its own training images is {accuracy:.2f}, "
            f"below {MIN_ACCURACY}; raise pretrain_epochs"
        )
    if not (preserved > untranslated or preserved >= SUFFICIENT_PRESERVATION):
        return (
            f"the translator does not keep classes: accuracy {preserved:.2f} under the other client's head, "
            f"{untranslated:.2f} without translation; raise head_weight (0.5 for three clients) or translator_steps"
        )
    return None


def relative_error(translated: Tensor, latents: Tensor) -> float:
    """Mean |translated - latents| over mean |latents|, both (N, p)."""
    return float((translated - latents).abs().mean() / latents.abs().mean().clamp_min(1e-12))


def _accuracy(latents: Tensor, labels: Tensor, assigned: Tensor, heads: Sequence[Head]) -> float:
    """Accuracy of head d on the latents assigned to client d."""
    correct = [head.eval()(latents[assigned == d]).argmax(1) == labels[assigned == d] for d, head in enumerate(heads)]
    return float(torch.cat(correct).float().mean())
