"""Audits external style statistics, without model or images, by domain inference from nearest centroids."""

import platform
from collections.abc import Mapping
from functools import partial
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from fdgpriv._version import __version__
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.external.styles import Array, ExternalStyles
from fdgpriv.results.finding import DatasetNote, Results, Timing
from fdgpriv.results.run import ArtifactRow, Privacy, Run
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.threat import Auxiliary, Capability, ThreatModel, threat
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.judge import judge
from fdgpriv.verdicts.trial_scores import Condition, TrialScores

CONTROLS = 20  # random repetitions of each control
Labels = NDArray[np.int64]
HOLDER = ThreatModel(
    "holder",
    "Whoever holds the artifacts of all clients and knows the domain of all but one.",
    Auxiliary.LABELLED_ARTIFACTS,
    frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.KNOWS_DOMAIN}),
)


def nearest_centroid(vectors: Array, groups: Labels, queries: Array | None = None) -> Labels:
    """For each client, the group (n,) whose mean over the *other* clients is nearest in Euclidean distance.

    Args:
        vectors: (n, D) artifacts.
        groups: (n,) their domains.
        queries: (n, D) artifacts to classify in place of `vectors`.
    """
    classified = vectors if queries is None else queries
    count = int(groups.max()) + 1
    distance = np.full((len(vectors), count), np.inf)
    for group in range(count):
        is_member = groups == group
        total, size = vectors[is_member].sum(0), is_member.sum() - is_member.astype(int)
        for i in np.flatnonzero(size > 0):
            center = (total - vectors[i] * is_member[i]) / size[i]
            distance[i, group] = np.linalg.norm(classified[i] - center)
    nearest: Labels = distance.argmin(1)
    return nearest


def domain_scores(styles: ExternalStyles, seed: int) -> TrialScores:
    """Accuracy of domain inference for each client, from its artifact and from each control."""
    vectors, groups = styles.vectors, styles.groups
    assert groups is not None
    rng = np.random.default_rng(seed)
    hits: dict[str, list[Array]] = {"attack": [_hit(nearest_centroid(vectors, groups), groups)]}
    hits["mean_image"] = [_hit(np.full(len(groups), np.bincount(groups).argmax()), groups)]
    spread = (vectors - vectors.mean(0)) / (len(vectors) - 1) ** 0.5
    for _ in range(CONTROLS):
        hits.setdefault("noise", []).append(_hit(rng.permutation(groups), groups))
        random_styles = vectors.mean(0) + rng.standard_normal((len(vectors), len(vectors))) @ spread
        hits.setdefault("random_style", []).append(_hit(nearest_centroid(vectors, groups, random_styles), groups))
        other = np.array([rng.choice(np.flatnonzero(groups != group)) for group in groups])
        hits.setdefault("other_domain", []).append(_hit(nearest_centroid(vectors, groups, vectors[other]), groups))
    names = [f"client-{i:03d}" for i in range(len(groups))]
    return TrialScores(names, names, {name: np.mean(repeats, axis=0).tolist() for name, repeats in hits.items()})


def _hit(predictions: Labels, groups: Labels) -> Array:
    """1.0 for each client (n,) whose domain was predicted, else 0.0."""
    hits: Array = (predictions == groups).astype(np.float64)
    return hits


def audit(styles: ExternalStyles, seed: int, command: str) -> Results:
    """The results of all attacks on these artifacts, with the reasons why others are not applicable."""
    start = perf_counter()
    scores = _scores(styles, seed)
    verdicts = judge(scores, seed)
    clients, channels = styles.mean.shape
    row = ArtifactRow.model_validate(
        {
            "kind": StyleStatistics.kind,
            "level": "client",
            "verb": "given",
            "from": "client",
            "to": "holder",
            "per_client_per_round_bytes": 8 * channels,
            "shape": f"mean [{channels}], std [{channels}]",
            "dtype": "float32",
            "times": clients,
            "visible_to": ("holder",),
        }
    )
    run = Run(
        method="elsewhere",
        dataset=styles.name,
        target=None,
        seed=seed,
        defense="none",
        utility=None,
        artifacts=(row,),
        questions=verdicts.questions.of_cell("elsewhere", list(scores)),
        attacks=tuple(verdicts.findings.values()),
        privacy=Privacy(
            epsilon_proved=None, delta=None, statement="Nothing is known of a defense.", verdict="no_guarantee"
        ),
        not_measured=(
            "Accuracy: no model was given.",
            "Whether the domains that were named are the true ones: they are the user's.",
        ),
    )
    return Results(
        fdgpriv=__version__,
        command=command,
        config={"artifact": styles.name, "clients": clients, "channels": channels, "seeds": [seed]},
        environment={"python": platform.python_version(), "torch": torch.__version__, "system": platform.system()},
        timing=Timing(total_s=perf_counter() - start, train_s=None, attack_s=None, peak_rss_mb=None),
        dataset=DatasetNote(
            name=styles.name,
            about=f"{clients} clients' style statistics of {channels} channels, made elsewhere.",
            limits="Neither the images nor the encoder are known: attacks that need them were not played.",
            sha256=styles.sha256,
        ),
        interrupted=False,
        runs=(run,),
    )


def _attack_on_styles(part: type[Attack]) -> Attack | None:
    """An attack with its defaults; None if it does not read styles. Raises what an invalid class raises."""
    attack = part()
    if StyleStatistics.kind not in attack.kinds():
        return None
    attack_scores(attack, HOLDER, StyleStatistics.kind, not_applicable="not run yet")
    return attack


def _scores(styles: ExternalStyles, seed: int) -> Mapping[str, AttackScores]:
    """By key, the scores of each attack that reads styles, or why it is not applicable."""
    scores = {}
    for name, part in Attack.importable().items():
        attack = attempt(partial(_attack_on_styles, part))
        if attack is None or isinstance(attack, Failed):
            continue
        asks_domain = attack.task.secret == DomainLabel.secret
        if asks_domain and styles.groups is not None and len(set(styles.groups.tolist())) > 1:
            chance = float(np.bincount(styles.groups).max() / len(styles.groups))
            conditions = {Condition(): domain_scores(styles, seed)}
            scores[f"elsewhere/{name}"] = attack_scores(
                attack, HOLDER, StyleStatistics.kind, shared=True, conditions=conditions, chance=chance
            )
            continue
        if not asks_domain:
            reason = "want the encoder and images: only the artifacts were given"
        elif styles.groups is None:
            reason = "want the clients' domains: give --groups"
        else:
            reason = "want clients of at least two domains, got one"
        for task in attack.tasks:
            key = f"elsewhere/{name}" if task is attack.task else f"elsewhere/{name}, {task.name()}"
            scores[key] = attack_scores(
                attack, threat("server"), StyleStatistics.kind, task, shared=True, not_applicable=reason
            )
    return scores
