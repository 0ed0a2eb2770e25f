"""Privacy claims of the PARDON paper (Nguyen et al.)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.claims.by_attack import BROADER, WITHOUT_LEAKED_IMAGES, excluding_nothing, no_leak_by
from fdgpriv.claims.claim_test import Case, ClaimTest, Decision, interval, needs
from fdgpriv.claims.colour import no_leak_beyond_colour
from fdgpriv.claims.equal_numbers import table_iv
from fdgpriv.claims.findings import IMAGES, refused, rows_of, wire_verdict
from fdgpriv.claims.harder import harder_for_many
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.paired import LEVEL

_STYLE = ("style_statistics",)
_OF_ALL = ("interpolation_style",)
_MODELS = ("model_state", "global_model")
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
    """Refuted by inference of a client's presence from the interpolation style, in the largest federations evaluated.

    Without one undecided: the sentence claims more than that presence and these attacks' secrets are concealed.
    """
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
    fewest, largest = counts[0], counts[-1]
    if (p := _presence_p(case, largest)) <= LEVEL:
        reason = f"with {largest} clients, the global style reveals that one took part"
        return Decision("refuted", reason, evidence, p, leak=True)
    if _presence_p(case, fewest) > LEVEL:
        return Decision(
            "undecided", f"inconclusive: not even with {fewest} clients is a client's presence found", evidence
        )
    if case.facts.get(f"presence_{largest}_high", 1.0) > 0.5 + _RELEVANT:
        reason = f"inconclusive: with {largest} clients, an AUC above {0.5 + _RELEVANT} is not excluded"
        return Decision("undecided", reason, evidence)
    excluded = f"an AUC above {0.5 + _RELEVANT} is excluded"
    reason = f"with {largest} clients, {excluded}, by an attack that finds a client with {fewest}"
    return Decision("undecided", reason + BROADER, evidence)


def _presence_p(case: Case, clients: int) -> float:
    """The p that a client among `clients` is detected better than by chance and than by the control."""
    presence, lead = (Interval.read(case.facts, f"{name}_{clients}") for name in ("presence", "presence_lead"))
    return max(presence.p_above(0.5), lead.p_above())


def _labels_concealed(case: Case) -> Decision:
    """Undecided: the global style is computed from clients' styles, whose labels are but a part of what it may conceal."""
    decision = no_leak_by("label_histogram", on=_STYLE, broad=True)(case)
    if decision.verdict != "refuted":
        return decision
    return decision.undecided(
        "a client's style tells its labels; whether the global style, computed from all of them, does is not measured"
    )


def _no_additional_risk(case: Case) -> Decision:
    """Refuted if the style leaks a secret whose leak from the model to the same adversary is excluded.

    Every attack on the style counts. A secret that attacks on the model are too weak for, or do not look for, is not
    compared.
    """
    decision = no_leak_by(on=_STYLE, by=WITHOUT_LEAKED_IMAGES, broad=True)(case)
    if decision.verdict != "refuted":
        return decision
    of_model: dict[tuple[str, str], list[AttackFinding]] = {}
    for row in case.attacks:
        if row.kind in _MODELS and not refused(row):
            of_model.setdefault((row.secret, row.threat.role), []).append(row)
    rows = rows_of(case, (), _STYLE, WITHOUT_LEAKED_IMAGES)
    by_style = {(row.secret, row.threat.role) for row in rows if wire_verdict(row) == "leak"}
    by_model = {key for key, findings in of_model.items() if any(wire_verdict(row) == "leak" for row in findings)}
    if added := {key for key in by_style if _excluded(of_model.get(key, []))}:
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
    decision = no_leak_by(
        *("gan", "style_inversion"), on=_STYLE, by=WITHOUT_LEAKED_IMAGES, secret=IMAGES, matters=True
    )(case)
    return replace(decision, evidence=decision.evidence + table_iv(case.facts))


CLAIM_TESTS = (
    ClaimTest(
        "H-P1",
        "abstracted to ensure that it cannot be employed to reconstruct the original dataset",
        "reconstruction from client styles, and from equally many single-image styles",
        _abstract,
    ),
    ClaimTest(
        "H-P2",
        "the global style conceals client-specific data and class-level information",
        "whether a client took part, from the global style",
        _conceals,
    ),
    ClaimTest(
        "H-P3",
        "the global style conceals client-specific data and class-level information",
        "the label histogram from the client styles that the global style is computed from",
        _labels_concealed,
    ),
    ClaimTest(
        "H-P4",
        "only one image that can be reconstructed for one client, i.e., no distinguishable images reflecting different classes",
        "several images of different classes from one client's style, each against the client's images of its class",
        needs("an attack that draws images of different classes from one style, which is not built"),
    ),
    ClaimTest(
        "messages",
        "does not allow any cross-sharing mechanism between two arbitrary clients",
        "artifacts passed on from client to client",
        _cross_sharing,
    ),
    ClaimTest(
        "H-P5",
        "does not introduce additional security risks",
        "attacks on the style, beside those on the model alone",
        _no_additional_risk,
    ),
    ClaimTest(
        "mitigates",
        "it mitigates attack threats compared to the sample-level",
        "leads of attacks on a client's style, against those on single images' styles",
        harder_for_many("gan", "style_inversion", "style_membership"),
    ),
    ClaimTest(
        "H-P6",
        "effectively preserving client privacy and sensitive information",
        "membership in the client style, which is sent once",
        no_leak_by("style_membership", on=_STYLE, broad=True),
    ),
    ClaimTest(
        "H-P7",
        "interpolation-style transfer offers stronger privacy protection than cross-local style transfer",
        "identifying the source of a stylised image, PARDON against CCST",
        needs("an attack on stylised images, which are not shared: in PARDON all have one style, in CCST one client's"),
    ),
    ClaimTest(
        "H-P8",
        "if the adversary can acquire a sample-level style vector (i.e., single style as in CCST), they can reconstruct "
        "the content of the image",
        "reconstruction from a single image's style, by a generator and by optimisation, compared with its own colour (see "
        "H-C1)",
        no_leak_beyond_colour(
            *("gan", "style_inversion"), leak="supported", on=_STYLE, by=WITHOUT_LEAKED_IMAGES, matters=True
        ),
    ),
)
