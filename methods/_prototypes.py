"""Class prototypes of clients, their clusters at the server, and the losses towards these (FPL).

Reference: Huang et al., "Rethinking federated learning with domain shift: a prototype view", CVPR 2023.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.prototypes import ClassPrototypes, ClusterPrototypes
from fdgpriv.utils.finch import finch


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(K, D): the mean of the features (N, D) of each class; zeros for a class without any."""
    sums = torch.zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / labels.bincount(minlength=classes).clamp_min(1)[:, None]


def clustered(shared: Sequence[ClassPrototypes], round: int) -> ClusterPrototypes:
    """The means of FINCH's coarsest clusters (cosine distance) of the clients' prototypes of each class.

    A class that one client has alone keeps that client's prototype.

    Args:
        shared: At least one client's.
        round: Of the artifact.
    """
    rows = torch.stack([prototypes.features for prototypes in shared])
    present = torch.stack([prototypes.present for prototypes in shared])
    features, labels = list[Tensor](), list[int]()
    for label in present.any(0).nonzero().flatten().tolist():
        of_class = rows[present[:, label], label]
        partition = finch(of_class)[-1]
        features += [of_class[partition == cluster].mean(0) for cluster in range(int(partition.max()) + 1)]
        labels += [label] * (len(features) - len(labels))
    return ClusterPrototypes(
        client=SERVER,
        round=round,
        features=torch.stack(features) if features else rows.new_zeros(0, rows.shape[2]),
        labels=torch.tensor(labels, dtype=torch.int64),
    )


def prototype_loss(features: Tensor, labels: Tensor, prototypes: ClusterPrototypes, temperature: float) -> Tensor:
    """Contrast with the cluster prototypes, and squared distance from the mean prototype of the class.

    The first is -log of the share that the prototypes of the image's class have in the sum over all prototypes of
    exp(cosine / temperature); the second is the mean over the D features. Images of a class without prototypes add 0.

    Args:
        features: (B, D) of a mini-batch.
        labels: (B,).
        prototypes: Of the round before.
        temperature: Of the contrast.

    Returns: the sum of both, averaged over all B images as in the released code, ().
    """
    centers, classes = prototypes.features.to(features), prototypes.labels.to(labels)
    is_known = torch.isin(labels, classes)
    if not bool(is_known.any()):
        return features.new_zeros(())
    count, features, labels = len(labels), features[is_known], labels[is_known]
    cosines = nn.functional.normalize(features, dim=1) @ nn.functional.normalize(centers, dim=1).T / temperature
    positive = labels[:, None] == classes
    contrast = cosines.logsumexp(1) - cosines.masked_fill(~positive, -torch.inf).logsumexp(1)
    means = positive.to(features) @ centers / positive.sum(1, keepdim=True)
    return (contrast + (features - means).square().mean(1)).sum() / count
