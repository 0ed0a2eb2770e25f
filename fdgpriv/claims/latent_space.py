"""Precision and recall of latents synthesised from shared heads, relative to real latents (LSI, stage 2)."""

import torch
from torch import Tensor

from fdgpriv.artifacts.parameters import ClassifierHead
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.models.cpu_io import latents_of
from fdgpriv.simulation.head import SentHeadSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.utils.seeds import generator

CLIENTS = 5  # evaluated at most
NEIGHBOURS = 5


def latent_space(evaluator: Evaluator) -> dict[str, float]:
    """Means over at most 5 clients with more than 5 images, with their intervals as ``_low`` and ``_high`` and
    the number of clients as ``_n``; {} if no heads are shared.

    Each client's stage 1 is repeated from the same model and images with other random draws, to obtain its encoder.
    ``latent_precision`` and ``latent_recall`` are those of the synthesised latents among the real ones
    (Kynkäänniemi et al., NeurIPS 2019, k = 5), ``noise_precision`` and ``noise_recall`` of N(0, 1) in their place, and
    ``latent_gain`` the difference of both precisions.
    ``latent_mean_error`` and ``latent_var_error`` are relative errors of the latents' moments, as estimated from the
    head's running statistics without their initial values.
    """
    series = evaluator.artifact_series.get(ClassifierHead.kind)
    if series is None or not isinstance(series.simulator, SentHeadSimulator):
        return {}
    eligible = [name for name in series.clients if len(evaluator.population.data(name)) > NEIGHBOURS]
    rows = []
    for i, name in enumerate(eligible[:CLIENTS]):
        data = evaluator.population.data(name)
        images = ClientImages(data.images, data.labels, series.received_model[name])
        rows.append(_of_client(series.simulator, images, generator(evaluator.seed, 14, i)))
    figures: dict[str, float] = {}
    for name in rows[0] if rows else ():
        figures |= mean_interval([row[name] for row in rows]).named(name)
    return figures


def _of_client(simulator: SentHeadSimulator, images: ClientImages, rng: torch.Generator) -> dict[str, float]:
    """The figures of one client, whose stage 1 is repeated on its images."""
    head, model = simulator.trained(ClientSample.all_of(images), rng)
    real = latents_of(model, images.images)
    shared = simulator.defense.shared(head, rng, images.received_model)
    assert isinstance(shared, ClassifierHead)
    synthesised, _ = simulator.synthesised(shared, rng)
    sample = synthesised[torch.randperm(len(synthesised), generator=rng)[: len(real)]]
    precision, recall = precision_recall(sample, real)
    noise_precision, noise_recall = precision_recall(torch.randn(sample.shape, generator=rng), real)
    mean, variance = _moments(shared)
    return {
        "latent_precision": precision,
        "latent_recall": recall,
        "noise_precision": noise_precision,
        "noise_recall": noise_recall,
        "latent_gain": precision - noise_precision,
        "latent_mean_error": _relative(mean, real.mean(0)),
        "latent_var_error": _relative(variance, real.var(0)),
    }


def precision_recall(synthesised: Tensor, real: Tensor, neighbours: int = NEIGHBOURS) -> tuple[float, float]:
    """The share of `synthesised` (M, D) covered by `real` (N, D), and of `real` covered by `synthesised`.

    A point is covered by a set if it is no farther from one of its points than that point's `neighbours`-th nearest.
    """
    return _covered(synthesised, real, neighbours), _covered(real, synthesised, neighbours)


def _covered(points: Tensor, by: Tensor, neighbours: int) -> float:
    distances = torch.cdist(by, by).sort(dim=1).values
    reach = distances[:, min(neighbours, len(by) - 1)]  # the nearest is the point itself
    return float((torch.cdist(points, by) <= reach).any(1).float().mean())


def _moments(head: ClassifierHead) -> tuple[Tensor, Tensor]:
    """Mean and variance (p,) from PyTorch's running averages over t batches, without the initial values 0 and 1."""
    tensors = head.tensors()
    initial_weight = 0.9 ** float(tensors["norm.num_batches_tracked"])
    if initial_weight == 1:
        return tensors["norm.running_mean"], tensors["norm.running_var"]
    return tensors["norm.running_mean"] / (1 - initial_weight), (tensors["norm.running_var"] - initial_weight) / (
        1 - initial_weight
    )


def _relative(prediction: Tensor, truth: Tensor) -> float:
    return float((prediction - truth).norm() / truth.norm().clamp_min(1e-12))
