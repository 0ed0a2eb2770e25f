"""What a linear reader sees of the images behind artifacts: ridge regression from standardised vectors to pixels."""

import numpy as np
import torch
from sklearn.linear_model import Ridge, RidgeCV
from torch import Tensor


def linear_reader(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (P, D) and bias (P,) that take vectors (D,) to flattened images (P,).

    Args:
        inputs: (M, D) standardised vectors of practice artifacts.
        targets: (M, 3, H, W) what stands behind them.
    """
    flat = targets.flatten(1).numpy()
    some = flat[:, :: max(1, flat.shape[1] // 64)]  # enough pixels to choose the penalty on
    penalty = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(inputs.numpy(), some).alpha_
    model = Ridge(alpha=penalty).fit(inputs.numpy(), flat)
    return torch.from_numpy(np.asarray(model.coef_)), torch.from_numpy(np.asarray(model.intercept_))
