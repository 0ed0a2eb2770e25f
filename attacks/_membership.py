"""Membership inference: caches of model outputs on membership candidates, and the statistics of LiRA and RMIA.

References: Carlini et al., "Membership inference attacks from first principles" (LiRA), S&P 2022; Zarifzadeh et al.,
"Low-cost high-power membership inference attacks" (RMIA), ICML 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import STATISTICS, ModelState
from fdgpriv.results.utility import logits
from fdgpriv.simulation.mixture import Sent
from fdgpriv.simulation.output_cache import OutputCache
from fdgpriv.view import SeenRound, spaced

from ._batchnorm import BATCH_SIZE, normalise_as_one_batch, shares_statistics

_MIN_TRUSTED_ACCURACY = 0.5  # on public images: above, a received model's predictions serve as labels
_MIN_SHADOWS = 64  # for a separate variance of each candidate; with fewer, one variance is pooled over all
_MIN_DEVIATION = 1e-12


@dataclass(frozen=True, eq=False)
class Logits:
    """Logits (S, N, K) of S models on the candidates at `index` (N,), sorted, and (S, M, K) on public images."""

    index: Tensor
    logits: Tensor
    public: Tensor

    def of(self, candidates: Tensor) -> Tensor:
        """Logits (S, n, K) on these `candidates` (n,), which are among those at `index`."""
        return self.logits[:, torch.searchsorted(self.index, candidates)]


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Evaluates models on membership candidates and public images; the received models first, by
    `evaluate_received_models`.

    A received model is trusted where it is right on half of the public images. Then its predictions serve as labels of
    the candidates, and every model trained from it is evaluated with its BatchNorm statistics. Models that were not
    trained from a trusted one keep their own statistics; those without any are given those of public images.

    Attributes:
        network: The network that states are loaded into.
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
        """Evaluates the models that the observations' senders received; to be called once, before any other method."""
        for received_model in {
            id(observation.received_model): received_model_of(observation) for observation in observations
        }.values():
            with_this_model = [
                observation for observation in observations if observation.received_model is received_model
            ]
            output = self._received[id(received_model)] = self.candidate_logits(
                [received_model], with_this_model, received_model, public=True
            )
            if self._is_right(output.public[0]):
                self._trusted.add(id(received_model))

    def is_trusted(self, model: ModelState) -> bool:
        """Whether this model is right on half of the public images."""
        return self._is_right(self.logits([model], self.images, None)[0])

    def _is_right(self, logits: Tensor) -> bool:
        return float((logits.argmax(1) == self.labels_of_images).float().mean()) >= _MIN_TRUSTED_ACCURACY

    def statistics_source(self, received_model: ModelState | None) -> ModelState | None:
        """The received model whose BatchNorm statistics all models trained from it are given; None where they keep their
        own.
        """
        return received_model if id(received_model) in self._trusted else None

    def received_logits(self, observation: Observation) -> Tensor:
        """Logits (N, K) of the received model on the observation's membership candidates."""
        return self._received[id(observation.received_model)].of(observation.membership_candidates)[0]

    def labels(self, observation: Observation, trained_logits: Tensor) -> Tensor:
        """Classes (N,) of the candidates: by the received model where it is trusted, else by `trained_logits` (N, K)."""
        return (
            self.received_logits(observation) if id(observation.received_model) in self._trusted else trained_logits
        ).argmax(1)

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
        on_candidates = self.output_cache.of(
            sent,
            self.statistics_source(received_model),
            index,
            lambda positions: self.logits([state], self.pool[positions], received_model)[0],
        )
        on_public = self.logits([state], self.images, received_model) if public else on_candidates[None, :0]
        return Logits(index, on_candidates[None], on_public)

    @torch.no_grad()
    def logits(self, states: Sequence[ModelState], images: Tensor, received_model: ModelState | None) -> Tensor:
        """Logits (S, N, K) of models trained from `received_model`, or from the start for None; replaced by finite values."""
        source = self.statistics_source(received_model)
        shared_state = source.state if source is not None else {}
        statistics = {name: tensor for name, tensor in shared_state.items() if name.endswith(STATISTICS)}
        output = []
        for state in states:
            known = state.state | statistics
            replace(state, state=known).load_into(self.network)
            if not shares_statistics(known):
                normalise_as_one_batch(self.network.eval(), self.images[:: -(-len(self.images) // BATCH_SIZE)])
            output.append(logits(self.network, images))
        return torch.stack(output).nan_to_num(0.0, 1e6, -1e6)


def received_model_of(observed: Observation | SeenRound) -> ModelState:
    """The model that the artifact's sender received."""
    assert observed.received_model is not None
    return observed.received_model


def all_membership_candidates(observations: Sequence[Observation]) -> Tensor:
    """Sorted indices (N,) into the pool of these observations' membership candidates."""
    index: Tensor = torch.cat([observation.membership_candidates for observation in observations]).unique()
    return index


def unions(candidates: Sequence[Tensor]) -> list[Tensor]:
    """Unions (P,), sorted, of lists of candidates that have images in common: those of one domain."""
    pools: list[Tensor] = []
    for index in {index.numpy().tobytes(): index for index in candidates}.values():
        overlapping = [pool for pool in pools if bool(torch.isin(index, pool).any())]
        pools = [pool for pool in pools if all(pool is not other for other in overlapping)]
        pools.append(torch.cat([index, *overlapping]).unique())
    return pools


def pool_of(observation: Observation, pools: Sequence[Tensor]) -> Tensor:
    """The union (P,) that contains the observation's membership candidates."""
    return next(pool for pool in pools if bool(torch.isin(observation.membership_candidates[:1], pool)))


@dataclass(eq=False)
class RoundScorer:
    """Scores the membership candidates of observed models or updates, by all rounds of each observation's view; used once.

    Attributes:
        adversary: The adversary, with its view of each observation.
        labels: (P,) of its candidate images, as far as it knows.
        outputs: Outputs of models on its candidate images; the received models are already evaluated.
        rounds: The largest number of rounds that are read of each view: evenly spaced, the last one included.
    """

    adversary: Adversary
    labels: Tensor
    outputs: ModelOutputs
    rounds: int

    def rounds_read(self, observation: Observation) -> tuple[SeenRound, ...]:
        """The rounds of the observation's view that are read: of those in which models are known with all their tensors."""
        view = self.adversary.view(observation)
        return spaced([seen for seen in view if seen.whole and seen.received_model is not None], self.rounds)


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-odds of the label, log p_y - log sum of p_y' over the other classes: (..., N) for logits (..., N, K), labels
    (N,).
    """
    values = logits.double()
    is_label = torch.nn.functional.one_hot(labels, values.shape[-1]).bool().expand(values.shape)
    return values[is_label].view(values.shape[:-1]) - values.masked_fill(is_label, -torch.inf).logsumexp(-1)


def likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The probability (..., N) of each label (N,) under logits (..., N, K)."""
    index = labels.expand(logits.shape[:-1])[..., None]
    return logits.double().softmax(-1).gather(-1, index).squeeze(-1)


def offline(phi: Tensor, out: Tensor) -> Tensor:
    """One-sided LiRA score (N,): phi (N,) minus the mean of models (S, N) trained without the candidate, in deviations.

    Unlike its normal p-value, which gives the same order, it does not saturate beyond eight deviations.
    """
    return (phi - out.mean(0)) / _spread(out - out.mean(0), len(out) - 1, len(out))


def online(phi: Tensor, shadows: Tensor, saw: Tensor) -> Tensor:
    """Log-likelihood ratio (N,) of phi (N,) under models (S, N) trained with each membership candidate and models
    without it.

    Args:
        phi: Log-odds of the observed model.
        shadows: Log-odds of all shadow models.
        saw: (S, N) whether a model was trained on a candidate. For a candidate that fewer than two models were trained on,
            the mean with it is the mean without it plus the average increase over all candidates.
    """
    means, spreads = [], []
    for mask in (~saw, saw):
        counts = mask.sum(0)
        mean = (shadows * mask).sum(0) / counts.clamp_min(1)
        residuals = (shadows - mean) * mask * (counts > 1)
        means.append(mean)
        spreads.append(_spread(residuals, (counts - 1).clamp_min(0), int(counts.min())))
    mean_out, mean_in = means
    has_several = saw.sum(0) > 1
    mean_increase = ((shadows - mean_out) * saw).sum() / saw.sum().clamp_min(1)
    mean_in = torch.where(has_several, mean_in, mean_out + mean_increase)
    spread_in = spreads[1] if bool(has_several.any()) else spreads[0]
    return _log_normal(phi, mean_in, spread_in) - _log_normal(phi, mean_out, spreads[0])


def rmia(candidates: Tensor, out: Tensor, public: Tensor, out_public: Tensor, gamma: float, a: float) -> Tensor:
    """Share (N,) of public images z with [P(x|f) / P(x)] / [P(z|f) / P(z)] >= gamma, P(x) = ((1 + a) P_out(x) + 1 - a) / 2.

    Args:
        candidates: P(x|f) (N,): the observed model's probability of each candidate's label.
        out: P_out(x) (N,): its mean over models trained without the candidate.
        public: P(z|f) (M,): the same of public images.
        out_public: P_out(z) (M,): the same of public images.
        gamma: Threshold of the likelihood ratio.
        a: Slope that extrapolates from P_out to the mean of models with and without the candidate; fixed beforehand.
    """
    ratio = candidates / (((1 + a) * out + 1 - a) / 2)
    public_ratio = public / (((1 + a) * out_public + 1 - a) / 2)
    return (ratio[:, None] >= gamma * public_ratio).double().mean(1)


def _spread(residuals: Tensor, degrees_of_freedom: Tensor | int, shadows: int) -> Tensor:
    """Standard deviation (N,) of residuals (S, N): of each candidate where shadow models are many, else pooled."""
    degrees = torch.as_tensor(degrees_of_freedom, dtype=torch.float64).expand(residuals.shape[1])
    squares = residuals.square().sum(0)
    if shadows < _MIN_SHADOWS:
        squares, degrees = squares.sum(), degrees.sum()
    return (squares / degrees.clamp_min(1)).sqrt().clamp_min(_MIN_DEVIATION).expand(residuals.shape[1])


def _log_normal(value: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return -((value - mean) / spread).square() / 2 - spread.log()
