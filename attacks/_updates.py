"""Infers labels, batch statistics and prior images from clients' updates, as starting points of inversions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.moments import Moments, stacked
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator

from ._batch_labels import LabelEstimator
from ._batchnorm import batches_seen, bn_layers, revealed, shares_statistics
from ._inversion import ImagePrior
from ._latent_prior import LatentPrior, images_of_one_step


@dataclass(frozen=True, eq=False)
class Uploads:
    """G uploads of equally many images, trained from the same received model.

    Attributes:
        indices: (G,) positions of the uploads among the observations.
        changes: For each upload, received minus trained parameters by name; empty where nothing was trained.
        shares: For each upload, the inferred share (K,) of each label.
        labels: (G, m) labels of the m images to reconstruct.
        moments: By BatchNorm layer, mean and variance (G, C) that the buffers reveal.
        prior: (G, m, 3, H, W) images predicted from latents, or from labels and moments: starting points.
        batch_statistics: Whether BatchNorm layers normalised by the batch's statistics; else by their buffers.
    """

    indices: Sequence[int]
    changes: Sequence[Mapping[str, Tensor]]
    shares: Sequence[Tensor]
    labels: Tensor
    moments: Mapping[str, Moments]
    prior: Tensor
    batch_statistics: bool


def uploads(
    adversary: Adversary,
    model: nn.Module,
    observations: Sequence[Observation],
    max_images: int,
    layers: slice,
    simulations: int,
) -> Iterator[Uploads]:
    """Groups the observations by received model and number of images; `model` holds the received model at each yield.

    Args:
        adversary: The adversary with its public images and simulator.
        model: The network, in evaluation mode.
        observations: All observations to reconstruct images from.
        max_images: The largest number of images that are reconstructed for one upload.
        layers: The BatchNorm layers that are used, in the network's order.
        simulations: Number of single-image updates to learn from, over all received models; for several images, the number
            of simulated steps.
    """
    simulator = adversary.simulator(TrainingSimulator)
    per_model = simulations // len({id(observation.received_model) for observation in observations})
    for n_images, indices, received_model in by_model_and_size(observations):
        received_model.load_into(model)
        artifacts = [observations[i].artifact for i in indices]
        trained = [simulator.after(artifact, received_model).state for artifact in artifacts]
        # the number of batches is public; random artifacts have counters of 0
        batches = max(batches_seen(state, received_model.state) for state in trained)
        moments = _by_layer([revealed(model, state, received_model.state, batches) for state in trained], layers)
        estimator = LabelEstimator(adversary, received_model, n_images, per_model)
        shares = [estimator(artifact) for artifact in artifacts]
        labels = torch.stack([labels_of(share, min(max_images, n_images)) for share in shares])
        changes = [simulator.change(artifact, received_model) for artifact in artifacts]
        if n_images > 1 and batches == 1 and moments.keys() == bn_layers(model).keys():
            prior = images_of_one_step(adversary, model, changes, labels, moments)
        else:
            latent_prior = _latent_prior(adversary, model, received_model, per_model, layers, n_images == 1)
            prior = latent_prior(changes, labels, moments)
        batch_statistics = batches > 0 or not shares_statistics(received_model.state)
        yield Uploads(indices, changes, shares, labels, moments, prior, batch_statistics)


def _latent_prior(
    adversary: Adversary,
    model: nn.Module,
    received_model: ModelState,
    simulations: int,
    layers: slice,
    of_single_images: bool,
) -> LatentPrior:
    """The prior of these settings, learned once for each adversary."""
    settings = received_model, simulations, tuple(list(bn_layers(model))[layers]), of_single_images
    prior: LatentPrior = adversary.cache.get(
        (LatentPrior, *settings), partial(LatentPrior, adversary, model, *settings)
    )
    return prior


def _by_layer(uploads: Sequence[Mapping[str, Moments]], layers: slice) -> dict[str, Moments]:
    """By BatchNorm layer, the means and variances (G, C) of G uploads."""
    return {name: stacked([by_layer[name] for by_layer in uploads]) for name in list(uploads[0])[layers]}


def recomputed_statistics(
    adversary: Adversary, model: nn.Module, observations: Sequence[Observation], max_images: int, layers: slice
) -> Iterator[Uploads]:
    """As `uploads`, for BatchNorm statistics that clients recompute without training; labels are inferred from them too.

    Layers whose statistics equal the received statistics were not recomputed, and are left out.
    """
    for n_images, indices, received_model in by_model_and_size(observations):
        received_model.load_into(model)
        statistics = [revealed(model, observations[i].artifact.tensors(), None, 0) for i in indices]
        unchanged = {
            name
            for name, (mean, _) in revealed(model, received_model.state, None, 0).items()
            if any(torch.allclose(by_layer[name][0], mean, rtol=1e-4, atol=1e-6) for by_layer in statistics)
        }
        changed = [{name: by_layer[name] for name in by_layer if name not in unchanged} for by_layer in statistics]
        moments = _by_layer(changed, layers)
        create = partial(_image_prior, adversary, model, received_model)
        prior = adversary.cache.get((ImagePrior, received_model), create)
        shares = prior.shares(moments) if moments else adversary.public_shares.expand(len(indices), -1)
        labels = torch.stack([labels_of(share, min(max_images, n_images)) for share in shares])
        yield Uploads(indices, [], list(shares), labels, moments, prior(moments, labels), True)


def _image_prior(adversary: Adversary, model: nn.Module, received_model: ModelState) -> ImagePrior:
    """An image prior learned from the moments of each public image, as the defense releases them."""
    if not adversary.defended:
        return ImagePrior(adversary, model)
    images, labels = adversary.public_images
    rows = []
    for i, index in enumerate(torch.arange(len(images)).split(1)):
        statistics = adversary.simulate(images, labels, index, generator(adversary.seed, 60, i), received_model)
        rows.append(revealed(model, statistics.tensors(), None, 0))
    return ImagePrior(adversary, model, {name: stacked([row[name] for row in rows]) for name in rows[0]})


def by_model_and_size(observations: Sequence[Observation]) -> Iterator[tuple[int, list[int], ModelState]]:
    """Groups observations: number of images, indices of the observations, and received model of each group."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, observation in enumerate(observations):
        groups[id(observation.received_model), observation.n_images].append(i)
    for (_, n_images), indices in groups.items():
        received_model = observations[indices[0]].received_model
        assert received_model is not None
        yield n_images, indices, received_model


def labels_of(shares: Tensor, count: int) -> Tensor:
    """`count` labels (count,) in these shares (K,), by the largest-remainder method, in ascending order."""
    exact = shares * count
    counts = exact.floor().long()
    missing = count - int(counts.sum())
    counts[(exact - counts).topk(max(0, missing)).indices] += 1
    return torch.repeat_interleave(torch.arange(len(shares)), counts)[:count]
