"""Privacy claims of the PARDON paper (Nguyen et al.)."""

import re
from collections.abc import Mapping
from dataclasses import replace

from fdgpriv.claims.colour import no_leak_beyond_colour
from fdgpriv.claims.hypothesis import (
    Case,
    Decision,
    Hypothesis,
    interval,
    needs,
    no_leak_by,
    rows_of,
    wire_verdict,
)
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.paired import LEVEL

_STYLE = ("style_statistics",)
_OF_ALL = ("interpolation_style",)
_MODELS = ("model_state", "global_model")
_OF_STYLE = ("style_membership", "identification", "domain_inference", "label_histogram")
_RELEVANT = 0.1  # of AUC, as for membership


def _cross_sharing(case: Case) -> Decision:
    if not case.records:
        return Decision("undecided", "not measured: no artifacts were shared")
    relayed = [record for record in case.records if record.relayed]
    clients = {record.sender for record in case.records} - {"server"}
    evidence = (f"{len(relayed)} artifacts passed on from one client to another, {len(clients)} clients",)
    if relayed:
        return Decision("refuted", "the server passes one client's artifact on to another", evidence)
    return Decision(
        "supported", "no artifact is passed on; with two or three clients the global style is as informative", evidence
    )


def _conceals(case: Case) -> Decision:
    """Decided by inference of a client's presence from the interpolation style, in the largest federations evaluated."""
    attacks = no_leak_by("style_membership", "identification", "gan", "style_inversion", on=_OF_ALL)(case)
    if attacks.verdict == "refuted":
        return attacks
    counts = sorted(int(name.removeprefix("presence_")) for name in case.facts if re.fullmatch(r"presence_\d+", name))
    if not counts:
        return Decision("undecided", "not measured: no such style was shared, or too few clients shared one")
    evidence = tuple(
        f"whether a client is among {m}, from the global style: AUC {interval(case.facts, f'presence_{m}')}; "
        f"control that looks for another client {interval(case.facts, f'absent_{m}')}; "
        f"difference {interval(case.facts, f'presence_lead_{m}')}"
        for m in counts
    )
    few, most = counts[0], counts[-1]
    if (p := _presence(case, most)) <= LEVEL:
        reason = f"with {most} clients, the global style reveals that one took part"
        return Decision("refuted", reason, evidence, p, leak=True)
    if _presence(case, few) > LEVEL:
        return Decision(
            "undecided", f"inconclusive: not even with {few} clients is a client's presence found", evidence
        )
    if case.facts.get(f"presence_{most}_high", 1.0) > 0.5 + _RELEVANT:
        reason = f"inconclusive: with {most} clients, an AUC above {0.5 + _RELEVANT} is not excluded"
        return Decision("undecided", reason, evidence)
    reason = (
        f"with {most} clients, an AUC above {0.5 + _RELEVANT} is excluded, by an attack that finds a client with {few}"
    )
    return Decision("supported", reason, evidence)


def _presence(case: Case, clients: int) -> float:
    """The p of finding one of so many clients better than by guessing and than who looks for another."""
    found, lead = (Interval.read(case.facts, f"{name}_{clients}") for name in ("presence", "presence_lead"))
    return max(found.p_above(0.5), lead.p_above())


def _labels_concealed(case: Case) -> Decision:
    """Decided for the claim where a client's style tells no labels: the global style is computed from such styles."""
    found = no_leak_by("label_histogram", on=_STYLE)(case)
    if found.verdict != "refuted":
        return found
    return found.undecided(
        "a client's style tells its labels; whether the global style, computed from all of them, does is not measured"
    )


