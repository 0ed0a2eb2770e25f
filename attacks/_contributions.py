"""Scores images by what each would contribute to a client's training, relative to other clients, over all rounds seen.

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

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.models.cpu_io import device_of
from fdgpriv.simulation.mixture import Mixture, Sent, identity, read
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.view import SeenRound

from ._batchnorm import (
    BATCH_SIZE,
    batches_seen,
    image_mean_squares,
    mean_squares,
    normalise_as_one_batch,
    revealed,
    shares_statistics,
)
from ._membership import RoundScorer, log_odds, pool_of, unions

_MAX_GRADIENT_ENTRIES = 2**23  # of all gradients that are computed at once: 32 MiB, which a processor's cache holds
_ARTIFACT_BATCH_SIZE = 256  # artifacts that are compared at once
_MAX_COMPARED_ENTRIES = 2**19  # of the compared parameters: in a larger network, the last ones
_RIDGE = 0.1  # times the number of candidates, of the regression on other clients' scores
_SHRINKAGE = 0.1  # added to the correlations of BatchNorm statistics
_MIN_DEVIATION = 1e-9


@dataclass(eq=False)
class RoundImages:
    """The candidate images under the model that clients received in one round.

    Attributes:
        simulator: The round's simulator.
        received_model: With all its tensors; where clients keep some of their own, with the mean of theirs.
        pool: (P,) indices of the images among all candidates, sorted.
        images: (P, 3, H, W), of one domain.
        labels: (P,), as far as the adversary knows.
        batched: Whether clients normalise by the statistics of their batches, which the images stand in for; else by the
            received model's.
    """

    simulator: TrainingSimulator
    received_model: ModelState
    pool: Tensor
    images: Tensor
    labels: Tensor
    batched: bool
    _started_from: dict[Hashable, ModelState] = field(default_factory=dict, init=False)
    _alignment_of: dict[Hashable, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)
    _statistics_of: dict[Hashable, tuple[Tensor, dict[str, Tensor]]] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def positions(self, candidates: Tensor) -> Tensor:
        """Positions (N,) of these candidates among the images."""
        return torch.searchsorted(self.pool, candidates)

    def register(self, sent: Sent, started_from: ModelState) -> None:
        """Tells which model the client of this artifact trained from."""
        for artifact in _unmixed(sent):
            self._started_from[identity(artifact)] = started_from

    def started_from(self, sent: Sent) -> ModelState:
        """The model that the client of this artifact trained from."""
        return self._started_from.get(identity(next(_unmixed(sent))), self.received_model)

    def align(self, sent: Sequence[Sent]) -> None:
        """Computes the `alignment` of these artifacts, and of each part of a mixture."""
        artifacts = {identity(artifact): artifact for shared in sent for artifact in _unmixed(shared)}
        with self._lock:
            missing = [artifact for key, artifact in artifacts.items() if key not in self._alignment_of]
            for start in range(0, len(missing), _ARTIFACT_BATCH_SIZE):
                batch = missing[start : start + _ARTIFACT_BATCH_SIZE]
                for artifact, column in zip(batch, self._compute_alignments(batch).T, strict=True):
                    first = next(iter(artifact.tensors().values()))  # stored, so that its id stays unique
                    self._alignment_of[identity(artifact)] = first, column.clone()

    def alignment(self, sent: Sent) -> Tensor:
        """(P,): inner products of the candidates' gradients, scaled to length 1, with received minus trained parameters."""
        if isinstance(sent, Mixture):
            return torch.lerp(self.alignment(sent.base), self.alignment(sent.leak), sent.weight)
        return self._alignment_of[identity(sent)][1]

    def _compute_alignments(self, artifacts: Sequence[Artifact]) -> Tensor:
        """The alignments (P, A) of A artifacts."""
        network = self._network
        compared = _last_parameters(network, self.received_model.state)
        updates = torch.empty(len(artifacts), sum(tensor.numel() for tensor in compared.values()))
        for row, artifact in zip(
            updates, artifacts, strict=True
        ):  # a change has all parameters, of which few are compared
            change = self.simulator.change(artifact, self.started_from(artifact))
            torch.cat([change[name].flatten() for name in compared], out=row)
        device = device_of(network)
        updates = updates.to(device)
        fixed: dict[str, Tensor] = dict(network.named_buffers())
        fixed |= {name: tensor.detach() for name, tensor in network.named_parameters() if name not in compared}

        def loss(values: Mapping[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(network, {**fixed, **values}, (image[None],))
            return nn.functional.cross_entropy(logits, label[None])

        gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
        alignments = []
        batch_size = max(1, _MAX_GRADIENT_ENTRIES // updates.shape[1])
        for images, labels in zip(self.images.split(batch_size), self.labels.split(batch_size), strict=True):
            by_name = gradients(compared, images, labels)
            per_image = torch.cat([by_name[name].flatten(1) for name in compared], dim=1).to(device)
            lengths = torch.linalg.vector_norm(per_image, dim=1, keepdim=True).clamp_min(_MIN_DEVIATION)
            alignments.append((per_image @ updates.T / lengths).cpu())
        return torch.cat(alignments).nan_to_num(0.0, 0.0, 0.0)

    @cached_property
    def _network(self) -> nn.Module:
        network = self.simulator.network().eval()
        if device_of(network).type != "cpu":  # there vmap knows no channels-last BatchNorm
            network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.received_model.load_into(network)
        if self.batched:
            normalise_as_one_batch(network, self.images[:: -(-len(self.images) // BATCH_SIZE)])
        return network

    @cached_property
    def statistics(self) -> dict[str, Tensor]:
        """By BatchNorm layer, the candidates' channel means and mean squares (P, 2C), in that layer's order."""
        by_layer = image_mean_squares(self._network, self.images, batch_statistics=False)
        return {name: rows.float() for name, rows in by_layer.items()}

    def whitened(self, index: Tensor) -> dict[str, Tensor]:
        """By BatchNorm layer, the deviations (N, 2C) of the candidates at `index` (N,), in units of their covariance.

        Their inner product with the difference between a client's statistics and the expected ones is, up to a factor, the
        log-likelihood ratio that the candidate is among the client's images.
        """
        deviations = {}
        for name, rows in self.statistics.items():
            centred = rows[index].double()
            centred = centred - centred.mean(0)
            scale = centred.square().mean(0).sqrt().clamp_min(_MIN_DEVIATION)
            centred = centred / scale
            covariance = centred.T @ centred / len(centred) + _SHRINKAGE * torch.eye(
                centred.shape[1], dtype=torch.float64
            )
            deviations[name] = torch.linalg.solve(covariance, centred.T).T / scale
        return deviations

    def revealed(self, sent: Sent) -> dict[str, Tensor]:
        """By BatchNorm layer, channel means and mean squares (2C,) of the client's batches; empty where buffers reveal none."""
        if isinstance(sent, Mixture):
            return self._read_statistics(sent.artifact(), self.started_from(sent))
        key = identity(sent)
        if key not in self._statistics_of:
            self._statistics_of[key] = (
                next(iter(sent.tensors().values())),
                self._read_statistics(sent, self.started_from(sent)),
            )
        return self._statistics_of[key][1]

    def _read_statistics(self, artifact: Artifact, started_from: ModelState) -> dict[str, Tensor]:
        """By BatchNorm layer, channel means and mean squares (2C,) that the buffers of an artifact reveal."""
        trained, received = self.simulator.after(artifact, started_from).state, started_from.state
        batch_moments = revealed(self._network, trained, received, batches_seen(trained, received))
        return {
            name: mean_squares(*moments).double().nan_to_num(0.0, 0.0, 0.0) for name, moments in batch_moments.items()
        }


def _last_parameters(network: nn.Module, shared: Container[str]) -> dict[str, Tensor]:
    """The last parameters by name, of those that are shared: at most `_MAX_COMPARED_ENTRIES` entries in all, but at least
    one parameter.
    """
    parameters: dict[str, Tensor] = {}
    for name, parameter in reversed(list(network.named_parameters())):
        if name not in shared:
            continue
        if parameters and sum(map(Tensor.numel, parameters.values())) + parameter.numel() > _MAX_COMPARED_ENTRIES:
            break
        parameters[name] = parameter.detach()
    return parameters


def _unmixed(sent: Sent) -> Iterator[Artifact]:
    """The artifacts that a shared artifact is mixed from."""
    if isinstance(sent, Mixture):
        yield from _unmixed(sent.base)
        yield from _unmixed(sent.leak)
    else:
        yield sent


def unexplained(scores: Tensor, others: Tensor) -> Tensor:
    """Residual (..., N), of mean 0, of a client's scores (..., N) after ridge regression on other clients' (..., O, N)."""
    scale = scores.double().std(-1, correction=0, keepdim=True).clamp_min(_MIN_DEVIATION)
    residual, references = standardised(scores), standardised(others)
    if count := references.shape[-2]:
        penalty = _RIDGE * references.shape[-1] * torch.eye(count, dtype=torch.float64)
        coefficients = torch.linalg.solve(references @ references.mT + penalty, references @ residual[..., None])
        residual = residual - (coefficients.mT @ references).squeeze(-2)
    return residual * scale


def standardised(scores: Tensor) -> Tensor:
    """Scores (..., N) minus their mean, in units of their standard deviation."""
    values = scores.double()
    centred = values - values.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp_min(_MIN_DEVIATION)


@dataclass(eq=False)
class Contributions(RoundScorer):
    """Scores candidates by gradients and BatchNorm statistics of all rounds and confidence of the last."""

    _requested: dict[tuple[RoundImages, Hashable], list[Tensor]] = field(default_factory=dict, init=False)
    _references: set[tuple[RoundImages, Hashable]] = field(default_factory=set, init=False)
    _observed: dict[tuple[RoundImages, Hashable], tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    def scores(self, observations: Sequence[Observation]) -> list[Tensor]:
        """A score (N,) of each observation's membership candidates: the sum over rounds and signals."""
        pools = unions([observation.membership_candidates for observation in observations])
        seen_rounds = [self.rounds_read(observation) for observation in observations]
        names = _names_by_round(seen_rounds)
        views = [
            self._comparable(observation, seen, names, pools)
            for observation, seen in zip(observations, seen_rounds, strict=True)
        ]
        sent_in_round: dict[RoundImages, list[Sent]] = {}
        same_candidates: dict[int, list[int]] = {}
        for i, (observation, view) in enumerate(zip(observations, views, strict=True)):
            same_candidates.setdefault(id(observation.membership_candidates), []).append(i)
            self._register_last_models(observation, view)
            for images, artifacts in view.items():
                sent_in_round.setdefault(images, []).extend((artifacts.observed, *artifacts.others))
        for images, sent in sent_in_round.items():
            images.align(sent)
        scores: dict[int, Tensor] = {}
        for indices in same_candidates.values():  # the whitened statistics are computed once for the same candidates
            candidates = observations[indices[0]].membership_candidates
            sums = {i: [torch.zeros(len(candidates), dtype=torch.float64) for _ in range(2)] for i in indices}
            for images in dict.fromkeys(images for i in indices for images in views[i]):
                index = images.positions(candidates)
                projections = Projections(images, images.whitened(index))
                for i in indices:
                    if images in views[i]:
                        sums[i][0] += views[i][images].alignment(images, index)
                        sums[i][1] += views[i][images].statistics(projections)
            for i in indices:
                sums[i].append(self._confidence(observations[i], views[i]))
                scores[i] = torch.stack([standardised(signal) for signal in sums[i]]).sum(0)
        return [scores[i].float() for i in range(len(observations))]

    def _confidence(self, observation: Observation, view: Mapping[RoundImages, "_RoundArtifacts"]) -> Tensor:
        """(N,): residual log-odds of the candidates' labels under the last round's model, given other clients' models."""
        images, artifacts = list(view.items())[-1]
        index = images.positions(observation.membership_candidates)
        observed = self._observed_logits(images, artifacts.observed, index)
        references = [self._pool_logits(images, sent)[index] for sent in artifacts.others]
        labels = self.outputs.labels(observation, observed)
        confidences = log_odds(torch.stack([observed, *references]), labels)
        return unexplained(confidences[0], confidences[1:])

    def _register_last_models(self, observation: Observation, view: Mapping[RoundImages, "_RoundArtifacts"]) -> None:
        """Registers which models of the last round are read, on which candidates, so that each is evaluated once."""
        images, artifacts = list(view.items())[-1]
        requested = self._requested.setdefault((images, identity(artifacts.observed)), [])
        requested.append(images.positions(observation.membership_candidates))
        self._references.update((images, identity(sent)) for sent in artifacts.others)

    def _observed_logits(self, images: RoundImages, sent: Sent, index: Tensor) -> Tensor:
        """Logits (N, K) of an observed model on the images at `index` (N,), after `_register_last_models`."""
        key = images, identity(sent)
        if key in self._references:
            return self._pool_logits(images, sent)[index]
        if key not in self._observed:
            union = torch.cat(self._requested[key]).unique()
            self._observed[key] = union, self._logits(images, sent, images.images[union])
        union, logits = self._observed[key]
        return logits[torch.searchsorted(union, index)]

    def _pool_logits(self, images: RoundImages, sent: Sent) -> Tensor:
        """Logits (P, K) on all candidate images of a model that serves as reference; cached.

        They depend on the model that the round's images are compared under only where it provides BatchNorm statistics.
        """
        source = self.outputs.statistics_source(images.received_model)
        key = (Contributions, identity(sent), id(source), images.pool.numpy().tobytes())
        # the artifact and `source` are stored so that their ids stay unique
        cached: tuple[object, Tensor] = self.adversary.cache.get(
            key, lambda: ((sent, source), self._logits(images, sent, images.images))
        )
        return cached[1]

    def _logits(self, round_images: RoundImages, sent: Sent, images: Tensor) -> Tensor:
        """Logits (M, K) of the model that was sent, on images (M, 3, H, W)."""
        model = round_images.simulator.after(read(sent), round_images.started_from(sent))
        return self.outputs.logits([model], images, round_images.received_model)[0]

    def _comparable(
        self,
        observation: Observation,
        seen_rounds: Sequence[SeenRound],
        names: Mapping[int, Sequence[str]],
        pools: Sequence[Tensor],
    ) -> dict[RoundImages, "_RoundArtifacts"]:
        """By round that is read, the observed artifact and those of other clients that received the same model.

        Args:
            observation: The observation.
            seen_rounds: Its rounds.
            names: By round, the names of all clients whose artifacts any observation's view has.
            pools: See `unions`.
        """
        by_round = {}
        pool = pool_of(observation, pools)
        for seen in seen_rounds:
            assert seen.received_model is not None
            common = self._common_model(seen, names[seen.number])
            comparable = {
                name: model
                for name, model in seen.received_models.items()
                if model is seen.received_model or (common is not None and name in seen.others)
            }
            images = self._round_images(seen, common or seen.received_model, pool)
            images.register(seen.sent, seen.received_model)
            for name, model in comparable.items():
                images.register(seen.others[name], model)
            by_round[images] = _RoundArtifacts(seen.sent, [seen.others[name] for name in comparable])
        return by_round

    def _common_model(self, seen: SeenRound, names: Sequence[str]) -> ModelState | None:
        """What clients received in this round, with the mean of what others kept of their own; None where all received the
        same or wholly different models.

        The mean is of a third of the clients at these `names`, the first third that this view has all of. A view lacks two
        clients at most (see `SeenRound.others`), so that three means serve all observations. Few clients are averaged all.
        """
        assert seen.received_model is not None
        others = seen.received_models
        if not mostly_alike(list({id(model): model for model in (seen.received_model, *others.values())}.values())):
            return None
        size = -(-len(names) // 3)
        thirds = [names[start : start + size] for start in range(0, len(names), size)]
        averaged = next((third for third in thirds if all(name in others for name in third)), sorted(others))
        models = [others[name] for name in averaged]
        key = (_mean_model, seen.number, *map(id, models))
        common: ModelState = self.adversary.cache.get(key, lambda: _mean_model(models))
        return common

    def _round_images(self, seen: SeenRound, received_model: ModelState, pool: Tensor) -> RoundImages:
        """The candidates at `pool` (P,) under this model in this round; computed once for inferences with the same labels."""
        simulator, started_from, labels = seen.simulator, seen.received_model, self.labels[pool]
        assert isinstance(simulator, TrainingSimulator)
        assert started_from is not None
        shared = next(_unmixed(seen.sent))
        batches = batches_seen(simulator.after(shared, started_from).state, started_from.state)
        batched = batches > 0 or not shares_statistics(received_model.state)
        key = (RoundImages, seen.number, id(received_model), pool.numpy().tobytes(), labels.numpy().tobytes(), batched)
        images: RoundImages = self.adversary.cache.get(
            key,
            lambda: RoundImages(simulator, received_model, pool, self.adversary.candidates[pool], labels, batched),
        )
        return images


def _names_by_round(views: Iterable[Sequence[SeenRound]]) -> dict[int, list[str]]:
    """By round, the sorted names of all clients whose artifacts any of these views has."""
    names: dict[int, set[str]] = {}
    for view in views:
        for seen in view:
            names.setdefault(seen.number, set()).update(seen.others)
    return {number: sorted(of_round) for number, of_round in names.items()}


def mostly_alike(models: Sequence[ModelState]) -> bool:
    """Whether these are several models, of which at least half of the entries are equal in all: those that a server sends."""
    if len(models) < 2:
        return False
    first, *others = (model.state for model in models)
    if any(state.keys() != first.keys() for state in others):
        return False
    entries = sum(tensor.numel() for tensor in first.values())
    equal = sum(
        tensor.numel()
        for name, tensor in first.items()
        if all(state[name] is tensor or torch.equal(state[name], tensor) for state in others)
    )
    return 2 * equal >= entries


def _mean_model(models: Sequence[ModelState]) -> ModelState:
    """The mean of the models' tensors; of counters, the first one's."""
    state = {
        name: torch.stack([model.state[name] for model in models]).mean(0) if tensor.is_floating_point() else tensor
        for name, tensor in models[0].state.items()
    }
    return replace(models[0], state=state)


@dataclass(eq=False)
class Projections:
    """Inner products of clients' statistics in one round with whitened candidates, computed once for each artifact.

    Attributes:
        images: The candidates in this round.
        whitened: By BatchNorm layer, (N, 2C).
    """

    images: RoundImages
    whitened: Mapping[str, Tensor]
    _projected: dict[Hashable, Tensor] = field(default_factory=dict, init=False)

    def of(self, sent: Sent) -> Tensor:
        """(L, N): by BatchNorm layer, the inner product of the artifact's statistics with each candidate."""
        key = identity(sent)
        if key not in self._projected:
            layers = [
                self.whitened[name] @ moments
                for name, moments in self.images.revealed(sent).items()
                if name in self.whitened
            ]
            self._projected[key] = torch.stack(layers) if layers else torch.empty(0)
        return self._projected[key]


@dataclass(frozen=True, eq=False)
class _RoundArtifacts:
    """A client's artifact of one round, and those of other clients."""

    observed: Sent
    others: Sequence[Artifact]

    def alignment(self, images: RoundImages, index: Tensor) -> Tensor:
        """(N,): residual alignment with the candidates at `index`, given the alignments of other clients' updates."""
        aligned = torch.stack([images.alignment(sent)[index] for sent in (self.observed, *self.others)])
        return standardised(unexplained(aligned[0], aligned[1:]))

    def statistics(self, projections: Projections) -> Tensor | float:
        """(N,): log-likelihood ratios of the candidates by statistics, over layers; 0 where none are revealed.

        Those of a layer are divided by their mean square, so that layers and rounds in which clients differ for other reasons
        than their images count less.
        """
        observed = projections.of(self.observed)
        if not len(observed):
            return 0.0
        others = [projections.of(sent) for sent in self.others]
        references = torch.stack(others, dim=1) if others else observed[:, None][:, :0]
        center = references.mean(1) if others else torch.zeros_like(observed)
        residual = unexplained(observed - center, references - center[:, None])
        return (residual / residual.square().mean(-1, keepdim=True).clamp_min(_MIN_DEVIATION)).sum(0)
