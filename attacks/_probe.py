"""A linear probe on artifacts: one shrunken discriminant analysis for each number of images behind them.

Closed form, so that thousands of probes cost seconds; the covariance is shrunk as Ledoit and Wolf (2004) do.
"""

import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from ._reading import Practice


def probe(practice: Practice, labels: Tensor, asked: Tensor, behind: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of each asked artifact's label.

    Args:
        practice: Artifacts to learn from.
        labels: (P,) of the practice artifacts.
        asked: (M, D) vectors of the artifacts to read.
        behind: (M,) how many images are behind each; the probe of the nearest practised number reads it.
        classes: How many labels there are.
    """
    inputs, asked = _within(practice.standardised(practice.inputs), practice.standardised(asked))
    known = practice.sizes.unique()
    reader = known[(behind[:, None] - known[None, :]).abs().argmin(1)]
    found = torch.full((len(asked), classes), -50.0)
    for size in reader.unique().tolist():
        learn, read = practice.sizes == size, (reader == size).nonzero().flatten()
        counts = labels[learn].bincount(minlength=classes)
        if int(counts.count_nonzero()) in (1, int(counts.sum())):  # nothing to tell apart, or no spread to learn
            found[read] = (counts / counts.sum()).log().clamp_min(-50)
            continue
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        model.fit(inputs[learn].double().numpy(), labels[learn].numpy())
        logs = torch.from_numpy(model.decision_function(asked[read].double().numpy())).float()
        if logs.ndim == 1:  # two labels: one score, for the second
            logs = torch.stack([-logs, logs], dim=1)
        found[read[:, None], torch.from_numpy(model.classes_)[None, :]] = logs.log_softmax(1).clamp_min(-49)
    return found


def _within(inputs: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Both in coordinates of the span of `inputs` (P, D), outside of which nothing was learned; as they are where P >= D."""
    if len(inputs) >= inputs.shape[1]:
        return inputs, asked
    axes = torch.linalg.svd(inputs, full_matrices=False).Vh
    return inputs @ axes.T, asked @ axes.T
