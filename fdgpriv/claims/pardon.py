"""Privacy claims of the PARDON paper (Nguyen et al.)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.claims.by_attack import WITHOUT_LEAKED_IMAGES, excluding_nothing, no_leak_by
from fdgpriv.claims.colour import no_leak_beyond_colour
from fdgpriv.claims.equal_numbers import table_iv
from fdgpriv.claims.findings import IMAGES, refused, rows_of, wire_verdict
from fdgpriv.claims.harder import harder_for_many
from fdgpriv.claims.hypothesis import Case, Decision, Hypothesis, interval, needs
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.paired import LEVEL

_STYLE = ("style_statistics",)
_OF_ALL = ("interpolation_style",)
_MODELS = ("model_state", "global_model")
_OF_STYLE = ("style_membership", "identification", "domain_inference", "label_histogram", "gan", "style_inversion")
_RELEVANT = 0.1  # of AUC, as for membership


def _cross_sharing(case: Case) -> Decision:
    """Decided by what is passed on, and by the number of clients: of two, each computes the other's style from the mean."""
    if not case.records:
        return Decision("undecided", "not measured: no artifacts were shared")
    relayed = [record for record in case.records if record.relayed]
    sharing = {record.sender for record in case.records if record.kind in _STYLE} - {SERVER}
    blended = any(record.kind in _OF_ALL for record in case.records)
    clients = sharing or {record.sender for record in case.records} - {SERVER}
    evidence = (f"{len(relayed)} artifacts passed on from one client to another, {len(clients)} clients",)
    if relayed:
        return Decision("refuted", "the server passes one client's artifact on to another", evidence)
    if blended and len(clients) == 2:
        reason = "the global style is the mean of two clients' styles, from which each computes the other's"
        return Decision("refuted", reason, evidence)
    reason = "no artifact is passed on"
    if blended and len(clients) == 3:
        reason += "; of three clients, each computes the mean of the other two's styles from the global style"
    return Decision("supported", reason, evidence)


def _conceals(case: Case) -> Decision:
    """Decided by inference of a client's presence from the interpolation style, in the largest federations evaluated."""
    attacks = no_leak_by(
        *("style_membership", "identification", "gan", "style_inversion"), on=_OF_ALL, by=WITHOUT_LEAKED_IMAGES
    )(case)
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
    """Decided against the claim by a leak of the style where the same adversary is excluded to learn the secret from the model.

    A secret that attacks on the model are too weak for, or do not look for, is not compared.
    """
    decision = no_leak_by(*_OF_STYLE, on=_STYLE, by=WITHOUT_LEAKED_IMAGES)(case)
    if decision.verdict != "refuted":
        return decision
    of_model: dict[tuple[str, str], list[AttackFinding]] = {}
    for row in case.attacks:
        if row.kind in _MODELS and not refused(row):
            of_model.setdefault((row.secret, row.threat.role), []).append(row)
    rows = rows_of(case, _OF_STYLE, _STYLE, WITHOUT_LEAKED_IMAGES)
    by_style = {(row.secret, row.threat.role) for row in rows if wire_verdict(row) == "leak"}
    by_model = {asked for asked, found in of_model.items() if any(wire_verdict(row) == "leak" for row in found)}
    if added := {asked for asked in by_style if _excluded(of_model.get(asked, []))}:
        return replace(decision, reason=f"the style leaks what the model does not: {_secrets(added)}")
    if unknown := by_style - by_model:
        reason = f"inconclusive: the style leaks {_secrets(unknown)}, and whether the model does is not established"
        return decision.undecided(reason)
    return decision.undecided("the model alone leaks the same secrets to the same adversaries")


def _excluded(rows: Sequence[AttackFinding]) -> bool:
    """Whether there are such rows, none finds a leak, and each attack excludes one."""
    return bool(rows) and all(wire_verdict(row) == "no_leak_found" for row in rows) and not excluding_nothing(rows)


def _secrets(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{secret} by {role}" for secret, role in sorted(pairs))


def _abstract(case: Case) -> Decision:
    """Decided by leaks from client styles; the evidence compares images generated from client and single-image styles."""
    found = no_leak_by(*("gan", "style_inversion"), on=_STYLE, by=WITHOUT_LEAKED_IMAGES, secret=IMAGES, matters=True)(
        case
    )
    return replace(found, evidence=found.evidence + table_iv(case.facts))


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
        "several images of different classes from one client's style, each against the client's images of its class",
        needs("an attack that draws images of different classes from one style, which is not built"),
    ),
    Hypothesis(
        "messages",
        "does not allow any cross-sharing mechanism between two arbitrary clients",
        "artifacts passed on from client to client",
        _cross_sharing,
    ),
    Hypothesis(
        "H-P5",
        "does not introduce additional security risks",
        "attacks on the style, beside those on the model alone",
        _no_additional_risk,
    ),
    Hypothesis(
        "mitigates",
        "it mitigates attack threats compared to the sample-level",
        "leads of attacks on a client's style, against those on single images' styles",
        harder_for_many("gan", "style_inversion", "style_membership"),
    ),
    Hypothesis(
        "H-P6",
        "effectively preserving client privacy and sensitive information",
        "membership in the client style, which is sent once",
        no_leak_by("style_membership", on=_STYLE, broad=True),
    ),
    Hypothesis(
        "H-P7",
        "interpolation-style transfer offers stronger privacy protection than cross-local style transfer",
        "identifying the source of a stylised image, PARDON against CCST",
        needs("an attack on stylised images, which are not shared: in PARDON all have one style, in CCST one client's"),
    ),
    Hypothesis(
        "H-P8",
        "if the adversary can acquire a sample-level style vector (i.e., single style as in CCST), they can reconstruct "
        "the content of the image",
        "reconstruction from a single image's style, compared with its own colour (see H-C1)",
        no_leak_beyond_colour("gan", leak="supported", on=_STYLE, by=WITHOUT_LEAKED_IMAGES, matters=True),
    ),
)
