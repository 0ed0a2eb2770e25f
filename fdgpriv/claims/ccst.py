"""Privacy claims of the CCST paper (Chen et al., WACV 2023).

The paper grants that who holds leaked images of a client reconstructs more (App. A, intra-client): the insider decides H-C9
only, and the other claims are about adversaries without leaked images.
"""

import re
from dataclasses import replace

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.claims.by_attack import WITHOUT_LEAKED_IMAGES, measured_by, no_leak_by, simes_p
from fdgpriv.claims.claim_test import Case, ClaimTest, Decision, interval
from fdgpriv.claims.colour import class_beyond_colour, no_leak_beyond_colour
from fdgpriv.claims.findings import IMAGES, finding_text, rows_of
from fdgpriv.claims.harder import harder_for_many
from fdgpriv.claims.wire import no_data_crosses, numbers, uploads
from fdgpriv.statistics.interval import Interval

_STYLES = (StyleStatistics.kind,)
_RECONSTRUCTED = no_leak_beyond_colour("gan", "style_inversion", on=_STYLES, by=WITHOUT_LEAKED_IMAGES, matters=True)


def _not_unique(case: Case) -> Decision:
    """Decided by counting: a continuous map to fewer numbers is not injective, by the invariance of domain.

    The images of a client have more numbers than its style has. That different data *can* have the same style does not say
    how often: that is what identification measures, as evidence.
    """
    image = case.facts.get("image_numbers")
    styles = uploads(case, *_STYLES)
    if not styles or image is None:
        return Decision("undecided", "not measured: needs styles that clients share and the size of their images")
    widest = max(styles, key=lambda record: numbers(record) / record.samples)
    data, style = widest.samples * image, numbers(widest)
    named = rows_of(case, ["identification"], _STYLES, WITHOUT_LEAKED_IMAGES)
    evidence = (
        f"a style of {style:,} numbers is computed from {widest.samples} images of {image:,.0f} numbers each",
        *(f"which image is behind a single style, nevertheless: {finding_text(row, image=True)}" for row in named),
    )
    if style >= data:
        return Decision("undecided", "inconclusive: the style has as many numbers as the images behind it", evidence)
    reason = "more numbers go into a style than it has, so that it has many sources; no protection where few are likely"
    return Decision("supported", reason, evidence)


_SMALL_SHARE = 10.0  # percent of a client's images
_MATTERS = 1.0  # dB
_STYLE_OF = {"image": "style of one image", "client": "style of one client"}


def _only_when_much_leaked(case: Case) -> Decision:
    """Decided for single-image styles by the smallest leaked share at which an adversary reconstructs.

    That is none where an adversary without leaked images does (H-C1), else the least at which the insider beats every control.
    Supported only if H-C1 is, as the insider is measured with a generator alone.
    """
    if (without := _RECONSTRUCTED(case)).verdict == "refuted":
        return replace(without, reason="no leaked image is needed: an adversary without any reconstructs (H-C1)")
    leads: dict[str, dict[float, str]] = {"image": {}, "client": {}}
    for name in case.facts:
        if match := re.fullmatch(r"leaked_([\d.]+)_(image|client)", name):
            leads[match[2]][float(match[1])] = name
    if not leads["image"]:
        return Decision("undecided", "not measured: needs clients' styles and public images of their domains")
    evidence = tuple(
        f"{_STYLE_OF[owner]}, dB over the strongest control by leaked share: "
        + "; ".join(
            f"{share:g} % ({_count(case, share)}): {interval(case.facts, by_share[share])}"
            for share in sorted(by_share)
        )
        for owner, by_share in leads.items()
        if by_share
    )
    beaten = [
        share
        for share, name in sorted(leads["image"].items())
        if case.facts.get(f"{name}_low", 0.0) > 0 and case.facts[name] >= _MATTERS
    ]
    if not beaten:
        reason = (
            f"inconclusive: the insider leads by {_MATTERS:g} dB at none of these shares; a larger gan:steps may decide"
        )
        return Decision("undecided", reason, evidence)
    small = [name for share, name in leads["image"].items() if share <= _SMALL_SHARE]
    p = simes_p(Interval.read(case.facts, name).p_above() for name in small)
    if beaten[0] <= _SMALL_SHARE:
        enough = f"{beaten[0]:g} % leaked ({_count(case, beaten[0])}) is enough"
        if _images(case, beaten[0]) == 0:
            enough = f"no leaked image is needed ({beaten[0]:g} % is {_count(case, beaten[0])})"
        reason = f"{enough} for an insider to beat every control"
        return Decision("refuted", reason + ", given public images of the domains", evidence, p, leak=True)
    if any(case.facts.get(f"{name}_high", _MATTERS) >= _MATTERS for name in small):
        reason = f"inconclusive: at shares up to {_SMALL_SHARE:g} % a lead of {_MATTERS:g} dB is not excluded"
        return Decision("undecided", reason, evidence, p)
    reason = f"no share below {beaten[0]:g} % leaked enables an insider to beat every control"
    if without.verdict != "supported":
        reason = f"inconclusive: {reason}, but H-C1, without leaked images, is undecided ({without.reason})"
        return Decision("undecided", reason, evidence, p)
    return Decision("supported", reason, evidence, p)


