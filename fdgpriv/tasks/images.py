"""Task: reconstruct an artifact's images.

A prediction is one image (3, H, W), compared with each true image; or a set (M, 3, H, W) in no order, matched to the true
images by one Hungarian assignment on squared error for all metrics. Of a set, at most as many images are scored as there are
true images.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.metrics.matching import pairs, squared_errors
from fdgpriv.metrics.perceptual import Perceptual
from fdgpriv.metrics.pixels import EXACT_DB, WINDOW, psnr_per_image, ssim_per_image
from fdgpriv.metrics.realism import fid, inception_score, kid
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.statistics.measured import Measured
from fdgpriv.tasks.average_look import AverageLook
from fdgpriv.tasks.image_baselines import image_baselines, known_mean
from fdgpriv.tasks.task import Baselines, Form, Predictions, Task
from fdgpriv.utils.seeds import generator

_PERCEPTUAL_IMAGES = 1  # images per artifact on which SSIM and LPIPS are computed
BATCH_SIZE = 64
PERCEPTUAL_BATCH = 8  # pairs compared by LPIPS: at 224 px VGG-16 takes .1 GB for each


class Images(Task):
    """A prediction is an image (3, H, W) in [0, 1], or a set of them (M, 3, H, W) in no order."""

    secret = "content"
    metric = "psnr"
    relevant = 1.0
    draws_images = True
    implied: ClassVar[tuple[Task, ...]] = (AverageLook(),)

    def forms(self, adversary: Adversary, truth: GroundTruth) -> tuple[Form, ...]:
        return ((3, *truth.source.shape[2:]), (None, 3, *truth.source.shape[2:]))

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        return psnr(predictions, truths)

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        details = {"exact_matches": exact_matches(predictions, truths)}
        if truths and truths[0].images.shape[-1] >= WINDOW:  # SSIM has no value for images smaller than its window
            details["ssim"] = ssim(predictions, truths)
        details["identified"] = identified(predictions, truths)
        details |= lpips(predictions, truths)
        if all(isinstance(prediction, Labelled) for prediction in predictions):
            details["labels_right"] = labels_right(predictions, truths)
        return details

    def prior_prediction(self, adversary: Adversary, like: Prediction, domain: str | None) -> Prediction:
        """The mean of the adversary's images of this domain, or of all its images, repeated for each image of `like`."""
        mean = known_mean(adversary, domain).expand_as(like)
        return Labelled.of(mean, adversary.public_shares) if isinstance(like, Labelled) else mean

    def blend(self, prediction: Prediction, prior_prediction: Prediction, weight: float) -> Prediction:
        images = weight * prediction + (1 - weight) * prior_prediction
        if not isinstance(prediction, Labelled) or not isinstance(prior_prediction, Labelled):
            return images
        return Labelled.of(images, weight * prediction.shares + (1 - weight) * prior_prediction.shares)

    def of_set(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
        return realism(predictions, truths)

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        """Noise, and the means of the public images: of all, of each domain and of each class.

        If predictions are sets, baselines are sets of the same size, and sets of class means are added.
        """
        baselines = image_baselines(adversary, predictions.set_size, rng)
        if isinstance(predictions[0], Labelled):
            shares = adversary.public_shares
            baselines = {name: [Labelled.of(image, shares) for image in images] for name, images in baselines.items()}
        return baselines


def psnr(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """Mean PSNR (M,) in decibels of each prediction against the artifact's images, at most EXACT_DB for each pair."""
    return _paired(predictions, truths, None, lambda a, b: psnr_per_image(a, b).clamp_max(EXACT_DB))


def exact_matches(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """The share (M,) of each prediction's pairs with an RMS error of at most 1e-3, which have EXACT_DB in `psnr`."""
    return _paired(predictions, truths, None, lambda a, b: psnr_per_image(a, b) >= EXACT_DB)


def ssim(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """Mean SSIM (M,) of each reconstruction against the first image of its artifact; of a set, over its pairs."""
    return _paired(predictions, truths, _PERCEPTUAL_IMAGES, lambda a, b: ssim_per_image(a, b, torch.float32))


def lpips(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
    """By name of a perceptual distance, its mean (M,) over the pairs of `ssim`."""
    return {
        network.name: _paired(predictions, truths, _PERCEPTUAL_IMAGES, partial(_distances, network))
        for network in truths[0].metric_networks.distances
    }


def identified(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """Whether (M,) the true image is nearest to the prediction, by squared error, among the first line-up."""
    nearest_is_truth = [
        t.positions[0] == _nearest(t.line_up, _scored_images(p, t)) for p, t in zip(predictions, truths, strict=True)
    ]
    return torch.stack(nearest_is_truth).float()


def _nearest(candidates: Tensor, images: Tensor) -> int:
    """Index of the candidate that is nearest to any of the images, in single precision."""
    return int(squared_errors(candidates, images, torch.float32).amin(1).argmin())


def realism(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Measured]:
    """KID, FID and IS of all reconstructions of single images; empty for larger artifacts."""
    if any(len(truth.index) != 1 for truth in truths):
        return {}
    networks = truths[0].metric_networks
    extractor = networks.extractor
    scored = [_scored_images(prediction, truth) for prediction, truth in zip(predictions, truths, strict=True)]
    images = networks.fitted(torch.cat(scored))
    reference = networks.fitted(torch.cat([truth.images for truth in truths]))
    scores = [fid(images, reference, extractor), kid(images, reference, extractor, generator(0))]
    scores += inception_score(images, extractor).values()
    return {score.name: score.measured for score in scores}


@torch.no_grad()
def _distances(network: Perceptual, images: Tensor, truth: Tensor) -> Tensor:
    """(N,): the perceptual distances of images and true images (N, 3, H, W) in [0, 1]."""
    parts = zip((2 * images - 1).split(PERCEPTUAL_BATCH), (2 * truth - 1).split(PERCEPTUAL_BATCH), strict=True)
    return torch.cat([network(*part) for part in parts])


def _paired(
    predictions: Sequence[Prediction],
    truths: Sequence[GroundTruth],
    max_images: int | None,
    metric: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """(M,): the mean of the metric (N,) over the pairs of each prediction, with at most `max_images` true images each."""
    means = []
    for images, truth, counts in _pairs(predictions, truths, max_images):
        means += [part.double().mean() for part in metric(images, truth).split(counts)]
    return torch.stack(means)


def _pairs(
    predictions: Sequence[Prediction], truths: Sequence[GroundTruth], max_images: int | None
) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
    """Batches of predicted images, the true images to compare them with, and the number of pairs of each prediction."""
    for start in range(0, len(predictions), BATCH_SIZE):
        batch = slice(start, start + BATCH_SIZE)
        pairs_of_images = [
            _pair(prediction, truth.images, max_images)
            for prediction, truth in zip(predictions[batch], truths[batch], strict=True)
        ]
        predicted, true = zip(*pairs_of_images, strict=True)
        yield torch.cat(predicted), torch.cat(true), [len(images) for images in true]


def _pair(prediction: Prediction, truth: Tensor, max_images: int | None) -> tuple[Tensor, Tensor]:
    """Predicted images and their true images, one row for each pair; a set is matched without a limit."""
    if prediction.ndim == 4:
        return pairs(prediction, truth)
    return prediction.expand_as(truth[:max_images]), truth[:max_images]


def _scored_images(prediction: Prediction, truth: GroundTruth) -> Tensor:
    """The images of the prediction that are scored, (M, 3, H, W)."""
    return prediction[None] if prediction.ndim == 3 else prediction[: len(truth.index)]


class Labelled(Tensor):
    """Reconstructed images with inferred label shares; any computation with them gives plain tensors."""

    shares: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def of(cls, images: Tensor, shares: Tensor) -> "Labelled":
        """These images, with the inferred share of each label (K,) among the artifact's images."""
        labelled = images.as_subclass(cls)
        labelled.shares = shares
        return labelled


def labels_right(predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
    """The share (M,) of correctly inferred labels: 1 minus half the L1 error of the label distribution."""
    inferred = [prediction.shares for prediction in predictions if isinstance(prediction, Labelled)]
    errors = [(shares - truth.histogram).abs().sum() for shares, truth in zip(inferred, truths, strict=True)]
    return 1 - torch.stack(errors) / 2
