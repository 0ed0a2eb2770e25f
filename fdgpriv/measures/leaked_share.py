"""How much an insider's reconstruction owes to the share of clients' images that leaked (CCST; METHODS 5e, H-C9)."""

from statistics import fmean, median

import numpy as np

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.exam.paper import BOUNDS
from fdgpriv.exam.proctor import Proctor, leaks
from fdgpriv.federation import generator
from fdgpriv.roles import Attack
from fdgpriv.threat import threat
from fdgpriv.verdict import mean_interval

SHARES = (0.01, 0.05, 0.1, 0.5, 0.9)
SIZES = {"image": 1, "client": None}


def leaked_share(proctor: Proctor) -> dict[str, float]:
    """PSNR of the insider's `gan` over that of its strongest control, by the share of each client's images that leaked.

    Besides those images the insider holds public ones of their domains, whatever leaked; targets never leaked. Figures
    are ``leaked_PERCENT_WHOSE`` in decibels, WHOSE style being an ``image``'s or a ``client``'s; the ends of the 95 %
    interval over clients are ``_low`` and ``_high``; ``leaked_PERCENT_count`` is how many images of a client that is,
    of the client in the middle. The strongest control is the one with the highest mean among those that never saw the
    artifact. {} of methods other than CCST, whose claim this is about.
    """
    if proctor.method.name() != "ccst" or not proctor.shares_styles:
        return {}
    attack, insider, subject = Attack.named("gan")(), threat("insider"), proctor.subject(StyleStatistics.kind)
    if proctor.too_little(subject, insider) is not None:
        return {}
    found: dict[str, float] = {}
    for share in SHARES:
        sizes = tuple(SIZES.values())
        sittings = proctor.sittings(subject, insider, sizes, reconstruction=False, leaked_share=share)
        marks, _ = examine(attack, sittings, (), generator(proctor.seed, 8))
        found[f"leaked_{100 * share:g}_count"] = median(
            leaks(share, data) for data in proctor.population.clients.values()
        )
        for whose, size in SIZES.items():
            if size in marks:
                lead, clients = _lead(marks[size])
                found |= mean_interval(lead, clients).named(f"leaked_{100 * share:g}_{whose}")
    return found


def _lead(marks: Marks) -> tuple[list[float], np.ndarray]:
    """By target, the attack's score less that of the strongest control; and whose each target is, by number."""
    scores = {name: values for name, values in marks.headline.items() if name not in BOUNDS}
    own = scores.pop("attack")
    strongest = max(scores.values(), key=fmean)
    _, clients = np.unique(marks.clients, return_inverse=True)
    return [a - b for a, b in zip(own, strongest, strict=True)], clients
