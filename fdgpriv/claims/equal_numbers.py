"""Compares images generated from client styles and from single-image styles, in equal numbers (PARDON, Table IV).

The paper compares the two by FID and IS with unequal numbers of images, on which both metrics depend, and without images
generated from a random style as control.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.claims.claim_test import interval
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.trial import Trial
from fdgpriv.evaluation.units import insufficient_data_reason
from fdgpriv.metrics.networks import MetricNetworks
from fdgpriv.metrics.pixels import EXACT_DB, psnr_per_image
from fdgpriv.metrics.realism import inception_score, kid, small_fid
from fdgpriv.simulation.relays import opposite_clients
from fdgpriv.statistics.interval import Interval, mean_interval
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

ROLES = ("third_party", "client")  # the paper's attacks (i) and (ii)
METRICS = ("fid", "kid", "log_is", "is_over_k")  # of sets
MIN_CLIENTS = 3


def equal_numbers(evaluator: Evaluator, attack: Attack) -> dict[str, float]:
    """PSNR, FID, KID, log IS and IS/K of one generated image per client, by adversary and by the style used.

    For one image of each client, `attack`, a `gan`, generates from that image's style (``sample``), from its client's
    (``client``) and from a random style of the public distribution (``random``); ``mean`` is the mean public image,
    ``real`` the images themselves. The adversary ``client`` holds images of its own domain; that it obtains another
    client's style is the paper's assumption, as none is sent one.

    Figures are ``ROLE_SOURCE_METRIC``: psnr in decibels against the image, fid and kid against as many other images of the
    same clients, in the features of `Evaluator.networks_comparing`; ``ROLE_n`` is the number of clients. ``ROLE_lead`` is
    the PSNR from the sample's style minus that from the client's. All but fid have their 95 % interval as ``_low`` and
    ``_high``. {} if no interpolation style was shared.
    """
    if not evaluator.transcript.was_transferred(InterpolationStyle.kind) or not evaluator.shares_styles:
        return {}
    figures: dict[str, float] = {}
    for role in ROLES:
        generated = _generated(evaluator, attack, role)
        if generated is not None:
            networks = evaluator.networks_comparing(evaluator.series(StyleStatistics.kind))
            figures |= {f"{role}_{name}": figure for name, figure in _figures(*generated, networks).items()}
    return figures


def _generated(evaluator: Evaluator, attack: Attack, role: str) -> tuple[dict[str, Tensor], Tensor] | None:
    """Images (N, 3, H, W) of N clients by the style used, and other images of theirs as reference set; None if too few."""
    series = evaluator.series(StyleStatistics.kind)
    names = series.clients
    series = replace(series, receiver=opposite_clients(names))
    if insufficient_data_reason(evaluator.population, evaluator.federation.classes, series, threat(role)) is not None:
        return None
    images_by_style: dict[str, list[Tensor]] = {
        name: [] for name in ("sample", "client", "random", "mean", "real", "other")
    }
    for adversary_trials in evaluator.adversaries(series, threat(role), (1, None), attack.task):
        by_client: dict[str, list[Trial]] = {}
        for trial in adversary_trials.trials:
            if trial.client in names:  # not shadow clients
                by_client.setdefault(trial.client, []).append(trial)
        eligible = [items for items in by_client.values() if len(_singles(items)) > 1 and items[-1].size is None]
        selected = [(*_singles(items)[:2], items[-1]) for items in eligible]
        observations = [
            trial.by_role[name][0].observation
            for single, _, client in selected
            for trial, name in ((single, "attack"), (client, "attack"), (client, "random_style"))
        ]
        if not selected:
            continue
        adversary = adversary_trials.adversary
        predictions = list(attack.infer(adversary, observations, generator(evaluator.seed, 8)))
        for k, name in enumerate(("sample", "client", "random")):
            images_by_style[name] += predictions[k::3]
        images_by_style["mean"] += [adversary.public_images[0].mean(0)] * len(selected)
        images_by_style["real"] += [single.truth.images[0] for single, _, _ in selected]
        images_by_style["other"] += [other.truth.images[0] for _, other, _ in selected]
    if len(images_by_style["real"]) < MIN_CLIENTS:
        return None
    sets = {name: torch.stack(images) for name, images in images_by_style.items()}
    return sets, sets.pop("other")


def _singles(items: Sequence[Trial]) -> list[Trial]:
    """Trials with single images."""
    return [item for item in items if item.size == 1]


def _figures(images_by_style: Mapping[str, Tensor], other: Tensor, networks: MetricNetworks) -> dict[str, float]:
    figures, reference = {"n": float(len(other))}, networks.fitted(other)
    extractor = networks.extractor
    paired: dict[str, list[float]] = {}
    for name, images in images_by_style.items():
        generated = networks.fitted(images)
        scores = {
            "fid": small_fid(generated, reference, extractor),
            "kid": kid(generated, reference, extractor, generator(0)),
        }
        scores |= inception_score(generated, extractor)
        for key in METRICS:
            low, high = scores[key].measured.ci95 or (None, None)
            figures |= Interval(scores[key].value, low, high, len(images)).named(f"{name}_{key}")
        if name != "real":
            paired[name] = psnr_per_image(images, images_by_style["real"]).clamp_max(EXACT_DB).tolist()
            figures |= mean_interval(paired[name]).named(f"{name}_psnr")
    lead = [sample - client for sample, client in zip(paired["sample"], paired["client"], strict=True)]
    return figures | mean_interval(lead).named("lead")


def table_iv(facts: Mapping[str, float]) -> tuple[str, ...]:
    """PARDON's Table IV at equal numbers, with additional controls."""
    lines = []
    for role in ("third_party", "client"):
        if f"{role}_n" not in facts:
            continue
        adversary, n = role.replace("_", " "), f"{facts[f'{role}_n']:.0f}"
        for source, description in _GENERATED.items():
            keys = {f"{role}_{source}_{key}": name for key, name in _METRIC_NAMES.items()}
            metrics = ", ".join(f"{name} {interval(facts, key)}" for key, name in keys.items() if key in facts)
            lines.append(f"{n} {description.format(adversary)}: {metrics}")
        lines.append(f"{adversary}: lead of a sample's style over its client's {interval(facts, f'{role}_lead')} dB")
    return tuple(lines)


_GENERATED = {
    "sample": "images generated by the {} from samples' styles",
    "client": "generated by the {} from clients' styles",
    "random": "generated by the {} from random styles",
    "mean": "copies of the public mean image of the {}",
    "real": "real images",
}
_METRIC_NAMES = {"fid": "FID", "kid": "KID", "log_is": "log IS", "is_over_k": "IS/K", "psnr": "PSNR"}
