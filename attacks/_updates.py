"""Reads labels, batch statistics and prior images from clients' updates, from which the inversions start."""

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
from ._latent_prior import LatentPrior, of_one_step


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
    model: nn.Module,
    observations: Sequence[Observation],
    most: int,
    layers: slice,
    simulations: int,
) -> Iterator[Uploads]:
    """Groups the observations by received model and number of images; `model` holds the received model at each yield.

    Args:
        adversary: What it has.
        model: The network, in evaluation mode.
        observations: All.
        most: At most so many images are reconstructed for one upload.
        layers: Which of the BatchNorm layers, in order, are used.
        simulations: Updates of single public images to learn from, over all received models, and steps of updates of several.
    """
    simulator = adversary.simulator(TrainingSimulator)
    models = len({id(observation.received_model) for observation in observations})
    for n_images, places, received_model in by_model_and_size(observations):
        received_model.load_into(model)
        after = [simulator.after(observations[i].artifact, received_model).state for i in places]
        changes = [simulator.change(observations[i].artifact, received_model) for i in places]
        # the number of batches is public; random artifacts have counters of 0
        batches = max(batches_seen(state, received_model.state) for state in after)
        revealed_moments = [revealed(model, state, received_model.state, batches) for state in after]
        moments = {name: stacked([one[name] for one in revealed_moments]) for name in list(revealed_moments[0])[layers]}
        own = batches > 0 or not shares_statistics(received_model.state)
        estimator = LabelEstimator(adversary, received_model, n_images, simulations // models)
        shares = [estimator(observations[i].artifact) for i in places]
        labels = torch.stack([labels_of(share, min(most, n_images)) for share in shares])
        names = tuple(list(bn_layers(model))[layers])
        if n_images > 1 and batches == 1 and moments.keys() == bn_layers(model).keys():
            prior_images = of_one_step(adversary, model, changes, labels, moments)
        else:
            what = received_model, simulations // models, names, n_images == 1
            prior = adversary.cache.get((LatentPrior, *what), partial(LatentPrior, adversary, model, *what))
            prior_images = prior(changes, labels, moments)
        yield Uploads(places, changes, shares, labels, moments, prior_images, own)


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
        moments = {name: stacked([one[name] for one in revealed_moments]) for name in names}
        make = partial(_image_prior, adversary, model, received_model)
        prior = adversary.cache.get((ImagePrior, received_model), make)
        shares = prior.shares(moments) if moments else adversary.public_shares.expand(len(places), -1)
        labels = torch.stack([labels_of(share, min(most, n_images)) for share in shares])
        yield Uploads(places, [], list(shares), labels, moments, prior(moments, labels), True)


def _image_prior(adversary: Adversary, model: nn.Module, received_model: ModelState) -> ImagePrior:
    """Learned from the moments of each public image, as they leave the defense where it changes them."""
    if not adversary.defended:
        return ImagePrior(adversary, model)
    images, labels = adversary.public_images
    rows = []
    for i, one in enumerate(torch.arange(len(images)).split(1)):
        made = adversary.simulate(images, labels, one, generator(adversary.seed, 60, i), received_model)
        rows.append(revealed(model, made.tensors(), None, 0))
    return ImagePrior(adversary, model, {name: stacked([row[name] for row in rows]) for name in rows[0]})


def by_model_and_size(observations: Sequence[Observation]) -> Iterator[tuple[int, list[int], ModelState]]:
    """Groups observations: number of images, indices of the observations, and received model of each group."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, observation in enumerate(observations):
        found[id(observation.received_model), observation.n_images].append(i)
    for (_, n_images), places in found.items():
        received_model = observations[places[0]].received_model
        assert received_model is not None
        yield n_images, places, received_model


def labels_of(shares: Tensor, count: int) -> Tensor:
    """`count` labels in these shares (K,), by largest remainders, in ascending order."""
    exact = shares * count
    whole = exact.floor().long()
    missing = count - int(whole.sum())
    whole[(exact - whole).topk(max(0, missing)).indices] += 1
    return torch.repeat_interleave(torch.arange(len(shares)), whole)[:count]
