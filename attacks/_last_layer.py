"""Label shares from the changes of the last layer's bias, centred over the clients of each round that an adversary sees.

The bias of class c grows in a client's training by the client's share of the class, less what the model predicts, times a
factor of the learning rate and the steps (Wainakh et al., "User-level label leakage from gradients", PoPETs 2022). The
model's predictions are similar for all clients of a round, so that subtracting the mean over the other clients removes them.
The deviation of a client's shares from the clients' mean remains, with noise that differs from round to round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.simulation.head import HEAD, HeadSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.label_shares import as_shares
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound

from ._inversion import bias_change
from ._kept_layers import LayerDeviations
from ._simulation import simulated_in_round

MIN_OTHER_CLIENTS = 5  # fewer other clients have too noisy a mean
_EARLY_ROUNDS = 6  # rounds in which a model fits clients' images hardly better than public images
_MAX_CORRELATION = 0.98  # of one round's growth with the growth due to labels
_MIN_RELIABILITY = 0.02  # share of the variance of a round's growth that is due to labels
_SIGNIFICANT_ERRORS = 3.0  # standard errors between the slope and 0, below which growth tells nothing of labels
_CHANCE_FACTOR = 2.0  # times the mean square by chance, up to which a difference may be chance
_MAX_RELATIVE_SPREAD = 2.0  # to that of simulated clients; above it, clients trained differently
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class _BiasGrowth:
    """Growth of the last bias of the other clients in one round.

    Attributes:
        seen: The round.
        others: By pseudonym, growth (K,) of each other client minus their mean, in units of `spread`.
        mean: (K,) the mean growth of the other clients.
        spread: The root mean square of their growth minus its mean.
    """

    seen: SeenRound
    others: Mapping[str, Tensor]
    mean: Tensor
    spread: float

    @classmethod
    def of(cls, seen: SeenRound) -> Self:
        growth = {
            name: _growth(seen.simulator, artifact, seen.received_models[name])
            for name, artifact in seen.others.items()
        }
        growth_rows = torch.stack(list(growth.values()))
        mean = growth_rows.mean(0)
        spread = max(_TINY, float((growth_rows - mean).square().mean().sqrt()))
        return cls(
            seen, {name: (client_growth - mean) / spread for name, client_growth in growth.items()}, mean, spread
        )

    @property
    def observed(self) -> Tensor:
        """(K,): standardised growth of the observed client, shortened to the longest growth of the others: training on images
        that no client trained on changes a model more.
        """
        standardised = (self.observed_growth - self.mean) / self.spread
        longest = max(float(other.norm()) for other in self.others.values())
        return standardised * min(1.0, longest / max(_TINY, float(standardised.norm())))

    @property
    def starts_alike(self) -> bool:
        """Whether all clients, the observed one too, started training from the same last layer."""
        models = [self.seen.received_model, *self.seen.received_models.values()]
        started = list(
            {id(model): _received(self.seen.simulator, self.seen.artifact, model) for model in models}.values()
        )
        return all(torch.equal(layer, started[0]) for layer in started)

    @property
    def observed_growth(self) -> Tensor:
        """(K,): growth of the observed client."""
        return _growth(self.seen.simulator, self.seen.artifact, self.seen.received_model)


class _GrowthOnShares(NamedTuple):
    """Linear regression of bias growth on label shares, over simulated clients of one round.

    Attributes:
        slope: Growth per share.
        clear: Whether the slope is significantly above 0.
        level: (K,) the shares at which no bias grows.
        spread: The root mean square of the clients' growth minus its mean.
        noise: The root mean square of the residuals.
        noise_of_equal: The same for a client with the mean shares; at least 0.
        noise_by_share: How the mean square of a client's residuals grows with that of its shares minus their mean.
        clients: Number of simulated clients.
    """

    slope: float
    clear: bool
    level: Tensor
    spread: float
    noise: float
    noise_of_equal: float
    noise_by_share: float
    clients: int

    @classmethod
    def of(cls, adversary: Adversary, seen: SeenRound, count: int, size: int) -> Self:
        """Simulates `count` clients of `size` images in this round."""
        growth, shares = _simulated_clients(adversary, seen, count, size)
        y, x = growth - growth.mean(0), shares - shares.mean(0)
        squares = float(x.square().sum().clamp_min(_TINY))
        slope = float((x * y).sum()) / squares
        residuals = (y - slope * x).square()
        degrees_of_freedom = (count - 1) * adversary.classes - 1
        noise = float(residuals.sum() / degrees_of_freedom) ** 0.5
        variance_of_equal, by_share = _line(x.square().mean(1), residuals.sum(1) * count / degrees_of_freedom)
        return cls(
            slope=slope,
            clear=slope > _SIGNIFICANT_ERRORS * noise / squares**0.5 + _TINY,
            level=(shares.mean(0) - growth.mean(0) / max(slope, _TINY)).float(),
            spread=float(y.square().mean().sqrt()),
            noise=noise,
            noise_of_equal=variance_of_equal**0.5,
            noise_by_share=by_share,
            clients=count,
        )

    def reliability(self, spread: float) -> float:
        """The share of the variance of clients' growth, the square of `spread`, that is due to their labels, in [0, 1].

        Simulated clients have more skewed labels than most recorded ones, and the more skewed, the larger their residuals:
        the noise is that of clients whose shares differ as much as the recorded clients' do.
        """
        of_shares = max(0.0, spread**2 - self.noise_of_equal**2) / (self.slope**2 + self.noise_by_share)
        return min(1.0, self.slope**2 * of_shares / max(_TINY, spread**2))

    def shrunk_shares(self, growth: Tensor, mean: Tensor, spread: float) -> Tensor | None:
        """(K,): label shares by the growth of one client, shrunk to the clients' mean; None where growth tells nothing.

        Args:
            growth: (K,), of a client of the simulated number of images.
            mean: (K,) shares of the clients.
            spread: Root mean square of the clients' shares minus their mean.
        """
        if not self.clear:
            return None
        error = (self.noise / self.slope) ** 2 * (1 + 1 / self.clients)
        return mean + spread**2 / max(_TINY, spread**2 + error) * (self.level + growth / self.slope - mean)


def _line(x: Tensor, y: Tensor) -> tuple[float, float]:
    """Intercept and slope, both at least 0, of y (N,) on x (N,) by least squares; the mean of y is on the line."""
    centred = x - x.mean()
    steepest = float(y.mean() / x.mean().clamp_min(_TINY))
    slope = min(steepest, max(0.0, float((centred * y).sum() / centred.square().sum().clamp_min(_TINY))))
    return max(0.0, float(y.mean() - slope * x.mean())), slope


def _simulated_clients(adversary: Adversary, seen: SeenRound, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Bias growth (N, K) and label shares (N, K) of N = `count` clients of `size` images, simulated in this round.

    They start in turn from each of the models that the other clients received.
    """
    received = list({id(seen.received_models[name]): seen.received_models[name] for name in seen.others}.values())
    clients = []
    for turn in range(count):
        model = received[turn % len(received)]
        simulate = partial(_simulate_growth, adversary, seen, turn, model, size)
        clients.append(adversary.cache.get((_simulate_growth, seen.number, turn, model, size), simulate))
    growth, shares = zip(*clients, strict=True)
    return torch.stack(growth).double(), torch.stack(shares).double()


