"""Label shares from the changes of the last layer's bias, centred over the clients of each round that an adversary sees.

The bias of class c grows in a client's training by the client's share of the class, less what the model predicts, times a
factor of the learning rate and the steps (Wainakh et al., "User-level label leakage from gradients", PoPETs 2022). What
the model predicts is alike for clients of one round, so that the mean over the other clients takes it away. What remains is
the deviation of a client's shares from the mean of the clients, with noise that differs from round to round.
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
from ._simulation import ALPHAS, skewed

LEAST_OTHERS = 5  # other clients without which a mean over them says little
_EARLY = 6  # rounds in which a model knows clients' images hardly better than public ones
_MOST_DUE = 0.98  # correlation of one round's growth with what is due to labels, at most
_LEAST_RELIABLE = 0.02  # share of the variance of one round's growth that is due to labels
_CLEAR = 3.0  # standard errors of the slope from 0, below which growth says nothing of labels
_SURELY = 2.0  # times what chance alone gives, up to which a difference may be chance
_LONGER = 2.0  # times the spread of simulated clients, whose labels are skewed, beyond which clients trained otherwise
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class _Round:
    """Growth of the last bias of the other clients in one round.

    Attributes:
        seen: The round.
        others: By pseudonym, (K,) of each other client, less their mean, in units of `spread`.
        mean: (K,) the mean of the other clients.
        spread: The root mean square of their growth less their mean.
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
        rows = torch.stack(list(growth.values()))
        mean = rows.mean(0)
        spread = max(_TINY, float((rows - mean).square().mean().sqrt()))
        return cls(seen, {name: (row - mean) / spread for name, row in growth.items()}, mean, spread)

    @property
    def observed(self) -> Tensor:
        """(K,): the same of the observed client, cut to the longest of the others: images that no client trained on move a
        model further.
        """
        growth = _growth(self.seen.simulator, self.seen.artifact, self.seen.received_model)
        row = (growth - self.mean) / self.spread
        longest = max(float(other.norm()) for other in self.others.values())
        return row * min(1.0, longest / max(_TINY, float(row.norm())))


class _Calibration(NamedTuple):
    """Linear regression of growth on label shares, over simulated clients of one round.

    Attributes:
        slope: Growth per share.
        clear: Whether the slope is surely above 0.
        level: (K,) the shares at which nothing grows.
        spread: The root mean square of their growth less its mean.
        noise: The root mean square of what the line leaves.
        clients: Number of simulated clients.
    """

    slope: float
    clear: bool
    level: Tensor
    spread: float
    noise: float
    clients: int

    @classmethod
    def of(cls, adversary: Adversary, seen: SeenRound, count: int) -> Self:
        received = list({id(seen.received_models[name]): seen.received_models[name] for name in seen.others}.values())
        growth, shares = [], []
        for turn in range(count):
            model = received[turn % len(received)]
            key = (_simulated, seen.number, turn, model)
            grown_by, share = adversary.cache.get(key, partial(_simulated, adversary, seen, turn, model))
            growth.append(grown_by)
            shares.append(share)
        grown, known = torch.stack(growth).double(), torch.stack(shares).double()
        y, x = grown - grown.mean(0), known - known.mean(0)
        squares = float(x.square().sum().clamp_min(_TINY))
        slope = float((x * y).sum()) / squares
        freedom = (count - 1) * adversary.classes - 1
        noise = float((y - slope * x).square().sum() / freedom) ** 0.5
        spread = float(y.square().mean().sqrt())
        clear = slope > _CLEAR * noise / squares**0.5 + _TINY
        return cls(slope, clear, (known.mean(0) - grown.mean(0) / max(slope, _TINY)).float(), spread, noise, count)


def _simulated(adversary: Adversary, seen: SeenRound, turn: int, model: ModelState) -> tuple[Tensor, Tensor]:
    """Growth (K,) and label shares (K,) of a client that is simulated in this round, and received this model."""
    rng, domain = generator(adversary.seed, 61, seen.number, turn), adversary.domains[turn % len(adversary.domains)]
    index = skewed(domain, adversary.classes, adversary.typical, ALPHAS[turn % len(ALPHAS)], rng)
    made = adversary.simulate(domain.images, domain.labels, index, rng, model, simulator=seen.simulator)
    return _growth(seen.simulator, made, model), domain.labels[index].bincount(minlength=adversary.classes) / len(index)


def reads_last_layer(adversary: Adversary, observation: Observation) -> bool:
    """Whether the round that is asked about has the last layers of several other clients, and the models they received.

    These may be models of their own: what differs is how far a client's training changes the layer.
    """
    last = adversary.view(observation)[-1]
    known = last.received_model is not None and last.received_models.keys() == last.others.keys()
    trained = isinstance(last.simulator, TrainingSimulator | HeadSimulator)
    return trained and known and len(last.others) >= LEAST_OTHERS


