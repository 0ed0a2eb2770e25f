"""Privacy claims of the LSI paper (latent space inversion)."""

from dataclasses import replace

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.claims.hypothesis import (
    Case,
    Decision,
    Hypothesis,
    Rule,
    figure,
    interval,
    needs,
    no_leak_by,
    statistics_layers,
)
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.measured import Measured


def _where_trained(rule: Rule) -> Rule:
    """Restricts `rule` to runs whose heads and translator learned what they are for; otherwise undecided."""

    def decide(case: Case) -> Decision:
        found = rule(case)
        if found.verdict == "undecided" or case.shortfall is None:
            return found
        return Decision("undecided", case.shortfall, found.evidence)

    return decide


def _single_layer(case: Case) -> Decision:
    layers = statistics_layers(case)
    if not layers:
        return Decision("undecided", "not measured: no BatchNorm statistics were shared")
    evidence = (f"running statistics of {layers} BatchNorm layers in clients' uploads",)
    if layers > 1:
        return Decision("refuted", f"statistics of {layers} layers are uploaded, not of one", evidence)
    return Decision("supported", "statistics of one layer are uploaded", evidence)


def _overhead(case: Case) -> Decision:
    uploaded = sum(record.nbytes for record in case.records if record.receiver == SERVER)
    plain = sum(r.nbytes for r in case.records if r.receiver == SERVER and r.kind == "model_state")
    if not uploaded or not plain:
        return Decision("undecided", "not measured: no models were uploaded")
    evidence = (f"{uploaded:,} bytes uploaded by all clients, {plain:,} of them models",)
    return Decision(
        "refuted" if uploaded > plain else "supported",
        f"{uploaded / plain:.2f} times the upload of plain averaging",
        evidence,
    )


_ACCURATE = 0.25  # relative error below which statistics count as accurate estimates of the moments
_NEARER = 0.05  # precision above that of noise


def _resemble(case: Case) -> Decision:
    if "latent_precision" not in case.facts:
        return Decision("undecided", "not measured: no classifier heads were shared")
    told = {
        name: interval(case.facts, name)
        for name in ("latent_precision", "latent_recall", "noise_precision", "noise_recall", "latent_gain")
    }
    evidence = (
        f"synthesised latents among real ones, {case.facts['latent_precision_n']:g} clients: "
        f"precision {told['latent_precision']}, recall {told['latent_recall']}",
        f"N(0, 1) among real ones: precision {told['noise_precision']}, recall {told['noise_recall']}",
        f"precision above N(0, 1)'s: {told['latent_gain']}",
    )
    if case.facts.get("latent_gain_high", 1.0) <= _NEARER:
        return Decision(
            "refuted", "synthesised latents are no nearer to real ones than noise, at these settings", evidence
        )
    if case.facts.get("latent_gain_low", 0.0) <= _NEARER:
        reason = (
            "inconclusive: whether synthesised latents are nearer to real ones than noise; more clients would decide"
        )
        return Decision("undecided", reason, evidence)
    found = no_leak_by("latent_inversion", on=("classifier_head",))(case)
    return replace(found, evidence=evidence + found.evidence)


def _withheld(case: Case) -> Decision:
    if "latent_mean_error" not in case.facts:
        return Decision("undecided", "not measured: no classifier heads were shared")
    errors = ("latent_mean_error", "latent_var_error")
    mean, variance = (interval(case.facts, name) for name in errors)
    evidence = (
        f"relative error of the statistics, {case.facts['latent_mean_error_n']:g} clients: mean {mean}, variance {variance}",
    )
    if all(case.facts.get(f"{name}_high", 1.0) < _ACCURATE for name in errors):
        return Decision("refuted", "the uploaded statistics are accurate estimates of those moments", evidence)
    reason = "running averages lag behind an encoder that still changes; a larger pretrain_epochs would decide"
    return Decision("undecided", reason, evidence)


