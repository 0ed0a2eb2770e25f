"""Statistics of membership: how sure a model is of a suspect, against models that never saw it.

References: Carlini et al., "Membership inference attacks from first principles" (LiRA), S&P 2022; Zarifzadeh et al.,
"Low-cost high-power membership inference attacks" (RMIA), ICML 2024. AUDIT 5.6.
"""

import torch
from torch import Tensor

_ENOUGH = 64  # shadows for a variance of each suspect's own; with fewer, one is pooled over all
_LEAST = 1e-12


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """phi = log p_y - log sum of p_y' over the other classes: (..., N) of logits (..., N, K) and labels (N,)."""
    wide = logits.double()
    own = torch.nn.functional.one_hot(labels, wide.shape[-1]).bool().expand(wide.shape)
    return wide[own].view(wide.shape[:-1]) - wide.masked_fill(own, -torch.inf).logsumexp(-1)


def likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The probability (..., N) of each label (N,), of logits (..., N, K)."""
    own = labels.expand(logits.shape[:-1])[..., None]
    return logits.double().softmax(-1).gather(-1, own).squeeze(-1)


def offline(phi: Tensor, out: Tensor) -> Tensor:
    """One-sided: how many standard deviations (N,) phi (N,) lies above those of models (S, N) that never saw it.

    Phi of it is the p-value's complement, which orders alike but is 1 beyond eight deviations.
    """
    return (phi - out.mean(0)) / _spread(out - out.mean(0), len(out) - 1, len(out))


def online(phi: Tensor, shadows: Tensor, saw: Tensor) -> Tensor:
    """Log-likelihood ratio (N,) of phi (N,) under the models (S, N) that saw each suspect and those that did not.

    Args:
        phi: Of the target model.
        shadows: Of all shadow models.
        saw: (S, N) which model saw which suspect. Where fewer than two saw one, its mean is what seeing adds to the
            mean of the others on average.
    """
    means, spreads = [], []
    for which in (~saw, saw):
        count = which.sum(0)
        mean = (shadows * which).sum(0) / count.clamp_min(1)
        rest = (shadows - mean) * which * (count > 1)
        means.append(mean)
        spreads.append(_spread(rest, (count - 1).clamp_min(0), int(count.min())))
    out, inside = means
    seen = saw.sum(0) > 1
    added = ((shadows - out) * saw).sum() / saw.sum().clamp_min(1)
    inside = torch.where(seen, inside, out + added)
    spread_in = spreads[1] if bool(seen.any()) else spreads[0]
    return _log_normal(phi, inside, spread_in) - _log_normal(phi, out, spreads[0])


def rmia(suspects: Tensor, out: Tensor, others: Tensor, out_others: Tensor, gamma: float, a: float) -> Tensor:
    """Share (N,) of others z with [P(x|f) / P(x)] / [P(z|f) / P(z)] >= gamma, P(x) = ((1 + a) P_out(x) + 1 - a) / 2.

    Args:
        suspects: P(x|f) (N,): the target model's probability of each suspect's label.
        out: P_out(x) (N,): its mean over models that never saw the suspect.
        others: P(z|f) (M,) of public images.
        out_others: P_out(z) (M,).
        gamma: How much likelier.
        a: How far out-models stand for the mean of in and out; fixed beforehand.
    """
    ratio = suspects / (((1 + a) * out + 1 - a) / 2)
    ratio_others = others / (((1 + a) * out_others + 1 - a) / 2)
    return (ratio[:, None] >= gamma * ratio_others).double().mean(1)


def _spread(rest: Tensor, freedom: Tensor | int, shadows: int) -> Tensor:
    """Standard deviation of residuals (S, N): (N,) of each suspect where shadows are many, else one for all."""
    free = torch.as_tensor(freedom, dtype=torch.float64).expand(rest.shape[1])
    squared = rest.square().sum(0)
    if shadows < _ENOUGH:
        squared, free = squared.sum(), free.sum()
    return (squared / free.clamp_min(1)).sqrt().clamp_min(_LEAST).expand(rest.shape[1])


def _log_normal(value: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return -((value - mean) / spread).square() / 2 - spread.log()
