"""A linear probe on artifacts: one shrunken discriminant analysis for each number of images behind them.

Closed form, so that thousands of probes cost seconds; the covariance is shrunk as Ledoit and Wolf (2004) do.
"""

import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from ._reading import Vectors

_WIDE = 4  # times as many numbers in an artifact as there are artifacts to learn from


def probe(practice: Vectors, labels: Tensor, asked: Tensor, behind: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of each asked artifact's label.

    Args:
        practice: Artifacts to learn from.
        labels: (P,) of the practice artifacts.
        asked: (M, D) vectors of the artifacts to read.
        behind: (M,) how many images are behind each; the probe of the nearest practised number reads it.
        classes: How many labels there are.
    """
    inputs, asked = practice.standardised(practice.inputs), practice.standardised(asked)
    known = practice.sizes.unique()
    reader = known[(behind[:, None] - known[None, :]).abs().argmin(1)]
    found = torch.full((len(asked), classes), -50.0)
    for size in reader.unique().tolist():
        learn, read = practice.sizes == size, (reader == size).nonzero().flatten()
        counts = labels[learn].bincount(minlength=classes)
        if int(counts.count_nonzero()) in (1, int(counts.sum())):  # nothing to tell apart, or no spread to learn
            found[read] = (counts / counts.sum()).log().clamp_min(-50)
            continue
        if inputs.shape[1] > _WIDE * int(learn.sum()):
            found[read] = _wide(inputs[learn].double(), labels[learn], asked[read].double(), classes)
            continue
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        model.fit(inputs[learn].double().numpy(), labels[learn].numpy())
        logs = torch.from_numpy(model.decision_function(asked[read].double().numpy())).float()
        if logs.ndim == 1:  # two labels: one score, for the second
            logs = torch.stack([-logs, logs], dim=1)
        found[read[:, None], torch.from_numpy(model.classes_)[None, :]] = logs.log_softmax(1).clamp_min(-49)
    return found


def _wide(inputs: Tensor, labels: Tensor, asked: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes), -50 for labels never seen, where D is many times P.

    The same discriminant as scikit-learn's, its pooled covariance (1 - s) S + s m I solved in the span of the P inputs
    (Woodbury), which takes P^3 operations instead of D^3.
    """
    known = labels.unique()
    means = torch.stack([inputs[labels == label].mean(0) for label in known])
    rest = inputs - means[torch.searchsorted(known, labels)]
    spread = rest.square().mean(0).sqrt() + 1e-8
    rest, means, asked = rest / spread, means / spread, asked / spread
    shrunk = min(max(float(ledoit_wolf_shrinkage(rest.numpy(), assume_centered=True)), 1e-3), 1 - 1e-6)
    floor = max(shrunk * float(rest.square().mean()), 1e-12)  # where all artifacts of a label say the same
    gram = rest @ rest.T + floor * len(rest) / (1 - shrunk) * torch.eye(len(rest), dtype=rest.dtype)
    weights = (means - torch.linalg.solve(gram, rest @ means.T).T @ rest) / floor
    prior = torch.stack([(labels == label).double().mean() for label in known]).log()
    logs = asked @ weights.T - (weights * means).sum(1) / 2 + prior
    found = torch.full((len(asked), classes), -50.0)
    found[:, known] = logs.log_softmax(1).clamp_min(-49).float()
    return found
