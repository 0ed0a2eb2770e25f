"""Privacy claims of the CCST paper (Chen et al., WACV 2023)."""

import re

from fdgpriv.claims.colour import no_leak_beyond_colour
from fdgpriv.claims.hypothesis import (
    Case,
    Decision,
    Hypothesis,
    interval,
    no_leak_by,
    rows_of,
    statistics_layers,
    together,
    wire_verdict,
)
from fdgpriv.statistics.interval import Interval


def _messages(case: Case) -> Decision:
    layers = statistics_layers(case)
    if not case.records:
        return Decision("undecided", "not measured: no artifacts were shared")
    relayed = sum(record.relayed and record.level == "image" for record in case.records)
    accuracies = sum(record.kind == "validation_metrics" for record in case.records)
    evidence = (
        f"BatchNorm statistics, computed from images, of {layers} layers in clients' uploads",
        f"{relayed} times a single-image style of one client was sent to another client",
        f"{accuracies} times a client's accuracy on its held-out images was sent",
    )
    if layers or relayed:
        return Decision("refuted", "statistics of private images are shared in every round", evidence)
    if accuracies:
        return Decision("refuted", "figures of private images, their accuracies, are shared besides models", evidence)
    return Decision("supported", "only parameters and pooled styles are shared", evidence)


def _harder(case: Case) -> Decision:
    """Decided by reconstruction from the overall style; where it leaks, by whether a single style leaks more."""
    found = no_leak_by("gan", level="client")(case)
    leads = [
        (row.main.lead.value or 0.0, row.positive_control.lead or 0.0)
        for row in rows_of(case, ["gan"], level="client")
        if wire_verdict(row) == "leak" and row.main and row.main.lead and row.positive_control
    ]
    if leads and all(own < single for own, single in leads):
        told = ", ".join(f"{own:.2g} against {single:.2g} dB" for own, single in leads)
        return found.undecided(
            f"the overall style leaks as well, but the attack leads by less than on single images' styles: {told}"
        )
    return found


_SMALL_SHARE = 10.0  # percent of a client's images
_MATTERS = 1.0  # dB
_STYLE_OF = {"image": "style of one image", "client": "style of one client"}


def _only_when_much_leaked(case: Case) -> Decision:
    """Decided for single-image styles by the smallest leaked share at which the insider beats every control."""
    found: dict[str, dict[float, str]] = {"image": {}, "client": {}}
    for name in case.facts:
        if match := re.fullmatch(r"leaked_([\d.]+)_(image|client)", name):
            found[match[2]][float(match[1])] = name
    if not found["image"]:
        return Decision("undecided", "not measured: needs clients' styles and public images of their domains")
    evidence = tuple(
        f"{_STYLE_OF[whose]}, dB over the strongest control by leaked share: "
        + "; ".join(f"{share:g} % ({_count(case, share)}): {interval(case.facts, at[share])}" for share in sorted(at))
        for whose, at in found.items()
        if at
    )
    beaten = [share for share, name in sorted(found["image"].items()) if case.facts.get(f"{name}_low", 0.0) > 0]
    if not beaten:
        reason = "inconclusive: the insider beats its controls at none of these shares; a larger gan:steps may decide"
        return Decision("undecided", reason, evidence)
    small = [name for share, name in found["image"].items() if share <= _SMALL_SHARE]
    p = together(Interval.read(case.facts, name).p_above() for name in small)
    if beaten[0] <= _SMALL_SHARE:
        enough = f"{beaten[0]:g} % leaked ({_count(case, beaten[0])}) is enough"
        if _images(case, beaten[0]) == 0:
            enough = f"no leaked image is needed ({beaten[0]:g} % is {_count(case, beaten[0])})"
        reason = f"{enough} for an insider to beat every control"
        return Decision("refuted", reason + ", given public images of the domains", evidence, p, leak=True)
    if any(case.facts.get(f"{name}_high", _MATTERS) >= _MATTERS for name in small):
        reason = f"inconclusive: at shares up to {_SMALL_SHARE:g} % a lead of {_MATTERS:g} dB is not excluded"
        return Decision("undecided", reason, evidence, p)
    return Decision(
        "supported", f"no share below {beaten[0]:g} % leaked enables an insider to beat every control", evidence, p
    )


def _count(case: Case, share: float) -> str:
    return f"{_images(case, share):g} images of a client"


def _images(case: Case, share: float) -> float:
    return case.facts[f"leaked_{share:g}_count"]


HYPOTHESES = (
    Hypothesis(
        "H-C1",
        "can hardly be used to reconstruct the dataset",
        "a generator's reconstruction from a single image's style, compared with noise, mean images and its own colour",
        no_leak_beyond_colour("gan"),
    ),
    Hypothesis(
        "H-C2",
        "different datasets can have the same style vector",
        "identification of the image behind a single style among candidates",
        no_leak_by("identification", image=True),
    ),
    Hypothesis(
        "H-C3",
        "we can hardly infer any content information except for overall color",
        "the class of the image behind a single style",
        no_leak_by("class_probe", image=True),
    ),
    Hypothesis(
        "H-C4",
        "cannot be utilized to reconstruct the dataset",
        "membership in the overall style, by number of images",
        no_leak_by("style_membership", level="client"),
    ),
    Hypothesis(
        "H-C5",
        "the style vector has no order: its content can be rearranged",
        "optimisation-based inversion of a single image's style",
        no_leak_by("style_inversion", image=True),
    ),
    Hypothesis(
        "H-C6",
        "not violating the original data-sharing restriction",
        "the domain behind a single style",
        no_leak_by("domain_inference", image=True, on=("style_statistics",)),
    ),
    Hypothesis(
        "H-C7",
        "do not contain spatial structural information about the image content",
        "a low-pass layout of the image from its single style",
        no_leak_by("layout_probe", image=True),
    ),
    Hypothesis(
        "H-C8",
        "even more difficult for the overall style vector",
        "the reconstruction attack on the overall style, and on single images'",
        _harder,
    ),
    Hypothesis(
        "H-C9",
        "only vulnerable when a large amount of data is leaked",
        "the insider's reconstruction by leaked share",
        _only_when_much_leaked,
    ),
    Hypothesis(
        "messages",
        "without dataset leakage",
        "artifacts shared besides styles and parameters",
        _messages,
    ),
)
