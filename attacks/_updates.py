"""Reads labels, batch statistics and prior images from clients' updates, from which the inversions start.

The bias of class c in the last layer changes by the mean of p_c - y_c over the batch. For a single image only its
label's entry is negative (Zhao et al., "iDLG", 2020). For several, label counts solve a linear system whose matrix, the
mean probabilities by true class, and whose scale are estimated on public images (Geng et al., "Towards general deep
leakage in FL", 2021).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.moments import Moments
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.results.utility import logits
from fdgpriv.targets.training import TrainingSimulator
from fdgpriv.utils.seeds import generator

from ._batchnorm import batches_seen, bn_layers, revealed, shares_statistics
from ._inversion import ImagePrior, Regression, bias_change, moment_rows, one_hot, row_of_class
from ._simulation import layer_inputs

_LOOKED_AT = 300  # at most so many public images
_COMPARED = 20  # simulated updates by which regressions are compared


@dataclass(frozen=True, eq=False)
class Uploads:
    """G uploads of equally many images, trained from the same received model.

    Attributes:
        places: (G,) indices of the observations.
        changes: By parameter, received minus trained; none where nothing was trained.
        shares: (K,) inferred share of each label in each upload.
        labels: (G, m) of the m images to reconstruct.
        moments: By BatchNorm layer, mean and variance (G, C) that the buffers reveal.
        prior: (G, m, 3, H, W), images predicted from latents, or from labels and moments; to start from.
        own: Whether BatchNorm layers normalised by the batch's own statistics; else by their buffers.
    """

    places: Sequence[int]
    changes: Sequence[Mapping[str, Tensor]]
    shares: Sequence[Tensor]
    labels: Tensor
    moments: Mapping[str, Moments]
    prior: Tensor
    own: bool


def uploads(
    adversary: Adversary,
    simulator: TrainingSimulator,
    model: nn.Module,
    observations: Sequence[Observation],
    most: int,
    layers: slice,
    simulations: int,
    rng: torch.Generator,
) -> Iterator[Uploads]:
    """Groups the observations by received model and number of images; `model` holds the received model at each yield.

    Args:
        adversary, simulator: What the adversary has.
        model: The network, in evaluation mode.
        observations: All.
        most: At most so many images are reconstructed for one upload.
        layers: Which of the BatchNorm layers, in order, are used.
        simulations: Updates of single public images to learn from, over all received models.
        rng: Of the update that scales labels.
    """
    models = len({id(observation.received_model) for observation in observations})
    for n_images, places, received_model in by_model_and_size(observations):
        received_model.load_into(model)
        after = [simulator.after(observations[i].artifact, received_model).state for i in places]
        changes = [simulator.change(observations[i].artifact, received_model) for i in places]
        # the number of batches is public; random artifacts have counters of 0
        batches = max(batches_seen(state, received_model.state) for state in after)
        revealed_moments = [revealed(model, state, received_model.state, batches) for state in after]
        moments = {
            name: _stacked([one[name] for one in revealed_moments]) for name in list(revealed_moments[0])[layers]
        }
        own = batches > 0 or not shares_statistics(received_model.state)
        estimator = LabelEstimator(adversary, model, received_model, n_images, rng)
        shares = [estimator(change) for change in changes]
        labels = torch.stack([labels_of(share, min(most, n_images)) for share in shares])
        names = tuple(list(bn_layers(model))[layers])
        learn = partial(LatentPrior, adversary, model, received_model, simulations // models, names)
        prior = adversary.cache.get((LatentPrior, received_model, simulations, names), learn)(changes, labels, moments)
        yield Uploads(places, changes, shares, labels, moments, prior, own)


class LatentPrior:
    """Predicts images from an update by the latents that the last layer's change tells.

    It is fitted on the latents that the received model has of public images, or on those that updates of clients with one
    public image each tell, whichever predicts images from such updates better: training of many steps, or on augmented
    images, tells other latents. A single image is predicted from the batch statistics that these updates reveal, too, where
    that predicts better.

    Args:
        adversary: Its public images, and how clients train.
        model: The network, holding the received model, in evaluation mode.
        received_model: What is trained.
        simulations: At most so many public images whose updates are simulated, each always with the same draws; with fewer
            than `_COMPARED`, none.
        layers: The BatchNorm layers whose statistics are used.
    """

    def __init__(
        self,
        adversary: Adversary,
        model: nn.Module,
        received_model: ModelState,
        simulations: int,
        layers: Sequence[str],
    ) -> None:
        images, labels = adversary.public_images
        self.layers, self.shape = layers, images.shape[1:]
        self.layer = adversary.simulator(TrainingSimulator).last_layer
        self.of_one: Regression | None = None
        latents = layer_inputs(model, model.get_submodule(self.layer[0].rpartition(".")[0]), images)
        known = torch.cat([latents, one_hot(labels, adversary.classes)], dim=1)
        if simulations < _COMPARED:
            self.regression = Regression(known, images)
            return
        some = torch.randperm(len(images), generator=generator(adversary.seed, 50))[:simulations]
        others = ~torch.isin(torch.arange(len(images)), some)
        of_latents, moments = self._of_updates(adversary, model, received_model, some)
        wanted = images[some]
        self.regression = Regression(of_latents, wanted)
        error = self.regression.left_out_error
        if int(others.sum()) >= _COMPARED:
            plain = Regression(known[others], images[others])
            if (error_of_plain := plain.error(of_latents, wanted)) <= error:
                self.regression, error = Regression(known, images), error_of_plain
        if moments is not None:
            of_both = Regression(torch.cat([of_latents, moments], dim=1), wanted)
            if of_both.left_out_error < error:
                self.of_one = of_both

    def _of_updates(
        self, adversary: Adversary, model: nn.Module, received_model: ModelState, some: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """What a simulated update of each public image at `some` (S,) tells: its latent and class (S, D), and the batch
        statistics of all layers (S, E); None where they are not revealed.
        """
        simulator = adversary.simulator(TrainingSimulator)
        images, labels = adversary.public_images
        rows, seen = [], []
        for i in some:
            made = adversary.make(images, labels, i[None], generator(adversary.seed, 51, int(i)), received_model)
            rows.append(self._row(simulator.change(made, received_model), labels[i]))
            after = simulator.after(made, received_model).state
            told = revealed(model, after, received_model.state, batches_seen(after, received_model.state))
            seen.append({name: told[name] for name in self.layers if name in told})
        if not self.layers or any(len(one) < len(self.layers) for one in seen):
            return torch.stack(rows), None
        return torch.stack(rows), moment_rows({name: _stacked([one[name] for one in seen]) for name in self.layers})

    def __call__(
        self, changes: Sequence[Mapping[str, Tensor]], labels: Tensor, moments: Mapping[str, Moments]
    ) -> Tensor:
        """Images (G, m, 3, H, W) in [0, 1] with labels (G, m), predicted from changes (received minus trained) by parameter.

        Of several images of one class it is the same one, that of their mean latent.

        Args:
            changes: Of G clients.
            labels: Of the m images that each is to be drawn.
            moments: By layer, mean and variance (G, C); used where m is 1.
        """
        rows = torch.stack(
            [
                torch.stack([self._row(change, label) for label in some])
                for change, some in zip(changes, labels, strict=True)
            ]
        )
        regression, rows = self.regression, rows.flatten(0, 1)
        if self.of_one is not None and labels.shape[1] == 1 and moments.keys() >= set(self.layers):
            regression = self.of_one
            rows = torch.cat([rows, moment_rows({name: moments[name] for name in self.layers})], dim=1)
        return regression(rows).view(*labels.shape, *self.shape).clamp(0, 1)

    def _row(self, change: Mapping[str, Tensor], label: Tensor) -> Tensor:
        return row_of_class(change[self.layer[0]].flatten(1), bias_change(change, self.layer), label)


def recomputed_statistics(
    adversary: Adversary, model: nn.Module, observations: Sequence[Observation], most: int, layers: slice
) -> Iterator[Uploads]:
    """The same for BatchNorm statistics that clients recompute without training; labels are inferred from these too.

    Layers whose statistics equal the received ones are left out: they were not recomputed.
    """
    for n_images, places, received_model in by_model_and_size(observations):
        received_model.load_into(model)
        revealed_moments = [revealed(model, observations[i].artifact.tensors(), None, 0) for i in places]
        kept = {
            name
            for name, (mean, _) in revealed(model, received_model.state, None, 0).items()
            if any(torch.allclose(one[name][0], mean, rtol=1e-4, atol=1e-6) for one in revealed_moments)
        }
        names = [name for name in revealed_moments[0] if name not in kept][layers]
        moments = {name: _stacked([one[name] for one in revealed_moments]) for name in names}
        prior = adversary.cache.get((ImagePrior, received_model), partial(ImagePrior, adversary, model))
        shares = prior.shares(moments)
        labels = torch.stack([labels_of(share, min(most, n_images)) for share in shares])
        yield Uploads(places, [], list(shares), labels, moments, prior(moments, labels), True)


def by_model_and_size(observations: Sequence[Observation]) -> Iterator[tuple[int, list[int], ModelState]]:
    """Groups observations: number of images, indices of the observations, and received model of each group."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, observation in enumerate(observations):
        found[id(observation.received_model), observation.n_images].append(i)
    for (_, n_images), places in found.items():
        received_model = observations[places[0]].received_model
        assert received_model is not None
        yield n_images, places, received_model