def _insufficient(case: Case) -> Decision:
    head = no_leak_by("latent_inversion", on=("classifier_head",))(case)
    model = no_leak_by("deep_inversion", on=("model_state",))(case)
    evidence = head.evidence + model.evidence + _by_layers(case)
    if head.verdict != "refuted" and model.verdict == "refuted":
        reason = "statistics of all layers are sent as well, and their inversion leaks"
        return replace(model, reason=reason, evidence=evidence)
    layers = statistics_layers(case)
    if head.verdict == "supported" and layers > 1 and model.verdict != "supported":
        reason = (
            f"nothing leaks from one layer's statistics, but those of {layers} are sent, whose inversion is undecided"
        )
        return replace(head, evidence=evidence).undecided(reason)
    return replace(head, evidence=evidence)


# attacks on the artifacts that the paper's clients share
_INVERTED = ("latent_inversion", "classifier_head"), ("deep_inversion", "model_state")


def _by_layers(case: Case) -> tuple[str, ...]:
    """PSNR for one image by the layers whose statistics are inverted, and the strongest control's."""
    by_layers: dict[str, Measured] = {}
    controls: dict[str, Measured] = {}
    for row in case.attacks:
        control = row.positive_control
        if control is None or (row.attack, row.kind) not in _INVERTED:
            continue
        if row.attack == "latent_inversion":
            by_layers["the head's"] = control.value
        by_layers |= {name.removeprefix("psnr@"): m for name, m in row.metrics.items() if name.startswith("psnr@")}
        controls |= control.controls
    known = {name: m for name, m in controls.items() if m.value is not None}
    if not by_layers or not known:
        return ()
    best = max(known, key=lambda name: known[name].value or 0.0)
    figures = "; ".join(f"{name} {figure(m)}" for name, m in sorted(by_layers.items()))
    return (
        f"one image's PSNR in dB by the statistics inverted: {figures}; strongest control ({best}) {figure(known[best])}",
    )


def _translated(case: Case) -> Decision:
    if "translation_gain" not in case.facts:
        return Decision("undecided", "not measured: no translator was shared")
    f = case.facts
    low = f.get("translation_gain_low")
    evidence = (
        f"distance to the true moments of another client: latents translated to it {f['translated_error']:.2f}, untranslated "
        f"{f['untranslated_error']:.2f}, translated to other clients {f['elsewhere_error']:.2f}",
        f"gain over the better of the two controls: {interval(f, 'translation_gain')}",
    )
    if low is not None and low > 0:
        reason = "translated latents are nearer to another client's than both controls"
        return Decision("refuted", reason, evidence, Interval.read(f, "translation_gain").p_above(), leak=True)
    reason = (
        "translated latents are no nearer to the client's than the controls, but no positive control says they could be"
    )
    return Decision("undecided", reason, evidence)


HYPOTHESES = (
    Hypothesis(
        "H-L1",
        "this single layer of the model alone is insufficient to reconstruct images",
        "inversion from one layer's statistics against all layers'",
        _where_trained(_insufficient),
    ),
    Hypothesis(
        "H-L2",
        "The knowledge of the batch normalization statistics from a single layer is insufficient for model inversion",
        "BatchNorm layers whose running statistics are uploaded",
        _single_layer,
    ),
    Hypothesis(
        "H-L3",
        "closely resemble original representations z, not reveal sensitive information",
        "precision and recall of inverted latents against real ones",
        _where_trained(_resemble),
    ),
    Hypothesis(
        "H-L4",
        "better client privacy",
        "label histogram and domain from the head and its statistics",
        _where_trained(no_leak_by("label_histogram", "domain_inference", on=("classifier_head",))),
    ),
    Hypothesis(
        "H-L5",
        "without sharing actual client data",
        "membership and label histogram from importance weights",
        no_leak_by("importance_membership", "label_histogram", on=("importance_weights",)),
    ),
    Hypothesis(
        "H-L6",
        "without sharing actual client data",
        "whether a client took part, from the translator",
        needs("translators of federations with and without a client: 20 of each, about 20 s of stages 2 and 3 for one"),
    ),
    Hypothesis(
        "H-L7",
        "Due to privacy concerns, E(μ(z)) and E(σ²(z)) are not available at the server",
        "error of the uploaded BatchNorm statistics against the true moments of z",
        _where_trained(_withheld),
    ),
    Hypothesis(
        "H-L8",
        "better client privacy",
        "another client's latent moments from the translator",
        _where_trained(_translated),
    ),
    Hypothesis("H-L9", "less communication overhead", "bytes uploaded, importance weights included", _overhead),
)