def _simulate_growth(
    adversary: Adversary, seen: SeenRound, turn: int, model: ModelState, size: int
) -> tuple[Tensor, Tensor]:
    """Growth (K,) and label shares (K,) of a client of `size` images, simulated in this round from this model."""
    rng, domain = generator(adversary.seed, 61, seen.number, turn), adversary.domains[turn % len(adversary.domains)]
    artifact, labels = simulated_in_round(adversary, seen, domain, turn, size, model, rng)
    return _growth(seen.simulator, artifact, model), labels.bincount(minlength=adversary.classes) / len(labels)


def reads_last_layer(adversary: Adversary, observation: Observation) -> bool:
    """Whether the latest round has the last layers of several other clients, and the models that they received.

    Each client may have received another model: compared is how far training changes the layer.
    """
    latest = adversary.view(observation)[-1]
    has_received_models = latest.received_model is not None and latest.received_models.keys() == latest.others.keys()
    is_trained = isinstance(latest.simulator, TrainingSimulator | HeadSimulator)
    return is_trained and has_received_models and len(latest.others) >= MIN_OTHER_CLIENTS


def centred_shares(adversary: Adversary, observation: Observation, count: int) -> Tensor | None:
    """(K,): the label distribution of a whole client for which `reads_last_layer`; None where its growth tells nothing.

    Deviations of all rounds are weighted and shrunk by their reliability: by how well the other clients' growth agrees
    with that of early rounds, or, for a single round, by the noise of simulated clients. Simulated clients of the earliest
    round, where the model fits clients' images no better than public images, also give the growth per share, and the
    difference of the clients' mean shares from equal shares.
    Rounds in which clients differ by far more than simulated clients are left out: they trained in another way (LSI's
    clients pretrain before the first round). Where clients keep a last layer of their own, it grows by their shares in the
    round in which all start from the same layer; later it makes up for what it grew too far, so that growth of these rounds
    is left out, too, and how far the layers themselves have come apart is read where it is more reliable.
    The growth of a client that took more or fewer steps than the others is no deviation from theirs: of it the earliest
    round is read alone, by simulated clients of its number of images.

    Args:
        adversary: The adversary with its view of all rounds.
        observation: The observed artifact.
        count: Number of clients that are simulated in one round.
    """
    growths = [_BiasGrowth.of(seen) for seen in adversary.view(observation) if _has_growth(seen)]
    alike = [growth for growth in growths if growth.starts_alike]
    rounds, kept_layers = alike or growths, _kept_layers(growths[-1], alike) if growths else None
    without_growth = None if kept_layers is None else _of_kept(kept_layers, adversary.hedged_shares, observation)
    if kept_layers is not None and not alike:
        return without_growth
    while True:
        earliest = next((growth for growth in rounds if growth.seen.whole), None)
        if earliest is None:
            return without_growth
        calibration = _GrowthOnShares.of(adversary, earliest.seen, count, adversary.typical)
        if earliest.spread <= _MAX_RELATIVE_SPREAD * calibration.spread:
            break
        rounds = [growth for growth in rounds if growth.seen.number > earliest.seen.number]
    if not calibration.clear:
        return without_growth
    mean = _mean_shares(earliest, calibration)
    if kept_layers is not None and kept_layers.reliability > calibration.reliability(earliest.spread):
        return _of_kept(kept_layers, mean.float(), observation)
    if _takes_other_steps(adversary, earliest.seen.simulator, observation.n_images):
        of_its_size = _GrowthOnShares.of(adversary, earliest.seen, count, observation.n_images)
        shares = of_its_size.shrunk_shares(earliest.observed_growth, mean, earliest.spread / calibration.slope)
        return None if shares is None else as_shares(shares[None], torch.tensor([observation.n_images]))[0]
    if len(rounds) > 1:
        weights = _weights(
            _agreement(rounds), sum(growth.seen.number < earliest.seen.number + _EARLY_ROUNDS for growth in rounds)
        )
    else:
        weights = torch.tensor([max(_MIN_RELIABILITY, calibration.reliability(earliest.spread))])
    deviation = (weights[:, None] * torch.stack([growth.observed for growth in rounds])).sum(0)
    shares = mean + deviation * earliest.spread / calibration.slope
    return as_shares(shares[None], torch.tensor([observation.n_images]))[0]


