"""Decides whether the statistics of a single BatchNorm layer reveal images, in comparison with more layers (LSI)."""

from collections.abc import Mapping
from dataclasses import replace

from fdgpriv.claims.by_attack import no_leak_by
from fdgpriv.claims.claim_test import Case, Decision
from fdgpriv.claims.findings import IMAGES, figure, rows_of
from fdgpriv.claims.harder import lead_over
from fdgpriv.statistics.measured import Measured

_HEAD = no_leak_by("latent_inversion", on=("classifier_head",), secret=IMAGES, matters=True)


def head_insufficient(case: Case) -> Decision:
    """Decided by inversion of the head alone; the evidence includes inversion of more layers' statistics."""
    decision = _HEAD(case)
    return replace(decision, evidence=decision.evidence + _by_layers(case))


def one_layer_insufficient(case: Case) -> Decision:
    """Decided by inversion of a client's head, whose BatchNorm layer is the only one, and of one layer of the model.

    The latter is measured on models trained on one image, whose statistics reveal most. If one layer suffices there, this
    says nothing about clients; if it does not although all layers do, it does not suffice for clients either.
    """
    head = _HEAD(case)
    figures, control = _swept(case)
    evidence = head.evidence + _by_layers(case)
    if head.verdict == "refuted" or not figures or control is None:
        return replace(head, evidence=evidence)
    leads = {name: lead_over(value, control) for name, value in figures.items()}
    all_layers, single = leads.get("k=all"), [lead for name in _ONE_LAYER if (lead := leads.get(name)) is not None]
    if not single or all_layers is None:
        return replace(head, evidence=evidence)
    if any(high >= _RELEVANT for _, _, high in single):
        reason = f"inconclusive: on models of one image, a lead of {_RELEVANT:g} dB from one layer is not excluded"
        return replace(head, evidence=evidence).undecided(reason)
    if all_layers[1] <= 0 or head.verdict != "supported":
        return replace(head, evidence=evidence)
    reason = "neither the head's layer nor one layer of a model of one image suffices, where all layers do"
    return replace(head, reason=reason, evidence=evidence)


_RELEVANT = 1.0  # dB
_ONE_LAYER = ("k=1", "last=1")


def _swept(case: Case) -> tuple[Mapping[str, Measured], Measured | None]:
    """PSNR for one image by the layers whose statistics are inverted from a model, and the strongest control's."""
    for row in rows_of(case, *_OF_MODELS, secret=IMAGES):
        if (control := row.positive_control) is not None:
            figures = {name.removeprefix("psnr@"): m for name, m in row.metrics.items() if name.startswith("psnr@")}
            return figures, _strongest(control.controls)[1]
    return {}, None


def _strongest(controls: Mapping[str, Measured]) -> tuple[str, Measured | None]:
    with_value = {name: m for name, m in controls.items() if m.value is not None}
    best = max(with_value, key=lambda name: with_value[name].value or 0.0, default="")
    return best, with_value.get(best)


# attacks on the artifacts that the paper's clients share
_OF_HEADS = ("latent_inversion",), ("classifier_head",)
_OF_MODELS = ("deep_inversion",), ("model_state",)


def _by_layers(case: Case) -> tuple[str, ...]:
    """PSNR for one image by the layers whose statistics are inverted, and the strongest control's."""
    by_layers: dict[str, Measured] = {}
    controls: dict[str, Measured] = {}
    for row in (*rows_of(case, *_OF_HEADS, secret=IMAGES), *rows_of(case, *_OF_MODELS, secret=IMAGES)):
        if (control := row.positive_control) is None:
            continue
        if row.attack == "latent_inversion":
            by_layers["the head's"] = control.value
        by_layers |= {name.removeprefix("psnr@"): m for name, m in row.metrics.items() if name.startswith("psnr@")}
        controls |= control.controls
    name, best = _strongest(controls)
    if not by_layers or best is None:
        return ()
    figures = "; ".join(f"{name} {figure(m)}" for name, m in sorted(by_layers.items()))
    return (f"one image's PSNR in dB by the statistics inverted: {figures}; strongest control ({name}) {figure(best)}",)