def _no_additional_risk(case: Case) -> Decision:
    """Decided against the claim by a leak of the style where the same adversary finds none of this secret in the model."""
    found = no_leak_by(*_OF_STYLE, on=_STYLE)(case)
    if found.verdict != "refuted":
        return found
    by_model = {
        (row.secret, row.threat.role) for row in case.attacks if row.kind in _MODELS and wire_verdict(row) == "leak"
    }
    rows = rows_of(case, _OF_STYLE, on=_STYLE)
    by_style = {(row.secret, row.threat.role) for row in rows if wire_verdict(row) == "leak"}
    if by_style - by_model:
        listed = ", ".join(f"{secret} by {role}" for secret, role in sorted(by_style - by_model))
        return replace(found, reason=f"the style leaks what no attack on the model finds: {listed}")
    return found.undecided("the model alone leaks the same secrets to the same adversaries")


def _abstract(case: Case) -> Decision:
    """Decided by leaks from client styles; the evidence compares images generated from client and single-image styles."""
    found = no_leak_by("gan", "style_inversion", on=_STYLE)(case)
    return replace(found, evidence=found.evidence + _table_iv(case.facts))


def _table_iv(facts: Mapping[str, float]) -> tuple[str, ...]:
    """PARDON's Table IV at equal numbers, with additional controls."""
    lines = []
    for role in ("third_party", "client"):
        if f"{role}_n" not in facts:
            continue
        who, n = role.replace("_", " "), f"{facts[f'{role}_n']:.0f}"
        for what, description in _GENERATED.items():
            keys = {f"{role}_{what}_{key}": name for key, name in _METRIC_NAMES.items()}
            known = ", ".join(f"{name} {interval(facts, key)}" for key, name in keys.items() if key in facts)
            lines.append(f"{n} {description.format(who)}: {known}")
        lines.append(f"{who}: lead of a sample's style over its client's {interval(facts, f'{role}_lead')} dB")
    return tuple(lines)


_GENERATED = {
    "sample": "images generated by the {} from samples' styles",
    "client": "generated by the {} from clients' styles",
    "random": "generated by the {} from random styles",
    "mean": "copies of the public mean image of the {}",
    "real": "real images",
}
_METRIC_NAMES = {"fid": "FID", "kid": "KID", "log_is": "log IS", "is_over_k": "IS/K", "psnr": "PSNR"}

HYPOTHESES = (
    Hypothesis(
        "H-P1",
        "abstracted to ensure that it cannot be employed to reconstruct the original dataset",
        "reconstruction from client styles, and from equally many single-image styles",
        _abstract,
    ),
    Hypothesis(
        "H-P2",
        "the global style conceals client-specific data and class-level information",
        "whether a client took part, from the global style",
        _conceals,
    ),
    Hypothesis(
        "H-P3",
        "the global style conceals client-specific data and class-level information",
        "the label histogram from the client styles that the global style is computed from",
        _labels_concealed,
    ),
    Hypothesis(
        "H-P4",
        "only one image that can be reconstructed for one client, i.e., no distinguishable images reflecting different classes",
        "class attributes from the client style",
        needs("images with attributes besides class and domain, which neither the digits nor PACS have"),
    ),
    Hypothesis(
        "messages",
        "does not allow any cross-sharing mechanism between two arbitrary clients",
        "artifacts passed on from client to client",
        _cross_sharing,
    ),
    Hypothesis(
        "H-P5",
        "does not introduce additional security risks; instead, it mitigates",
        "attacks on the style, beside those on the model alone",
        _no_additional_risk,
    ),
    Hypothesis(
        "H-P6",
        "the style is sent once",
        "membership in the client style",
        no_leak_by("style_membership", on=_STYLE),
    ),
    Hypothesis(
        "H-P7",
        "interpolation-style transfer offers stronger privacy protection than cross-local style transfer",
        "identifying the source of a stylised image, PARDON against CCST",
        needs("an attack on stylised images, which are not shared: in PARDON all have one style, in CCST one client's"),
    ),
    Hypothesis(
        "H-P8",
        "can reconstruct the content",
        "reconstruction and identification from a single image's style (see H-C1 and H-C2)",
        no_leak_beyond_colour("gan", "identification", leak="supported", on=_STYLE),
    ),
)
