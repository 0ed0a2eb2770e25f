"""A linear probe on artifacts: one logistic regression for each number of images behind them."""

import torch
from sklearn.linear_model import LogisticRegression
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
    inputs, asked = practice.standardised(practice.inputs), practice.standardised(asked)
    known = practice.sizes.unique()
    reader = known[(behind[:, None] - known[None, :]).abs().argmin(1)]
    found = torch.full((len(asked), classes), -50.0)
    for size in reader.unique().tolist():
        learn, read = practice.sizes == size, (reader == size).nonzero().flatten()
        if len(labels[learn].unique()) == 1:
            found[read, int(labels[learn][0])] = 0.0
            continue
        model = LogisticRegression(max_iter=500).fit(inputs[learn].numpy(), labels[learn].numpy())
        logs = torch.from_numpy(model.predict_log_proba(asked[read].numpy())).float().clamp_min(-50)
        found[read[:, None], torch.from_numpy(model.classes_)[None, :]] = logs
    return found
