"""Linear discriminant analysis with a shrunk covariance (Ledoit and Wolf, 2004), also for more dimensions than inputs.

It has a closed form: thousands of inputs take seconds.
"""

import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler
from torch import Tensor

MIN_LOG_PROBABILITY = -50.0  # of a label without inputs
_MAX_RATIO = 4  # dimensions per input, above which one covariance is shrunk for all labels


def discriminant(inputs: Tensor, labels: Tensor, vectors: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of the labels of vectors, -50 for labels without inputs.

    The covariance is shrunk for each label, as in scikit-learn; for more than four dimensions per input, for all labels at
    once.

    Args:
        inputs: (P, D) standardised training vectors.
        labels: (P,) their labels.
        vectors: (M, D) in the same units.
        classes: Number of labels.
    """
    counts = labels.bincount(minlength=classes)
    if int(counts.count_nonzero()) in (1, int(counts.sum())):  # one label only, or one input of each label
        return (counts / counts.sum()).log().clamp_min(MIN_LOG_PROBABILITY).expand(len(vectors), -1)
    present = counts.nonzero().flatten()
    inputs, vectors = inputs.double(), vectors.double()
    if inputs.shape[1] > len(inputs):
        logs = _in_the_span_of_inputs(inputs, labels, vectors)
    else:
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(inputs.numpy(), labels.numpy())
        logs = torch.from_numpy(model.decision_function(vectors.numpy()))
        if logs.ndim == 1:  # two labels: one score, for the second
            logs = torch.stack([torch.zeros_like(logs), logs], dim=1)
    log_probabilities = torch.full((len(vectors), classes), MIN_LOG_PROBABILITY)
    log_probabilities[:, present] = logs.log_softmax(1).clamp_min(MIN_LOG_PROBABILITY + 1).float()
    return log_probabilities


def _in_the_span_of_inputs(inputs: Tensor, labels: Tensor, vectors: Tensor) -> Tensor:
    """Logits (M, labels that occur) for D > P.

    The covariance is that of P rows plus a diagonal. Its inverse (Woodbury) takes P^3 operations instead of D^3, and
    no D x D matrix.
    """
    parts = [inputs[labels == label] for label in labels.unique()]
    means = torch.stack([part.mean(0) for part in parts])
    rows, diagonal = (_pooled if inputs.shape[1] > _MAX_RATIO * len(inputs) else _per_label)(parts)
    scale = diagonal.sqrt()
    rows, means, vectors = rows / scale, means / scale, vectors / scale
    gram = rows @ rows.T + torch.eye(len(rows), dtype=rows.dtype)
    weights = means - torch.linalg.solve(gram, rows @ means.T).T @ rows
    prior = torch.tensor([len(part) / len(inputs) for part in parts], dtype=rows.dtype)
    logits: Tensor = vectors @ weights.T - (weights * means).sum(1) / 2 + prior.log()
    return logits


def _per_label(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows (P, D) and diagonal (D,) of the covariance within labels, shrunk for each part (P_l, D), as in scikit-learn."""
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
    """Rows (P, D) and diagonal (D,) of the covariance within labels, shrunk for all parts (P_l, D) at once."""
    centred = torch.cat([part - part.mean(0) for part in parts])
    spread = centred.square().mean(0).sqrt() + 1e-8
    standard = centred / spread
    shrunk = min(max(shrinkage(standard), 1e-3), 1 - 1e-6)
    floor = max(shrunk * float(standard.square().mean()), 1e-12)  # not 0 if all inputs of a label are equal
    return standard * spread * ((1 - shrunk) / len(standard)) ** 0.5, floor * spread.square()


def shrinkage(rows: Tensor) -> float:
    """Ledoit and Wolf's shrinkage, in [0, 1], of the covariance of centred rows (P, D).

    Equal to scikit-learn's, but computed from the P x P products of the rows, since D may be 40,000.
    """
    count, dimensions = rows.shape
    squared = rows.square().sum(1)
    mean = float(squared.sum()) / (count * dimensions)
    second_moment = float((rows @ rows.T).square().sum()) / count**2
    distance = second_moment / dimensions - mean**2
    error = (float(squared.square().sum()) / count - second_moment) / (count * dimensions)
    return min(error / distance, 1.0) if error > 0 and distance > 0 else 0.0
