"""Scores images by what each would contribute to a client's training, relative to other clients, over all seen rounds.

A client's artifact of a round is compared with each candidate image in three ways:
* alignment: the inner product of its update with the candidate's normalised gradient at the received model;
* statistics: from the BatchNorm statistics of the client's own batches, which are solved for from the buffers before
  and after training, the log-likelihood ratio that the candidate is among the client's images;
* confidence: the log-odds of the candidate's label under the client's last model.
Where clients normalise by their batches, the candidates of a domain stand in for a batch, since the received model's
BatchNorm statistics are those of all domains.
Other clients' artifacts of the same round serve as references: what they predict of the client's scores, such as the
domain and the course of the training, is subtracted.
Reference: Zhu et al., "FedMIA", arXiv 2402.06289.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.models.cpu_io import device_of
from fdgpriv.simulation.mixture import Mixture, Sent, identity, read
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.cache import Cache
from fdgpriv.view import SeenRound, spaced

from ._batchnorm import TOGETHER, batches_seen, bn_layers, revealed, watched
from ._membership import ModelOutputs, log_odds, unions

_GRADIENTS = 2**25  # entries of all gradients that are computed at once
_UPDATES = 256  # artifacts that are compared at once
_ENTRIES = 2**19  # of a larger network, the last parameters are compared
_RIDGE = 0.1  # times the number of candidates, of the regression on other clients' scores
_SHRINKAGE = 0.1  # added to the correlations of BatchNorm statistics
_LEAST = 1e-9


@dataclass(eq=False)
class RoundImages:
    """The candidate images under the model that clients received in one round.

    Attributes:
        simulator: Of the round.
        received_model: With all its tensors.
        pool: (P,) indices of the images among all candidates, sorted.
        images: (P, 3, H, W), of one domain.
        labels: (P,), as far as the adversary knows.
        batched: Whether clients normalise by the statistics of their batches, which the images stand in for; else by the
            received model's.
        logits: By artifact, those (P, K) of the client's model.
    """

    simulator: TrainingSimulator
    received_model: ModelState
    pool: Tensor
    images: Tensor
    labels: Tensor
    batched: bool
    _aligned: dict[Hashable, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)
    _revealed: dict[Hashable, tuple[Tensor, dict[str, Tensor]]] = field(default_factory=dict, init=False)
    logits: Cache[Tensor] = field(default_factory=Cache, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def places(self, candidates: Tensor) -> Tensor:
        """Where among the images these candidates (N,) are."""
        return torch.searchsorted(self.pool, candidates)

    def align(self, sent: Sequence[Sent]) -> None:
        """Computes `alignment` of these artifacts, those that are mixed one by one."""
        new = {identity(one): one for mixed in sent for one in _parts(mixed)}
        with self._lock:
            rest = [one for name, one in new.items() if name not in self._aligned]
            for start in range(0, len(rest), _UPDATES):
                some = rest[start : start + _UPDATES]
                for one, column in zip(some, self._alignments(some).T, strict=True):
                    first = next(iter(one.tensors().values()))  # kept, so that its id stays unique
                    self._aligned[identity(one)] = first, column.clone()

    def alignment(self, sent: Sent) -> Tensor:
        """(P,): inner products of the candidates' gradients, scaled to length 1, with received minus trained parameters."""
        if isinstance(sent, Mixture):
            return torch.lerp(self.alignment(sent.base), self.alignment(sent.leak), sent.weight)
        return self._aligned[identity(sent)][1]

    def _alignments(self, artifacts: Sequence[Artifact]) -> Tensor:
        """The alignments (P, A) of A artifacts."""
        network = self._network
        compared = _last_parameters(network)
        changes = [self.simulator.change(artifact, self.received_model) for artifact in artifacts]
        wide = torch.stack([torch.cat([change[name].flatten() for name in compared]) for change in changes])
        device = device_of(network)
        wide = wide.to(device)
        rest: dict[str, Tensor] = dict(network.named_buffers())
        rest |= {name: tensor for name, tensor in network.named_parameters() if name not in compared}

        def loss(values: Mapping[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(network, {**rest, **values}, (image[None],))
            return nn.functional.cross_entropy(logits, label[None])

        gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
        columns = []
        together = max(1, _GRADIENTS // wide.shape[1])
        for images, labels in zip(self.images.split(together), self.labels.split(together), strict=True):
            by_name = gradients(compared, images, labels)
            flat = torch.cat([by_name[name].flatten(1) for name in compared], dim=1)
            columns.append((nn.functional.normalize(flat.to(device), dim=1) @ wide.T).cpu())
        return torch.cat(columns).nan_to_num(0.0, 0.0, 0.0)

    @cached_property
    def _network(self) -> nn.Module:
        network = self.simulator.network().eval()
        if device_of(network).type != "cpu":  # there vmap knows no channels-last BatchNorm
            network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.received_model.load_into(network)
        if self.batched:
            normalise_as_one_batch(network, self.images[:: -(-len(self.images) // TOGETHER)])
        return network

    @cached_property
    def statistics(self) -> dict[str, Tensor]:
        """By BatchNorm layer, the candidates' channel means and mean squares (P, 2C), in that layer's order."""
        by_layer: dict[str, list[Tensor]] = {}
        with torch.no_grad():
            for images in self.images.split(TOGETHER):
                with watched(self._network, len(images), own=False) as seen:
                    self._network(images)
                for name, moments in seen.items():
                    by_layer.setdefault(name, []).append(_mean_squares(*moments))
        return {name: torch.cat(rows).nan_to_num(0.0, 0.0, 0.0).float() for name, rows in by_layer.items()}

    def whitened(self, index: Tensor) -> dict[str, Tensor]:
        """By BatchNorm layer, the deviations (N, 2C) of the candidates at `index` (N,), in units of their covariance.

        Their inner product with what a client's statistics differ from expected ones is the log-likelihood ratio that
        the candidate is among the client's images, up to a factor.
        """
        found = {}
        for name, rows in self.statistics.items():
            rest = rows[index].double()
            rest = rest - rest.mean(0)
            unit = rest.square().mean(0).sqrt().clamp_min(_LEAST)
            rest = rest / unit
            covariance = rest.T @ rest / len(rest) + _SHRINKAGE * torch.eye(rest.shape[1], dtype=torch.float64)
            found[name] = torch.linalg.solve(covariance, rest.T).T / unit
        return found

    def revealed(self, sent: Sent) -> dict[str, Tensor]:
        """By BatchNorm layer, the same statistics (2C,) of the client's batches; empty where its buffers reveal none."""
        if isinstance(sent, Mixture):
            return self._revealed_by(sent.artifact())
        key = identity(sent)
        if key not in self._revealed:
            self._revealed[key] = next(iter(sent.tensors().values())), self._revealed_by(sent)
        return self._revealed[key][1]

    def _revealed_by(self, artifact: Artifact) -> dict[str, Tensor]:
        after, before = self.simulator.after(artifact, self.received_model).state, self.received_model.state
        found = revealed(self._network, after, before, batches_seen(after, before))
        return {name: _mean_squares(*moments).nan_to_num(0.0, 0.0, 0.0) for name, moments in found.items()}


@torch.no_grad()
def normalise_as_one_batch(network: nn.Module, images: Tensor) -> None:
    """Sets the BatchNorm buffers of a network in evaluation mode to the statistics of these images in training mode."""
    with watched(network, 1, own=True) as seen:
        network(images)
    for name, layer in bn_layers(network).items():
        if name in seen and layer.running_mean is not None and layer.running_var is not None:
            mean, variance = seen[name]
            layer.running_mean.copy_(mean[0])
            layer.running_var.copy_(variance[0])


def _mean_squares(mean: Tensor, variance: Tensor) -> Tensor:
    """Means and mean squares (..., 2C) of means and variances (..., C)."""
    return torch.cat([mean, variance + mean.square()], dim=-1).double()


def _last_parameters(network: nn.Module) -> dict[str, Tensor]:
    """The last parameters by name, as many as have `_ENTRIES` entries in all, at least one."""
    found: dict[str, Tensor] = {}
    for name, parameter in reversed(list(network.named_parameters())):
        if found and sum(map(Tensor.numel, found.values())) + parameter.numel() > _ENTRIES:
            break
        found[name] = parameter.detach()
    return found


def _parts(sent: Sent) -> Iterator[Artifact]:
    """The artifacts that are mixed in one that was shared."""
    if isinstance(sent, Mixture):
        yield from _parts(sent.base)
        yield from _parts(sent.leak)
    else:
        yield sent


def unexplained(scores: Tensor, others: Tensor) -> Tensor:
    """What a ridge regression on other clients' scores (O, N) leaves of a client's scores (N,); its mean is 0."""
    unit = scores.double().std(correction=0).clamp_min(_LEAST)
    own, theirs = _standardised(scores), _standardised(others)
    if len(theirs):
        gram = theirs @ theirs.T + _RIDGE * theirs.shape[1] * torch.eye(len(theirs), dtype=torch.float64)
        own = own - torch.linalg.solve(gram, theirs @ own) @ theirs
    return own * unit


def _standardised(scores: Tensor) -> Tensor:
    """Scores (..., N) less their mean, in units of their deviation."""
    wide = scores.double()
    rest = wide - wide.mean(-1, keepdim=True)
    return rest / rest.square().mean(-1, keepdim=True).sqrt().clamp_min(_LEAST)


@dataclass(eq=False)
class Contributions:
    """Scores the membership candidates of observed models or updates, by all rounds of each observation's view; used once.

    Attributes:
        adversary: Whose view it is.
        labels: (P,) of its candidate images, as far as it knows.
        outputs: Of models on its candidate images; the received models are evaluated.
        rounds: Rounds of each view that are read, at most: evenly spaced, the last one included.
    """

    adversary: Adversary
    labels: Tensor
    outputs: ModelOutputs
    rounds: int
    _asked: dict[tuple[RoundImages, Hashable], list[Tensor]] = field(default_factory=dict, init=False)
    _references: set[tuple[RoundImages, Hashable]] = field(default_factory=set, init=False)
    _known: dict[tuple[RoundImages, Hashable], tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    def scores(self, observations: Sequence[Observation]) -> list[Tensor]:
        """A score (N,) of each observation's membership candidates: the sum over rounds and signals."""
        pools = unions([observation.membership_candidates for observation in observations])
        views = [self._comparable(observation, pools) for observation in observations]
        of_round: dict[RoundImages, list[Sent]] = {}
        alike: dict[int, list[int]] = {}
        for i, (observation, view) in enumerate(zip(observations, views, strict=True)):
            alike.setdefault(id(observation.membership_candidates), []).append(i)
            self._note_last(observation, view)
            for images, seen in view.items():
                of_round.setdefault(images, []).extend((seen.own, *seen.others))
        for images, sent in of_round.items():
            images.align(sent)
        scores: dict[int, Tensor] = {}
        for places in alike.values():  # which the whitened statistics are shared by
            candidates = observations[places[0]].membership_candidates
            sums = {i: [torch.zeros(len(candidates), dtype=torch.float64) for _ in range(2)] for i in places}
            for images in dict.fromkeys(images for i in places for images in views[i]):
                index = images.places(candidates)
                projections = Projections(images, images.whitened(index))
                for i in places:
                    if images in views[i]:
                        sums[i][0] += views[i][images].alignment(images, index)
                        sums[i][1] += views[i][images].statistics(projections)
            for i in places:
                sums[i].append(self._confidence(observations[i], views[i]))
                scores[i] = torch.stack([_standardised(signal) for signal in sums[i]]).sum(0)
        return [scores[i].float() for i in range(len(observations))]

    def _confidence(self, observation: Observation, view: Mapping[RoundImages, "_Compared"]) -> Tensor:
        """(N,): log-odds of the candidates' labels under the last round's model, less what other clients' models predict."""
        images, seen = list(view.items())[-1]
        index = images.places(observation.membership_candidates)
        own = self._own_logits(images, seen.own, index)
        others = [self._pool_logits(images, one)[index] for one in seen.others]
        labels = self.outputs.labels(observation, own)
        columns = log_odds(torch.stack([own, *others]), labels)
        return unexplained(columns[0], columns[1:])

    def _note_last(self, observation: Observation, view: Mapping[RoundImages, "_Compared"]) -> None:
        """Notes which models of the last round are read, and on which candidates, so that each is evaluated once."""
        images, seen = list(view.items())[-1]
        asked = self._asked.setdefault((images, identity(seen.own)), [])
        asked.append(images.places(observation.membership_candidates))
        self._references.update((images, identity(one)) for one in seen.others)

    def _own_logits(self, images: RoundImages, sent: Sent, index: Tensor) -> Tensor:
        """Logits (N, K) of an observed model on the images at `index` (N,), after `_note_last`."""
        key = images, identity(sent)
        if key in self._references:
            return self._pool_logits(images, sent)[index]
        if key not in self._known:
            every = torch.cat(self._asked[key]).unique()
            self._known[key] = every, self._logits(images, sent, images.images[every])
        every, logits = self._known[key]
        return logits[torch.searchsorted(every, index)]

    def _pool_logits(self, images: RoundImages, sent: Sent) -> Tensor:
        """Logits (P, K) on all candidate images of a model that serves as reference; cached."""
        return images.logits.get(identity(sent), partial(self._logits, images, sent, images.images))

    def _logits(self, images: RoundImages, sent: Sent, some: Tensor) -> Tensor:
        """Logits (M, K) of the model that was sent, on some images (M, 3, H, W)."""
        model = images.simulator.after(read(sent), images.received_model)
        return self.outputs.logits([model], some, images.received_model)[0]

    def _comparable(self, observation: Observation, pools: Sequence[Tensor]) -> dict[RoundImages, "_Compared"]:
        """By whole round that is read, the observed artifact and those of other clients that received the same model."""
        found = {}
        pool = next(pool for pool in pools if bool(torch.isin(observation.membership_candidates[:1], pool)))
        known = [seen for seen in self.adversary.view(observation) if seen.whole and seen.received_model is not None]
        for seen in spaced(known, self.rounds):
            others = [
                artifact
                for name, artifact in seen.others.items()
                if seen.received_models.get(name) is seen.received_model
            ]
            found[self._round(seen, pool)] = _Compared(seen.sent, others)
        return found

    def _round(self, seen: SeenRound, pool: Tensor) -> RoundImages:
        """What is computed of this round for the candidates at `pool` (P,), once for all inferences with the same labels."""
        simulator, received_model, labels = seen.simulator, seen.received_model, self.labels[pool]
        assert isinstance(simulator, TrainingSimulator)
        assert received_model is not None
        shared = next(_parts(seen.sent))
        batched = batches_seen(simulator.after(shared, received_model).state, received_model.state) > 0
        key = (RoundImages, seen.number, id(received_model), pool.numpy().tobytes(), labels.numpy().tobytes(), batched)
        found: RoundImages = self.adversary.cache.get(
            key,
            lambda: RoundImages(simulator, received_model, pool, self.adversary.candidates[pool], labels, batched),
        )
        return found


@dataclass(eq=False)
class Projections:
    """Inner products of clients' statistics in one round with whitened candidates, computed once for each artifact.

    Attributes:
        images: The candidates in this round.
        whitened: By BatchNorm layer, (N, 2C).
    """

    images: RoundImages
    whitened: Mapping[str, Tensor]
    _known: dict[Hashable, dict[str, Tensor]] = field(default_factory=dict, init=False)

    def of(self, sent: Sent) -> dict[str, Tensor]:
        """By BatchNorm layer, the inner product (N,) of the artifact's statistics with each candidate."""
        key = identity(sent)
        if key not in self._known:
            revealed_by = self.images.revealed(sent)
            self._known[key] = {
                name: self.whitened[name] @ moments for name, moments in revealed_by.items() if name in self.whitened
            }
        return self._known[key]


@dataclass(frozen=True, eq=False)
class _Compared:
    """A client's artifact of one round, and those of other clients."""

    own: Sent
    others: Sequence[Artifact]

    def alignment(self, images: RoundImages, index: Tensor) -> Tensor:
        """(N,): of the update with the gradients of the candidates at `index`, less what other clients' updates predict."""
        aligned = torch.stack([images.alignment(sent)[index] for sent in (self.own, *self.others)])
        return _standardised(unexplained(aligned[0], aligned[1:]))

    def statistics(self, projections: Projections) -> Tensor | float:
        """(N,): log-likelihood ratios of the candidates by statistics, over layers; 0 where none are revealed."""
        of_clients = [projections.of(sent) for sent in (self.own, *self.others)]
        of_layers = [self._ratios([layers[name] for layers in of_clients]) for name in of_clients[0]]
        return torch.stack(of_layers).sum(0) if of_layers else 0.0

    def _ratios(self, projected: Sequence[Tensor]) -> Tensor:
        """(N,): by one layer's projections (N,) of every client, the observed one's first.

        In units of their mean square, so that layers and rounds in which clients differ by more than their images count
        less.
        """
        columns = torch.stack(list(projected))
        if len(columns) > 1:
            columns = columns - columns[1:].mean(0)
        rest = unexplained(columns[0], columns[1:])
        return rest / rest.square().mean().clamp_min(_LEAST)