def centred_shares(adversary: Adversary, observation: Observation, count: int) -> Tensor | None:
    """(K,): the label distribution of a whole client that `reads_last_layer`; None where simulated ones tell nothing.

    Deviations of all rounds are weighted and shrunk by their reliability: by how far the other clients' rounds agree with
    the early ones, or of one round alone by what is noise in simulated clients'. These also tell growth per share, and how
    far the mean of the clients' shares is from equal, in the earliest round, where the model knows clients' images no
    better than public ones.
    Rounds in which clients differ by far more than simulated ones are left out: they trained in another way (LSI's
    clients pretrain before the first).

    Args:
        adversary: What it has.
        observation: The artifact.
        count: Number of clients that are simulated in one round.
    """
    rounds = [_Round.of(seen) for seen in adversary.view(observation) if _has_growth(seen)]
    while True:
        first = next((of_round for of_round in rounds if of_round.seen.whole), None)
        if first is None:
            return None
        known = _Calibration.of(adversary, first.seen, count)
        if first.spread <= _LONGER * known.spread:
            break
        rounds = [of_round for of_round in rounds if of_round.seen.number > first.seen.number]
    if not known.clear:
        return None
    if len(rounds) > 1:
        weights = _weights(_agreement(rounds), sum(r.seen.number < first.seen.number + _EARLY for r in rounds))
    else:
        weights = torch.tensor([min(1.0, max(_LEAST_RELIABLE, 1 - (known.noise / first.spread) ** 2))])
    deviation = (weights[:, None] * torch.stack([of_round.observed for of_round in rounds])).sum(0)
    shares = _mean_shares(first, known) + deviation * first.spread / known.slope
    return as_shares(shares[None], torch.tensor([observation.n_images]))[0]


def _mean_shares(first: _Round, known: _Calibration) -> Tensor:
    """(K,): the mean of the clients' shares: equal ones where what differs from these may be chance."""
    equal = torch.full_like(first.mean, 1 / len(first.mean))
    apart = known.level + first.mean / known.slope - equal
    chance = (known.noise / known.slope) ** 2 * (1 / known.clients + 1 / len(first.others))
    return equal + apart * max(0.0, 1 - _SURELY * chance / max(_TINY, float(apart.square().mean())))


def _agreement(rounds: Sequence[_Round]) -> Tensor:
    """(R, R): the mean product of a client's growth in two rounds, over the clients of both, in units of the spread."""
    table = torch.eye(len(rounds))
    for i, one in enumerate(rounds):
        for j, other in enumerate(rounds[:i]):
            products = [(row * other.others[name]).mean() for name, row in one.others.items() if name in other.others]
            table[i, j] = table[j, i] = torch.stack(products).mean() if products else 0.0
    return table


def _weights(agreement: Tensor, early: int) -> Tensor:
    """(R,): weights of the rounds' growth with which their sum errs least about what labels make grow in the first.

    What the early rounds agree in is due to labels; later the models know the clients' images, and neighbouring rounds
    agree in other things. A round's correlation with what is due to labels tells its noise, by which it is weighted.

    Args:
        agreement: (R, R) of the rounds.
        early: How many of them are early.
    """
    early = max(2, early)
    others = agreement - agreement.diag().diag()
    pairs = early - (torch.arange(len(agreement)) < early).float()
    single = max(_LEAST_RELIABLE, float(others[:early, :early].sum()) / (early * (early - 1)))
    due = (others[:early].sum(0) / pairs / single**0.5).clamp(0.0, _MOST_DUE)
    precise = due / (1 - due.square())
    weights: Tensor = due[0] * precise / (1 + (due * precise).sum())
    return weights


def _has_growth(seen: SeenRound) -> bool:
    """Whether the last layers of several other clients, and of the observed one, are in this round."""
    if len(seen.others) < LEAST_OTHERS or seen.received_model is None:
        return False
    name = _bias_of(seen.simulator, seen.artifact)
    return all(name in artifact.tensors() for artifact in (seen.artifact, *seen.others.values()))


def _bias_of(simulator: Simulator, artifact: Artifact) -> str:
    """The name of the last layer's bias in artifacts of this simulator; of its weight where it has none."""
    if isinstance(simulator, TrainingSimulator):
        return simulator.last_layer[-1]
    assert isinstance(simulator, HeadSimulator)
    classes = simulator.federation.classes
    return [name for name, tensor in artifact.tensors().items() if tensor.ndim and len(tensor) == classes][-1]


def _growth(simulator: Simulator, artifact: Artifact, received_model: ModelState | None) -> Tensor:
    """(K,): trained minus received bias of the last layer; where it has none, its weights' growth summed by class."""
    assert received_model is not None
    name = _bias_of(simulator, artifact)
    after = artifact.tensors()[name].float()
    if isinstance(artifact, ModelUpdate):
        return bias_change({name: -after}, (name,))
    start = received_model.state[name if isinstance(simulator, TrainingSimulator) else HEAD + name].float()
    return bias_change({name: after - start}, (name,))
