"""Membership inference: caches of model outputs on membership candidates, and the statistics of LiRA and RMIA.

References: Carlini et al., "Membership inference attacks from first principles" (LiRA), S&P 2022; Zarifzadeh et al.,
"Low-cost high-power membership inference attacks" (RMIA), ICML 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.parameters import STATISTICS, ModelState
from fdgpriv.results.utility import logits
from fdgpriv.simulation.mixture import Sent
from fdgpriv.simulation.output_cache import OutputCache

_TRUSTED = 0.5  # accuracy on public images from which a received model's predictions serve as labels
_ENOUGH = 64  # shadow models for a separate variance of each candidate; with fewer, one is pooled over all
_LEAST = 1e-12  # least standard deviation


@dataclass(frozen=True, eq=False)
class Logits:
    """Logits (S, N, K) of S models on the candidates at `index` (N,), sorted, and (S, M, K) on public images."""

    index: Tensor
    membership_candidates: Tensor
    public: Tensor

    def of(self, membership_candidates: Tensor) -> Tensor:
        """The logits (S, n, K) of some of the candidates."""
        return self.membership_candidates[:, torch.searchsorted(self.index, membership_candidates)]


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Evaluates models on membership candidates and public images; the received models first, by
    `evaluate_received_models`.

    A received model is trusted where it is right on half of the public images. Then its predictions serve as labels of
    the candidates, and every model trained from it is evaluated with its BatchNorm statistics. Models that were not
    trained from a trusted one keep their own statistics.

    Attributes:
        network: The network that the states belong to.
        pool: (P, 3, H, W) the images that contain all membership candidates.
        images, labels_of_images: Public, (M, 3, H, W) and (M,).
        output_cache: Outputs of artifacts' models on this pool, shared by adversaries.
    """

    network: nn.Module
    pool: Tensor
    images: Tensor
    labels_of_images: Tensor
    output_cache: OutputCache
    _received: dict[int, Logits] = field(default_factory=dict, init=False)
    _trusted: set[int] = field(default_factory=set, init=False)

    def evaluate_received_models(self, observations: Sequence[Observation]) -> None:
        """Evaluate the models that the observations' senders received; call once, before all else."""
        for received_model in {id(one.received_model): received_model_of(one) for one in observations}.values():
            mine = [observation for observation in observations if observation.received_model is received_model]
            output = self._received[id(received_model)] = self.candidate_logits(
                [received_model], mine, received_model, public=True
            )
            if self._is_right(output.public[0]):
                self._trusted.add(id(received_model))

    def is_trusted(self, model: ModelState) -> bool:
        """Whether this model is right on half of the public images."""
        return self._is_right(self.logits([model], self.images, None)[0])

    def _is_right(self, logits: Tensor) -> bool:
        return float((logits.argmax(1) == self.labels_of_images).float().mean()) >= _TRUSTED

    def before(self, observation: Observation) -> Tensor:
        """Logits (N, K) of the received model on the observation's membership candidates."""
        return self._received[id(observation.received_model)].of(observation.membership_candidates)[0]

    def labels(self, observation: Observation, own: Tensor) -> Tensor:
        """Classes (N,) of the candidates: predicted by the received model where it is trusted, else by `own` logits (N, K)."""
        return (self.before(observation) if id(observation.received_model) in self._trusted else own).argmax(1)

    def candidate_logits(
        self,
        states: Sequence[ModelState],
        observations: Sequence[Observation],
        received_model: ModelState | None,
        public: bool,
    ) -> Logits:
        """Logits of models on all membership candidates of these observations, and on public images if `public`.

        Args:
            states: S models, all trained from `received_model`.
            observations: Their candidates are evaluated.
            received_model: None where the models were trained from the start.
            public: Whether to evaluate public images too.
        """
        index = all_membership_candidates(observations)
        images = torch.cat([self.pool[index], self.images if public else self.images[:0]])
        output = self.logits(states, images, received_model)
        return Logits(index, output[:, : len(index)], output[:, len(index) :])

    def candidate_logits_of_artifact(
        self,
        sent: Sent,
        state: ModelState,
        observations: Sequence[Observation],
        received_model: ModelState,
        public: bool,
    ) -> Logits:
        """As `candidate_logits`, for one model that an artifact reveals, with the cache; all observations are of this
        artifact.
        """
        index = all_membership_candidates(observations)
        under = received_model if id(received_model) in self._trusted else None
        candidates = self.output_cache.of(
            sent, under, index, lambda some: self.logits([state], self.pool[some], received_model)[0]
        )
        of_public = self.logits([state], self.images, received_model) if public else candidates[None, :0]
        return Logits(index, candidates[None], of_public)

    @torch.no_grad()
    def logits(self, states: Sequence[ModelState], images: Tensor, received_model: ModelState | None) -> Tensor:
        """Logits (S, N, K) of models trained from `received_model`, or from the start for None; replaced by finite values."""
        common = received_model.state if received_model is not None and id(received_model) in self._trusted else {}
        theirs = {name: tensor for name, tensor in common.items() if name.endswith(STATISTICS)}
        output = []
        for state in states:
            replace(state, state=state.state | theirs).load_into(self.network)
            output.append(logits(self.network, images))
        return torch.stack(output).nan_to_num(0.0, 1e6, -1e6)


