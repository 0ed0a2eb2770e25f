"""How a client's class prototypes differ from those of the clients most like it, in one round.

A prototype is a mean over a client's images of a class. So its distance from the other clients' mean shrinks with the number
of these images, and its direction is theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.simulation.prototypes import PrototypeSimulator
from fdgpriv.view import SeenRound

from ._membership import received_model_of

LEAST_PEERS = 3  # without which their mean says little
_SHRINKAGE = 0.1  # of the covariance towards its mean variance
_TINY = 1e-12
_LARGEST = 1e6  # magnitude of a feature that is read


@dataclass(frozen=True, eq=False)
class Deviations:
    """Prototypes of the observed client and of its peers, less the mean of the other peers', whitened by the peers' spread.

    Attributes:
        center: (K, D) the peers' mean; not whitened.
        rows: (1 + M, K, D) the observed client first; zeros where a class is not there, or fewer than two peers have it.
        known: (1 + M, K) where rows are known.
        root: (D, D) whitens features by multiplication from the right.
    """

    center: Tensor
    rows: Tensor
    known: Tensor
    root: Tensor

    @classmethod
    def of(cls, seen: SeenRound, peers: Sequence[str]) -> Self | None:
        """In this round; None where fewer than `LEAST_PEERS` of the peers took part."""
        others = [seen.others[name] for name in peers if name in seen.others]
        if len(others) < LEAST_PEERS:
            return None
        features = torch.stack([features_of(artifact) for artifact in (seen.artifact, *others)])
        present = features.any(2)
        sums, counts = features[1:].sum(0), present[1:].sum(0)
        center = sums / counts.clamp_min(1)[:, None]
        without = (sums - features[1:]) / (counts - present[1:].int()).clamp_min(1)[:, :, None]
        known = present & torch.cat([counts[None] > 1, (counts - present[1:].int()) > 0])
        rows = (features - torch.cat([center[None], without])) * known[:, :, None]
        pooled = rows[1:][known[1:]]
        covariance = pooled.T @ pooled / max(1, len(pooled))
        ridge = _SHRINKAGE * covariance.diagonal().mean() + _TINY
        values, vectors = torch.linalg.eigh((covariance + ridge * torch.eye(len(covariance))).double())
        root = (vectors / values.clamp_min(_TINY).sqrt()).float()
        return cls(center, rows @ root, known, root)


def features_of(artifact: Artifact) -> Tensor:
    """(K, D): the prototypes, zeros for absent classes; finite, as those of a simulated training that diverges are not."""
    assert isinstance(artifact, ClassPrototypes)
    return artifact.features.nan_to_num(0.0, _LARGEST, -_LARGEST).clamp(-_LARGEST, _LARGEST)


def peers_of(seen: SeenRound, domains: int) -> list[str]:
    """Pseudonyms of the other clients with the nearest prototypes: as many as share a domain if all have equally many."""
    observed = features_of(seen.artifact)
    distance = {}
    for name, artifact in seen.others.items():
        other = features_of(artifact)
        common = observed.any(1) & other.any(1)
        distance[name] = float((other - observed)[common].square().sum(1).mean()) if bool(common.any()) else torch.inf
    count = max(LEAST_PEERS, round(len(distance) / domains))
    return sorted(distance, key=distance.__getitem__)[:count]


def candidate_features(adversary: Adversary, seen: SeenRound) -> Tensor:
    """(P, D): features of all candidates under the model that the observed client received in this round."""
    features: Tensor = adversary.cache.get(
        (candidate_features, seen.number, id(seen.received_model)),
        lambda: _simulator(seen).features(adversary.candidates, received_model_of(seen)),
    )
    return features


def public_images(adversary: Adversary, domain: str | None) -> tuple[Tensor, Tensor]:
    """The adversary's images (N, 3, H, W) of the domain, or of all domains where it has none of it, and labels (N,)."""
    domains = [auxiliary for auxiliary in adversary.domains if auxiliary.name == domain] or adversary.domains
    images, labels = (torch.cat(parts) for parts in zip(*((d.images, d.labels) for d in domains), strict=True))
    return images, labels


def public_features(adversary: Adversary, seen: SeenRound, domain: str | None) -> tuple[Tensor, Tensor]:
    """Features (N, D) of `public_images` under the model that the observed client received, and their labels (N,)."""

    def computed() -> tuple[Tensor, Tensor]:
        images, labels = public_images(adversary, domain)
        return _simulator(seen).features(images, received_model_of(seen)), labels

    key = (public_features, seen.number, id(seen.received_model), domain)
    public: tuple[Tensor, Tensor] = adversary.cache.get(key, computed)
    return public


def class_means(adversary: Adversary, seen: SeenRound, domain: str | None) -> Tensor:
    """(K, D): mean features of public images by class; of all for a class without any."""
    features, labels = public_features(adversary, seen, domain)
    means = features.mean(0).repeat(adversary.classes, 1)
    for label in labels.unique().tolist():
        means[label] = features[labels == label].mean(0)
    return means


def _simulator(seen: SeenRound) -> PrototypeSimulator:
    assert isinstance(seen.simulator, PrototypeSimulator)
    return seen.simulator
