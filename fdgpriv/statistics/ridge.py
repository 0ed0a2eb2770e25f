"""Ridge regression with a penalty chosen by the leave-one-out error."""

import numpy as np
import torch
from sklearn.linear_model import Ridge, RidgeCV
from torch import Tensor


def ridge_regression(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (P, D) and bias (P,) of a ridge regression from vectors (D,) to flattened images (P,).

    Args:
        inputs: (M, D) standardised vectors of simulated artifacts.
        targets: (M, 3, H, W) their images.
    """
    flat = targets.flatten(1).numpy()
    pixels = flat[:, :: max(1, flat.shape[1] // 64)]  # a selection of pixels chooses the penalty
    penalty = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(inputs.numpy(), pixels).alpha_
    model = Ridge(alpha=penalty).fit(inputs.numpy(), flat)
    return torch.from_numpy(np.asarray(model.coef_)), torch.from_numpy(np.asarray(model.intercept_))
