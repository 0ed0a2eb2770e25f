"""Discriminant analysis with a shrunk pooled covariance (Ledoit and Wolf, 2004), also where dimensions outnumber inputs.

It has a closed form, so that thousands of inputs cost seconds.
"""

import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

LEAST = -50.0  # log-probability of a label without inputs
_WIDE = 4  # ratio of dimensions to inputs above which the dual solution is used


def discriminant(inputs: Tensor, labels: Tensor, vectors: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of the labels of vectors, -50 for labels without inputs.

    Args:
        inputs: (P, D) standardised, to learn from.
        labels: (P,) of these.
        vectors: (M, D) in the same units.
        classes: Number of labels.
    """
    counts = labels.bincount(minlength=classes)
    if int(counts.count_nonzero()) in (1, int(counts.sum())):  # one label only, or one input of each label
        return (counts / counts.sum()).log().clamp_min(LEAST).expand(len(vectors), -1)
    if inputs.shape[1] > _WIDE * len(inputs):
        return _wide(inputs.double(), labels, vectors.double(), classes)
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    model.fit(inputs.double().numpy(), labels.numpy())
    logs = torch.from_numpy(model.decision_function(vectors.double().numpy())).float()
    if logs.ndim == 1:  # two labels: one score, for the second
        logs = torch.stack([-logs, logs], dim=1)
    found = torch.full((len(vectors), classes), LEAST)
    found[:, torch.from_numpy(model.classes_)] = logs.log_softmax(1).clamp_min(LEAST + 1)
    return found


def _wide(inputs: Tensor, labels: Tensor, vectors: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes), -50 for labels without training artifacts, where D is many times P.

    The same discriminant as scikit-learn's, its pooled covariance (1 - s) S + s m I solved in the span of the P inputs
    (Woodbury), which takes P^3 operations instead of D^3.
    """
    known = labels.unique()
    means = torch.stack([inputs[labels == label].mean(0) for label in known])
    rest = inputs - means[torch.searchsorted(known, labels)]
    spread = rest.square().mean(0).sqrt() + 1e-8
    rest, means, vectors = rest / spread, means / spread, vectors / spread
    shrunk = min(max(float(ledoit_wolf_shrinkage(rest.numpy(), assume_centered=True)), 1e-3), 1 - 1e-6)
    floor = max(shrunk * float(rest.square().mean()), 1e-12)  # where all artifacts of a label are equal
    gram = rest @ rest.T + floor * len(rest) / (1 - shrunk) * torch.eye(len(rest), dtype=rest.dtype)
    weights = (means - torch.linalg.solve(gram, rest @ means.T).T @ rest) / floor
    prior = torch.stack([(labels == label).double().mean() for label in known]).log()
    logs = vectors @ weights.T - (weights * means).sum(1) / 2 + prior
    found = torch.full((len(vectors), classes), LEAST)
    found[:, known] = logs.log_softmax(1).clamp_min(LEAST + 1).float()
    return found