def received_model_of(observation: Observation) -> ModelState:
    """The model that the artifact's sender received."""
    assert observation.received_model is not None
    return observation.received_model


def all_membership_candidates(observations: Sequence[Observation]) -> Tensor:
    """Sorted indices (N,) into the pool of these observations' membership candidates."""
    index: Tensor = torch.cat([observation.membership_candidates for observation in observations]).unique()
    return index


def unions(candidates: Sequence[Tensor]) -> list[Tensor]:
    """Unions (P,), sorted, of lists of candidates that have images in common: those of one domain."""
    pools: list[Tensor] = []
    for index in {one.numpy().tobytes(): one for one in candidates}.values():
        shared = [pool for pool in pools if bool(torch.isin(index, pool).any())]
        pools = [pool for pool in pools if all(pool is not other for other in shared)]
        pools.append(torch.cat([index, *shared]).unique())
    return pools


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-odds of the label, log p_y - log sum of p_y' over the other classes: (..., N) for logits (..., N, K), labels
    (N,).
    """
    wide = logits.double()
    own = torch.nn.functional.one_hot(labels, wide.shape[-1]).bool().expand(wide.shape)
    return wide[own].view(wide.shape[:-1]) - wide.masked_fill(own, -torch.inf).logsumexp(-1)


def likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The probability (..., N) of each label (N,) under logits (..., N, K)."""
    own = labels.expand(logits.shape[:-1])[..., None]
    return logits.double().softmax(-1).gather(-1, own).squeeze(-1)


def offline(phi: Tensor, out: Tensor) -> Tensor:
    """One-sided LiRA score (N,): standard deviations of phi (N,) above that of models (S, N) trained without the candidate.

    Unlike its normal p-value, which gives the same order, it does not saturate beyond eight deviations.
    """
    return (phi - out.mean(0)) / _spread(out - out.mean(0), len(out) - 1, len(out))


def online(phi: Tensor, shadows: Tensor, saw: Tensor) -> Tensor:
    """Log-likelihood ratio (N,) of phi (N,) under models (S, N) trained with each membership candidate and models
    without it.

    Args:
        phi: Of the target model.
        shadows: Of all shadow models.
        saw: (S, N) which model was trained on which candidate. For a candidate of fewer than two models, the mean with
            it is the mean without it plus the average increase over all candidates.
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


def rmia(
    membership_candidates: Tensor, out: Tensor, others: Tensor, out_others: Tensor, gamma: float, a: float
) -> Tensor:
    """Share (N,) of others z with [P(x|f) / P(x)] / [P(z|f) / P(z)] >= gamma, P(x) = ((1 + a) P_out(x) + 1 - a) / 2.

    Args:
        membership_candidates: P(x|f) (N,): the target model's probability of each membership candidate's label.
        out: P_out(x) (N,): its mean over models trained without the candidate.
        others: P(z|f) (M,) of public images.
        out_others: P_out(z) (M,).
        gamma: Threshold of the likelihood ratio.
        a: Slope that extrapolates from P_out to the mean of models with and without the candidate; fixed beforehand.
    """
    ratio = membership_candidates / (((1 + a) * out + 1 - a) / 2)
    ratio_others = others / (((1 + a) * out_others + 1 - a) / 2)
    return (ratio[:, None] >= gamma * ratio_others).double().mean(1)


def _spread(rest: Tensor, freedom: Tensor | int, shadows: int) -> Tensor:
    """Standard deviation (N,) of residuals (S, N): per candidate where shadow models are many, else pooled."""
    free = torch.as_tensor(freedom, dtype=torch.float64).expand(rest.shape[1])
    squared = rest.square().sum(0)
    if shadows < _ENOUGH:
        squared, free = squared.sum(), free.sum()
    return (squared / free.clamp_min(1)).sqrt().clamp_min(_LEAST).expand(rest.shape[1])


def _log_normal(value: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return -((value - mean) / spread).square() / 2 - spread.log()
