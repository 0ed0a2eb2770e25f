"""What an average of a client's images can tell of single ones at most: its true mean image against its domain's mean."""

import numpy as np

from fdgpriv.statistics.interval import Interval, mean_interval
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores


def content_ceiling(scores: TrialScores) -> Interval | None:
    """By how many decibels a client's true mean image is nearer to its images than the mean of its domain's public images.

    The interval is over clients; None where reconstructions were not compared with both.
    """
    if not {"own_mean", "own_domain_mean"} <= scores.headline.keys():
        return None
    gains = np.asarray(scores.headline["own_mean"]) - np.asarray(scores.headline["own_domain_mean"])
    return mean_interval(gains, np.asarray(scores.clients))


def ceiling_sentence(attack: AttackScores) -> str | None:
    """Says that no mean image can lead by what matters; None where one could, or where that is not known."""
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
