"""What an average of a client's images can tell of single ones at most: its true mean image against its domain's mean."""

import numpy as np

from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.statistics.interval import Interval, mean_interval

_MEANS = ("own_mean", "own_domain_mean")


def content_ceiling(scores: Scores) -> Interval | None:
    """By how many decibels a client's true mean image is nearer to its images than the mean of its domain's public images.

    The interval is over clients; None where reconstructions were not compared with both.
    """
    if not set(_MEANS) <= scores.headline.keys():
        return None
    own, of_domain = (np.asarray(scores.headline[name]) for name in _MEANS)
    return mean_interval(own - of_domain, np.asarray(scores.clients))


def ceiling_sentence(one: AttackScores) -> str | None:
    """Says that no mean image can lead by what matters; None where one could, or where that is not known."""
    scores = one.by_size.get(None)
    found = None if scores is None or one.secret != "content" else content_ceiling(scores)
    if scores is None or found is None or found.value is None or found.ends is None:
        return None
    relevant = one.relevant_effect(scores)
    if found.ends[1] >= relevant:
        return None
    return (
        f"the client's true mean image is {found.value:.2g} dB [{found.ends[0]:.2g}, {found.ends[1]:.2g}] nearer to its images "
        f"than its domain's mean, so that a lead of {relevant:.3g} dB cannot come from means alone"
    )
