"""What the PARDON paper claims."""

import re
from collections.abc import Mapping
from dataclasses import replace

from fdgpriv.claims.hypothesis import Case, Decision, Hypothesis, interval, needs, no_leak_by

_STYLE = ("style_statistics",)
_OF_ALL = ("interpolation_style",)


def _cross_sharing(case: Case) -> Decision:
    if not case.records:
        return Decision("undecided", "not measured: nothing crossed")
    relayed = [record for record in case.records if record.relayed]
    clients = {record.sender for record in case.records} - {"server"}
    evidence = (f"{len(relayed)} crossings from one client to another, {len(clients)} clients",)
    if relayed:
        return Decision("refuted", "the server passes one client's artifact on to another", evidence)
    return Decision(
        "supported", "nothing is passed on; with two or three clients the global style says as much", evidence
    )


def _conceals(case: Case) -> Decision:
    """Of the style of all, by what is told of a client's presence in the largest of the federations looked at."""
    attacks = no_leak_by("style_membership", "identification", "gan", "style_inversion", on=_OF_ALL)(case)
    if attacks.verdict == "refuted":
        return attacks
    counts = sorted(int(name.removeprefix("presence_")) for name in case.facts if re.fullmatch(r"presence_\d+", name))
    if not counts:
        return Decision("undecided", "not measured: no such style crossed, or too few clients shared one")
    evidence = tuple(
        f"whether a client's style is among {m}, from the style of all: AUC {interval(case.facts, f'presence_{m}')}; "
        f"by who looks for another client {interval(case.facts, f'absent_{m}')}"
        for m in counts
    )
    few, most = counts[0], counts[-1]
    if case.facts.get(f"presence_{most}_low", 0.0) > 0.5:
        return Decision("refuted", f"of {most} clients, the style of all tells that one took part", evidence)
    if case.facts.get(f"presence_{few}_low", 0.0) > 0.5:
        reason = f"of {most} clients, one's presence is not told, by a reader that tells it of {few}"
        return Decision("supported", reason, evidence)
    return Decision("undecided", f"inconclusive: not even of {few} clients is one's presence told", evidence)


def _abstract(case: Case) -> Decision:
    """By leaks from clients' styles; beside it what is drawn from single images' styles, of equally many."""
    found = no_leak_by("gan", "style_inversion", on=_STYLE)(case)
    return replace(found, evidence=found.evidence + _table_iv(case.facts))


def _table_iv(facts: Mapping[str, float]) -> tuple[str, ...]:
    """PARDON's Table IV, at equal numbers and beside what it leaves out."""
    told = []
    for role in ("third_party", "client"):
        if f"{role}_n" not in facts:
            continue
        who, n = role.replace("_", " "), f"{facts[f'{role}_n']:.0f}"
        for what, said in _DRAWN.items():
            figures = {name: facts.get(f"{role}_{what}_{key}") for key, name in _PRINTED.items()}
            known = ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if value is not None)
            told.append(f"{n} {said.format(who)}: {known}")
        told.append(f"{who}: lead of a sample's style over its client's {interval(facts, f'{role}_lead')} dB")
    return tuple(told)


_DRAWN = {
    "sample": "images drawn by the {} from samples' styles",
    "client": "by the {} from clients' styles",
    "random": "by the {} from random styles",
    "mean": "times the public mean image of the {}",
    "real": "real images",
}
_PRINTED = {"fid": "FID", "kid": "KID", "log_is": "log IS", "is_over_k": "IS/K", "psnr": "PSNR"}

HYPOTHESES = (
    Hypothesis(
        "H-P1",
        "abstracted to ensure that it cannot be employed to reconstruct the original dataset",
        "reconstruction from the client style, and from as many single images' styles",
        _abstract,
    ),
    Hypothesis(
        "H-P2",
        "the global style conceals client-specific data and class-level information",
        "federations with and without a client, from the global style",
        _conceals,
    ),
    Hypothesis(
        "H-P3",
        "the global style conceals client-specific data and class-level information",
        "the label histogram from the client style",
        no_leak_by("label_histogram", on=_STYLE),
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
        "what is passed from client to client",
        _cross_sharing,
    ),
    Hypothesis(
        "H-P5",
        "does not introduce additional security risks; instead, it mitigates",
        "any attack on model and style against the model alone",
        no_leak_by("style_membership", "identification", "domain_inference", on=_STYLE),
    ),
    Hypothesis(
        "H-P6",
        "the style is sent once",
        "membership in the client style, by client and cluster size",
        no_leak_by("style_membership", on=_STYLE),
    ),
    Hypothesis(
        "H-P7",
        "interpolation-style transfer offers stronger privacy protection than cross-local style transfer",
        "naming the source of a stylised image, PARDON against CCST",
        needs(
            "a reader of stylised images, which cross no wire: by design all are drawn in one style, in CCST in one client's"
        ),
    ),
    Hypothesis(
        "H-P8",
        "can reconstruct the content",
        "reconstruction and identification from a single image's style (see H-C1 and H-C2)",
        no_leak_by("gan", "identification", image=True, leak="supported", on=_STYLE),
    ),
)
