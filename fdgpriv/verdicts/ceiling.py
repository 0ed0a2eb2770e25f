"""Upper bound on what averages reveal about single images: a client's true mean image against its domain's mean."""

import numpy as np

from fdgpriv.statistics.interval import Interval, mean_interval
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores


def content_ceiling(scores: TrialScores) -> Interval | None:
    """By how many decibels of PSNR a client's true mean image is nearer to its images than its domain's public mean image.

    The interval is over clients; None if either was not evaluated.
    """
    if not {"own_mean", "own_domain_mean"} <= scores.headline.keys():
        return None
    gains = np.asarray(scores.headline["own_mean"]) - np.asarray(scores.headline["own_domain_mean"])
    return mean_interval(gains, np.asarray(scores.clients))


def ceiling_sentence(attack: AttackScores) -> str | None:
    """A sentence if no mean image can reach a relevant lead; None if one could, or if unknown."""
    scores = attack.by_size.get(None)
    ceiling = None if scores is None or attack.secret != "content" else content_ceiling(scores)
    if scores is None or ceiling is None or ceiling.value is None or ceiling.ends is None:
        return None
    relevant = attack.relevant_effect(scores)
    if ceiling.ends[1] >= relevant:
        return None
    return (
        f"the client's true mean image is {ceiling.value:.2g} dB [{ceiling.ends[0]:.2g}, {ceiling.ends[1]:.2g}] nearer to its "
        f"images than its domain's mean, so that a lead of {relevant:.3g} dB cannot come from means alone"
    )