def _of_kept(layers: LayerDeviations, mean: Tensor, observation: Observation) -> Tensor:
    """(K,): the label distribution by a layer that a client keeps, from the clients' `mean` shares."""
    return as_shares(layers.shares(mean, observation.n_images)[None], torch.tensor([observation.n_images]))[0]


def _takes_other_steps(adversary: Adversary, simulator: Simulator, n_images: int) -> bool:
    """Whether a client with this many images takes another number of training steps than a typical client."""
    if not isinstance(simulator, TrainingSimulator):
        return False
    return simulator.plain.steps(n_images) != simulator.plain.steps(adversary.typical)


def _mean_shares(earliest: _BiasGrowth, calibration: _GrowthOnShares) -> Tensor:
    """(K,): the clients' mean shares, shrunk to equal shares where the difference may be chance."""
    equal = torch.full_like(earliest.mean, 1 / len(earliest.mean))
    difference = calibration.level + earliest.mean / calibration.slope - equal
    chance = (calibration.noise / calibration.slope) ** 2 * (1 / calibration.clients + 1 / len(earliest.others))
    return equal + difference * max(0.0, 1 - _CHANCE_FACTOR * chance / max(_TINY, float(difference.square().mean())))


def _agreement(rounds: Sequence[_BiasGrowth]) -> Tensor:
    """(R, R): the mean product of a client's growth in two rounds, over the clients of both rounds."""
    names = sorted({name for growth in rounds for name in growth.others})
    absent = torch.zeros_like(rounds[0].mean)
    rows = torch.stack([torch.stack([growth.others.get(name, absent) for name in names]) for growth in rounds])
    known = torch.tensor([[name in growth.others for name in names] for growth in rounds]).to(rows)
    agreement = torch.einsum("rnk,snk->rs", rows, rows) / rows.shape[2] / (known @ known.T).clamp_min(1)
    return agreement.fill_diagonal_(1)