def _count(case: Case, share: float) -> str:
    return f"{_images(case, share):g} images of a client"


def _images(case: Case, share: float) -> float:
    return case.facts[f"leaked_{share:g}_count"]


CLAIM_TESTS = (
    ClaimTest(
        "H-C1",
        "can hardly be used to reconstruct the dataset",
        "reconstruction from a single image's style, by a generator and by optimisation, compared with noise, mean images and "
        "its own colour",
        _RECONSTRUCTED,
    ),
    ClaimTest(
        "H-C2",
        "different datasets can have the same style vector",
        "numbers that go into a style, against the numbers that it has; beside it, identification of the image behind a style",
        _not_unique,
    ),
    ClaimTest(
        "H-C3",
        "we can hardly infer any content information except for overall color",
        "the class of the image behind a single style, compared with the class by its mean colour alone",
        class_beyond_colour,
    ),
    ClaimTest(
        "H-C4",
        "without dataset leakage",
        "membership in the overall style, by number of images",
        no_leak_by("style_membership", on=_STYLES, by=WITHOUT_LEAKED_IMAGES, level="client", broad=True),
    ),
    ClaimTest(
        "H-C5",
        "it is hard to rearrange those pixels into proper order",
        "optimisation-based inversion of a single image's style, and a generator's reconstruction from it, compared with its "
        "own colour, which has no order",
        _RECONSTRUCTED,
    ),
    ClaimTest(
        "H-C6",
        "which introduces styles of other domains into this client",
        "the domain behind a single style",
        measured_by("domain_inference", image=True, on=_STYLES),
        "design",
    ),
    ClaimTest(
        "H-C7",
        "do not contain spatial structural information about the image content",
        "a low-pass layout of the image from its single style, without brightness and contrast",
        no_leak_by("layout_probe", image=True, on=_STYLES, broad=True),
    ),
    ClaimTest(
        "H-C8",
        "even more difficult for the overall style vector",
        "the lead of reconstruction attacks on the overall style, against that on single images' styles",
        harder_for_many("gan", "style_inversion", secret=IMAGES),
    ),
    ClaimTest(
        "H-C9",
        "only vulnerable when a large amount of data is leaked",
        "the insider's reconstruction by leaked share, and that of adversaries without leaked images (see H-C1)",
        _only_when_much_leaked,
    ),
    ClaimTest(
        "4.4 client",
        "neither can a malicious source client recover other clients' images only from style vectors",
        "reconstruction from single images' styles by a client with its own images",
        no_leak_beyond_colour("gan", "style_inversion", on=_STYLES, by=("client",), matters=True),
    ),
    ClaimTest(
        "4.4 outsider",
        "nor an outside attacker can reconstruct source images using a pre-trained generator",
        "a generator's reconstruction from single images' styles by a third party with public images of another domain",
        no_leak_beyond_colour("gan", on=_STYLES, by=("third_party",), matters=True),
    ),
    ClaimTest(
        "messages",
        "not violating the original data-sharing restriction",
        "whether anything that clients send is an image, or as much as one",
        no_data_crosses,
    ),
)
