"""Insider's reconstruction quality by the share of clients' images that leaked (CCST)."""

from dataclasses import replace
from statistics import median

import numpy as np

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.auxiliary import leaked_count
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.units import insufficient_data_reason
from fdgpriv.statistics.interval import Interval, mean_interval
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import CLIENT_CONTROLS
from fdgpriv.verdicts.trial_scores import TrialScores

SHARES = (0.01, 0.05, 0.1, 0.5, 0.9)
SIZES = {"image": 1, "client": None}


def leaked_share(evaluator: Evaluator, attack: Attack) -> dict[str, float]:
    """PSNR of the insider's `attack`, a `gan`, minus its strongest control's, by the share of clients' images that leaked.

    The insider also holds public images of the clients' domains; targets are never among the leaked images. Figures are
    ``leaked_PERCENT_OWNER`` in decibels, for the style of an ``image`` or a ``client``; ``_low`` and ``_high`` are the
    95 % interval over clients; ``leaked_PERCENT_count`` is the median number of leaked images per client. The strongest
    control is the one over which the lead is least. {} for methods other than CCST.
    """
    if evaluator.method.name() != "ccst" or not evaluator.shares_styles:
        return {}
    insider, series = threat("insider"), evaluator.series(StyleStatistics.kind)
    if insufficient_data_reason(evaluator.population, evaluator.federation.classes, series, insider) is not None:
        return {}
    figures: dict[str, float] = {}
    for share in SHARES:
        sizes = tuple(SIZES.values())
        adversaries = evaluator.adversaries(series, insider, sizes, leaked_share=share)
        scores, _ = evaluate_trials(attack, adversaries, (), generator(evaluator.seed, 8))
        figures[f"leaked_{100 * share:g}_count"] = median(
            leaked_count(share, data) for data in evaluator.population.clients.values()
        )
        for owner, size in SIZES.items():
            if size in scores:
                figures |= _lead(scores[size]).named(f"leaked_{100 * share:g}_{owner}")
    return figures


def _lead(scores: TrialScores) -> Interval:
    """The attack's mean lead over the strongest control that the insider is granted, with its interval over clients.

    Both ends are the least over all controls: a lead above 0 is one over each, and larger leads than the upper are excluded.
    """
    attack = np.asarray(scores.headline["attack"])
    clients = np.asarray(scores.clients)
    leads = [
        mean_interval(attack - scores.headline[name], clients) for name in CLIENT_CONTROLS if name in scores.headline
    ]
    strongest = min(leads, key=lambda lead: lead.value or 0.0)
    ends = [lead.ends for lead in leads if lead.ends is not None]
    lower, upper = (min(end) for end in zip(*ends, strict=True)) if len(ends) == len(leads) else (None, None)
    return replace(strongest, lower=lower, upper=upper)
