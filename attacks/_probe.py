"""Predictors from artifact vectors: discriminant analysis, and label shares by ridge or kernel ridge regression.

All have closed forms, so that thousands cost seconds; covariances are shrunk as Ledoit and Wolf (2004) do.
"""

import numpy as np
import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge, RidgeCV
from torch import Tensor

from fdgpriv.statistics.kernel_ridge import KernelRidge

from ._simulation import Vectors

_WIDE = 4  # ratio of dimensions to training artifacts above which the dual solution is used


def probe(simulated: Vectors, labels: Tensor, vectors: Tensor, n_images: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of the labels of observed artifacts, by discriminant analysis.

    Args:
        simulated: Training artifacts.
        labels: (P,) of the training artifacts.
        vectors: (M, D) vectors of the observed artifacts.
        n_images: (M,) how many images each contains; the probe of the nearest simulated size is used.
        classes: Number of labels.
    """
    inputs, vectors = simulated.standardised(simulated.inputs), simulated.standardised(vectors)
    known = simulated.sizes.unique()
    nearest = known[(n_images[:, None] - known[None, :]).abs().argmin(1)]
    found = torch.full((len(vectors), classes), -50.0)
    for size in nearest.unique().tolist():
        learn, read = simulated.sizes == size, (nearest == size).nonzero().flatten()
        counts = labels[learn].bincount(minlength=classes)
        if int(counts.count_nonzero()) in (1, int(counts.sum())):  # one label only, or one artifact of each label
            found[read] = (counts / counts.sum()).log().clamp_min(-50)
            continue
        if inputs.shape[1] > _WIDE * int(learn.sum()):
            found[read] = _wide(inputs[learn].double(), labels[learn], vectors[read].double(), classes)
            continue
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        model.fit(inputs[learn].double().numpy(), labels[learn].numpy())
        logs = torch.from_numpy(model.decision_function(vectors[read].double().numpy())).float()
        if logs.ndim == 1:  # two labels: one score, for the second
            logs = torch.stack([-logs, logs], dim=1)
        found[read[:, None], torch.from_numpy(model.classes_)[None, :]] = logs.log_softmax(1).clamp_min(-49)
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
    found = torch.full((len(vectors), classes), -50.0)
    found[:, known] = logs.log_softmax(1).clamp_min(-49).float()
    return found


def regressed_shares(simulated: Vectors, shares: Tensor, vectors: Tensor, n_images: Tensor) -> Tensor:
    """Distributions (M, K) of observed artifacts by linear or kernel ridge regression, whichever errs less, cut at 0, sum 1.

    Of fewer images than there are labels, shares are whole images: the most likely one for a single image.

    Args:
        simulated: Training artifacts.
        shares: (P, K) distributions of the training artifacts.
        vectors: (M, D) vectors of the observed artifacts.
        n_images: (M,) how many images each contains; the regression of the nearest simulated size is used.
    """
    known = simulated.sizes.unique()
    nearest = known[(n_images[:, None] - known[None, :]).abs().argmin(1)]
    found = torch.empty(len(vectors), shares.shape[1])
    for size in nearest.unique().tolist():
        learn, some = simulated.sizes == size, nearest == size
        inputs = simulated.inputs[learn]
        center, spread = inputs.mean(0), inputs.std(0) + 1e-8
        both = [KernelRidge((inputs - center) / spread, shares[learn], kernel) for kernel in ("linear", "rbf")]
        # by the error on all inputs: on a few a line errs less
        model = min(both, key=lambda one: float((one.left_out - shares[learn]).square().mean()))
        predicted = model((vectors[some] - center) / spread).clamp_min(0)
        found[some] = predicted / predicted.sum(1, keepdim=True).clamp_min(1e-9)
    few = n_images < shares.shape[1]
    found[few] = _of_whole_images(found[few], n_images[few])
    return found


def _of_whole_images(shares: Tensor, n_images: Tensor) -> Tensor:
    """Shares (M, K) rounded to whole images of `n_images` (M,), those of the largest remainders up."""
    counts = shares * n_images[:, None]
    whole = counts.floor()
    left = (n_images - whole.sum(1)).round()
    rank = (counts - whole).argsort(1, descending=True).argsort(1)
    return (whole + (rank < left[:, None])) / n_images[:, None].clamp_min(1)


def ridge_regression(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge regression from vectors (D,) to flattened images (P,): its weight (P, D) and bias (P,).

    Args:
        inputs: (M, D) standardised vectors of simulated artifacts.
        targets: (M, 3, H, W) their images.
    """
    flat = targets.flatten(1).numpy()
    some = flat[:, :: max(1, flat.shape[1] // 64)]  # enough pixels to choose the penalty on
    penalty = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(inputs.numpy(), some).alpha_
    model = Ridge(alpha=penalty).fit(inputs.numpy(), flat)
    return torch.from_numpy(np.asarray(model.coef_)), torch.from_numpy(np.asarray(model.intercept_))
