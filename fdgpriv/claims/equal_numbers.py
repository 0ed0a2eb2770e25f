"""What is drawn from clients' styles beside what is drawn from single images' styles, of equally many (PARDON, Table IV).

The paper compares the two by FID and IS, which rise and fall with the number of images, of unequal numbers, and without
what is drawn from no client's style.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.trial import Trial
from fdgpriv.metrics.pixels import EXACT_DB, psnr_per_image
from fdgpriv.metrics.realism import inception_score, kid, resized, small_fid
from fdgpriv.models.extractor import Extractor, digits_extractor
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.targets.recorded_styles import each_halfway
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

ROLES = ("third_party", "client")  # the paper's attacks (i) and (ii)
METRICS = ("fid", "kid", "log_is", "is_over_k")  # of sets
FEWEST = 3  # clients


def equal_numbers(evaluator: Evaluator) -> dict[str, float]:
    """PSNR, FID, KID, log IS and IS/K of one image for each client, by what it is drawn from and who draws.

    One image of each client is asked about. The `gan` attack draws from that image's own style (``sample``), from its
    client's (``client``) and from a random style of the public distribution (``random``); ``mean`` is the mean public
    image, ``real`` the images themselves. The client that draws holds images of its own domain; that it got hold of
    another's style is the paper's assumption, as none is sent one.

    Figures are ``ROLE_WHAT_METRIC``: psnr in decibels against the image, fid and kid against as many other images of the
    same clients, in the features of the digits extractor; ``ROLE_n`` clients. ``ROLE_lead`` is how much PSNR the sample's
    style has over the client's, ``ROLE_lead_low`` and ``_high`` the ends of its 95 % interval over clients. {} where no
    interpolation style crossed: the comparison is PARDON's.
    """
    if not evaluator.transcript.crossed(InterpolationStyle.kind) or not evaluator.shares_styles:
        return {}
    found: dict[str, float] = {}
    for role in ROLES:
        drawn = _drawn(evaluator, role)
        if drawn is not None:
            found |= {f"{role}_{name}": figure for name, figure in _figures(*drawn, digits_extractor()).items()}
    return found


def _drawn(evaluator: Evaluator, role: str) -> tuple[dict[str, Tensor], Tensor] | None:
    """By what they are drawn from, images (N, 3, H, W) of N clients; and others of theirs to compare sets with."""
    attack, target = Attack.named("gan")(), evaluator.target(StyleStatistics.kind)
    names = target.clients
    target = replace(target, receiver=each_halfway(names))
    if evaluator.too_little(target, threat(role)) is not None:
        return None
    drawn: dict[str, list[Tensor]] = {name: [] for name in ("sample", "client", "random", "mean", "real", "other")}
    for adversary_trials in evaluator.adversaries(target, threat(role), (1, None), attack.task):
        by_client: dict[str, list[Trial]] = {}
        for trial in adversary_trials.trials:
            if trial.client in names:  # no shadows
                by_client.setdefault(trial.client, []).append(trial)
        able = [items for items in by_client.values() if len(_singles(items)) > 1 and items[-1].size is None]
        asked = [(*_singles(items)[:2], items[-1]) for items in able]
        observations = [
            item.asked[name][0].observation
            for one, _, whole in asked
            for item, name in ((one, "attack"), (whole, "attack"), (whole, "random_style"))
        ]
        if not asked:
            continue
        adversary = adversary_trials.adversary
        predictions = list(attack.infer(adversary, observations, generator(evaluator.seed, 8)))
        for k, name in enumerate(("sample", "client", "random")):
            drawn[name] += predictions[k::3]
        drawn["mean"] += [adversary.public_images[0].mean(0)] * len(asked)
        drawn["real"] += [one.truth.images[0] for one, _, _ in asked]
        drawn["other"] += [other.truth.images[0] for _, other, _ in asked]
    if len(drawn["real"]) < FEWEST:
        return None
    sets = {name: torch.stack(images) for name, images in drawn.items()}
    return sets, sets.pop("other")


def _singles(items: Sequence[Trial]) -> list[Trial]:
    """Those of single images."""
    return [item for item in items if item.size == 1]


def _figures(drawn: Mapping[str, Tensor], other: Tensor, extractor: Extractor) -> dict[str, float]:
    found, theirs = {"n": float(len(other))}, resized(other)
    paired: dict[str, list[float]] = {}
    for name, images in drawn.items():
        ours = resized(images)
        scores = {"fid": small_fid(ours, theirs, extractor), "kid": kid(ours, theirs, extractor, generator(0))}
        scores |= inception_score(ours, extractor)
        found |= {f"{name}_{key}": value for key in METRICS if (value := scores[key].value) is not None}
        if name != "real":
            paired[name] = psnr_per_image(images, drawn["real"]).clamp_max(EXACT_DB).tolist()
            found[f"{name}_psnr"] = fmean(paired[name])
    lead = [sample - client for sample, client in zip(paired["sample"], paired["client"], strict=True)]
    return found | mean_interval(lead).named("lead")