def _weights(agreement: Tensor, early: int) -> Tensor:
    """(R,): weights with which the sum of the rounds' growth has the least error about the first round's growth by labels.

    Agreement of the early rounds is due to labels; later the models fit the clients' images, and neighbouring rounds agree
    for other reasons. A round's correlation with the growth due to labels gives its noise, by which it is weighted.

    Args:
        agreement: (R, R), by `_agreement`.
        early: Number of early rounds.
    """
    early = max(2, early)
    off_diagonal = agreement - agreement.diag().diag()
    n_pairs = early - (torch.arange(len(agreement)) < early).float()
    reliability = max(_MIN_RELIABILITY, float(off_diagonal[:early, :early].sum()) / (early * (early - 1)))
    correlations = (off_diagonal[:early].sum(0) / n_pairs / reliability**0.5).clamp(0.0, _MAX_CORRELATION)
    precisions = correlations / (1 - correlations.square())
    weights: Tensor = correlations[0] * precisions / (1 + (correlations * precisions).sum())
    return weights


def _has_growth(seen: SeenRound) -> bool:
    """Whether this round has the last layers of the observed client and of several other clients."""
    if len(seen.others) < MIN_OTHER_CLIENTS or seen.received_model is None:
        return False
    name = _bias_name(seen.simulator, seen.artifact)
    return all(name in artifact.tensors() for artifact in (seen.artifact, *seen.others.values()))


def _layer_names(simulator: Simulator, artifact: Artifact) -> Sequence[str]:
    """The names of the last layer's weight, and of its bias if it has one, in artifacts of this simulator."""
    if isinstance(simulator, TrainingSimulator):
        return simulator.last_layer
    assert isinstance(simulator, HeadSimulator)
    classes = simulator.federation.classes
    return [name for name, tensor in artifact.tensors().items() if tensor.ndim and len(tensor) == classes]


def _bias_name(simulator: Simulator, artifact: Artifact) -> str:
    """The name of the last layer's bias in artifacts of this simulator; of its weight where it has no bias."""
    return _layer_names(simulator, artifact)[-1]


def _kept_layers(latest: _BiasGrowth, alike: Sequence[_BiasGrowth]) -> LayerDeviations | None:
    """The last layers of the latest round, where clients keep them from round to round; else None.

    Clients keep them if they are sent alone and differ before training, or if they were alike in an earlier round.

    Args:
        latest: The growth in the latest round.
        alike: That in each round in which all layers were alike before training.
    """
    seen = latest.seen
    is_kept = latest not in alike and (bool(alike) or isinstance(seen.simulator, HeadSimulator))
    if not is_kept or isinstance(seen.artifact, ModelUpdate):
        return None
    names = _layer_names(seen.simulator, seen.artifact)
    layers = [[artifact.tensors()[name] for name in names] for artifact in (seen.artifact, *seen.others.values())]
    growth = []
    if alike and alike[0].others.keys() >= seen.others.keys():
        growth = [alike[0].observed, *(alike[0].others[name] for name in seen.others)]
    return LayerDeviations.of(layers[0], layers[1:], growth)


def _growth(simulator: Simulator, artifact: Artifact, received_model: ModelState | None) -> Tensor:
    """(K,): trained minus received bias of the last layer; where it has no bias, its weights' growth summed by class."""
    name = _bias_name(simulator, artifact)
    trained = artifact.tensors()[name].float()
    if isinstance(artifact, ModelUpdate):
        return bias_change({name: -trained}, (name,))
    return bias_change({name: trained - _received(simulator, artifact, received_model)}, (name,))


def _received(simulator: Simulator, artifact: Artifact, received_model: ModelState | None) -> Tensor:
    """The last layer of the received model that this artifact's growth is measured from: its bias, else its weight."""
    assert received_model is not None
    name = _bias_name(simulator, artifact)
    return received_model.state[name if isinstance(simulator, TrainingSimulator) else HEAD + name].float()
