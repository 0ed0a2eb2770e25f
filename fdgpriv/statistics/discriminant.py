"""Discriminant analysis with a shrunk covariance (Ledoit and Wolf, 2004), also where dimensions outnumber inputs.

It has a closed form, so that thousands of inputs cost seconds.
"""

import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler
from torch import Tensor

LEAST = -50.0  # log-probability of a label without inputs
_WIDE = 4  # ratio of dimensions to inputs above which labels have too few inputs to be shrunk separately


def discriminant(inputs: Tensor, labels: Tensor, vectors: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of the labels of vectors, -50 for labels without inputs.

    Up to four times as many dimensions as inputs, the discriminant is scikit-learn's, whose covariance is shrunk for
    each label; beyond, one covariance is shrunk for all.

    Args:
        inputs: (P, D) standardised, to learn from.
        labels: (P,) of these.
        vectors: (M, D) in the same units.
        classes: Number of labels.
    """
    counts = labels.bincount(minlength=classes)
    if int(counts.count_nonzero()) in (1, int(counts.sum())):  # one label only, or one input of each label
        return (counts / counts.sum()).log().clamp_min(LEAST).expand(len(vectors), -1)
    present = counts.nonzero().flatten()
    inputs, vectors = inputs.double(), vectors.double()
    if inputs.shape[1] > len(inputs):
        logs = _in_the_span_of_inputs(inputs, labels, vectors)
    else:
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(inputs.numpy(), labels.numpy())
        logs = torch.from_numpy(model.decision_function(vectors.numpy()))
        if logs.ndim == 1:  # two labels: one score, for the second
            logs = torch.stack([torch.zeros_like(logs), logs], dim=1)
    log_probabilities = torch.full((len(vectors), classes), LEAST)
    log_probabilities[:, present] = logs.log_softmax(1).clamp_min(LEAST + 1).float()
    return log_probabilities


def _in_the_span_of_inputs(inputs: Tensor, labels: Tensor, vectors: Tensor) -> Tensor:
    """Logits (M, labels that occur) where D exceeds P.

    The covariance is that of P rows plus a diagonal. Its inverse (Woodbury) takes P^3 operations instead of D^3, and
    no D x D matrix.
    """
    parts = [inputs[labels == label] for label in labels.unique()]
    means = torch.stack([part.mean(0) for part in parts])
    rows, diagonal = (_pooled if inputs.shape[1] > _WIDE * len(inputs) else _of_each_label)(parts)
    scale = diagonal.sqrt()
    rows, means, vectors = rows / scale, means / scale, vectors / scale
    gram = rows @ rows.T + torch.eye(len(rows), dtype=rows.dtype)
    weights = means - torch.linalg.solve(gram, rows @ means.T).T @ rows
    prior = torch.tensor([len(part) / len(inputs) for part in parts], dtype=rows.dtype)
    logits: Tensor = vectors @ weights.T - (weights * means).sum(1) / 2 + prior.log()
    return logits


def _of_each_label(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows (P, D) and diagonal (D,) of the covariance within labels, shrunk for each label (P_l, D) as scikit-learn does."""
    total = sum(len(part) for part in parts)
    rows, diagonal = [], torch.zeros(parts[0].shape[1], dtype=torch.float64)
    for part in parts:
        scaler = StandardScaler()
        standard = torch.from_numpy(scaler.fit_transform(part.numpy()))
        spread = torch.from_numpy(scaler.scale_)
        shrunk = shrinkage(standard)
        rows.append(standard * spread * ((1 - shrunk) / total) ** 0.5)
        diagonal += len(part) / total * shrunk * standard.square().mean() * spread.square()
    return torch.cat(rows), diagonal.clamp_min(1e-12)


def _pooled(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows (P, D) and diagonal (D,) of the covariance within labels, shrunk for all labels (P_l, D) at once."""
    rest = torch.cat([part - part.mean(0) for part in parts])
    spread = rest.square().mean(0).sqrt() + 1e-8
    rest = rest / spread
    shrunk = min(max(shrinkage(rest), 1e-3), 1 - 1e-6)
    floor = max(shrunk * float(rest.square().mean()), 1e-12)  # where all artifacts of a label are equal
    return rest * spread * ((1 - shrunk) / len(rest)) ** 0.5, floor * spread.square()


def shrinkage(rows: Tensor) -> float:
    """Ledoit and Wolf's shrinkage, in [0, 1], of the covariance of centred rows (P, D).

    As scikit-learn's, but from the P x P products of the rows: with D = 40,000 its D x D ones take seconds.
    """
    count, dimensions = rows.shape
    squared = rows.square().sum(1)
    mean = float(squared.sum()) / (count * dimensions)
    second_moment = float((rows @ rows.T).square().sum()) / count**2
    distance = second_moment / dimensions - mean**2
    error = (float(squared.square().sum()) / count - second_moment) / (count * dimensions)
    return min(error / distance, 1.0) if error > 0 and distance > 0 else 0.0