def _stacked(moments: Sequence[Moments]) -> Moments:
    return torch.stack([mean for mean, _ in moments]), torch.stack([variance for _, variance in moments])


class LabelEstimator:
    """Estimates label shares from updates of one received model and one number of images.

    Args:
        adversary: Public images, and how clients train.
        model: The network, holding the received model, in evaluation mode.
        received_model: The same.
        images: Number of images of each update.
        rng: Of one simulated update.
    """

    def __init__(
        self, adversary: Adversary, model: nn.Module, received_model: ModelState, images: int, rng: torch.Generator
    ) -> None:
        self.images, self.classes = images, adversary.classes
        simulator = adversary.simulator(TrainingSimulator)
        self.layer = simulator.last_layer
        if images == 1:
            return
        self.pull = adversary.cache.get((_pull, received_model), lambda: _pull(adversary, model))
        domain = max(adversary.held, key=len)
        index = torch.randperm(len(domain), generator=rng)[:images]
        simulated = adversary.make(domain.images, domain.labels, index, rng, received_model)
        known = self.pull @ _shares(domain.labels[index], adversary.classes)
        moved = bias_change(simulator.change(simulated, received_model), self.layer)
        self.scale = max(1e-12, float(known @ moved / known.square().sum().clamp_min(1e-12)))

    def __call__(self, change: Mapping[str, Tensor]) -> Tensor:
        """The share of each label (K,), summing to 1, estimated from a change (received minus trained)."""
        moved = bias_change(change, self.layer)
        if self.images == 1:
            return _shares(moved.argmin()[None], self.classes)
        weight = 10.0  # of the equation that the shares sum to 1
        system = torch.cat([self.pull, torch.full((1, self.classes), weight)]).double().numpy()
        target = torch.cat([moved / self.scale, torch.tensor([weight])]).double().nan_to_num(0, 0, 0).numpy()
        found, _ = nnls(system, np.clip(target, -1e3, 1e3))
        shares = torch.from_numpy(found).float()
        return shares / shares.sum().clamp_min(1e-9)


def labels_of(shares: Tensor, count: int) -> Tensor:
    """`count` labels in these shares (K,), by largest remainders, in ascending order."""
    exact = shares * count
    whole = exact.floor().long()
    missing = count - int(whole.sum())
    whole[(exact - whole).topk(max(0, missing)).indices] += 1
    return torch.repeat_interleave(torch.arange(len(shares)), whole)[:count]


def _shares(labels: Tensor, classes: int) -> Tensor:
    return labels.bincount(minlength=classes) / len(labels)


@torch.no_grad()
def _pull(adversary: Adversary, model: nn.Module) -> Tensor:
    """(K, K): column a is the mean of p - y over public images of class a; uniform p where there are none."""
    images, labels = (whole[:: -(-len(whole) // _LOOKED_AT)] for whole in adversary.public_images)
    probabilities = logits(model, images, images.device).softmax(1)
    rows = [
        probabilities[labels == label].mean(0)
        if (labels == label).any()
        else torch.full((adversary.classes,), 1 / adversary.classes)
        for label in range(adversary.classes)
    ]
    return torch.stack(rows).T - torch.eye(adversary.classes)
