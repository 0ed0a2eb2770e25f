"""Utility of a trained model: accuracy on held-out source images and the target domain, and calibration error."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fdgpriv.data.pixels import as_images, joined
from fdgpriv.federation.partition import Population
from fdgpriv.federation.wire import Diverged
from fdgpriv.metrics.calibration import calibration_error
from fdgpriv.models.batchnorm import with_fresh_statistics
from fdgpriv.models.cpu_io import device_of
from fdgpriv.results.utility_finding import ClientUtility, PersonalUtility, Utility
from fdgpriv.statistics.interval import clopper_pearson, mean_interval
from fdgpriv.statistics.measured import Measured

BATCH = 64  # images


@torch.no_grad()
def logits(model: nn.Module, images: Tensor) -> Tensor:
    """Logits (N, K) of images (N, 3, H, W), uint8 or float32, with the model in evaluation mode.

    Small batches in channels-last format are up to three times as fast on a CPU.
    """
    device = device_of(model.eval())
    parts = (as_images(part).to(device, memory_format=torch.channels_last) for part in images.split(BATCH))
    return torch.cat([model(part).cpu() for part in parts])


def utility(model: nn.Module, population: Population, own_statistics: bool = False) -> Utility:
    """Utility of the global model: source accuracy over all held-out images, target accuracy and calibration error.

    Accuracies have Clopper-Pearson intervals over images for one trained model, not over seeds.

    Args:
        model: The global model.
        population: The evaluation data.
        own_statistics: For a federation that shares no BatchNorm statistics: each client recomputes those of the global
            model on its training images, and the target domain on its images.

    Raises:
        Diverged: Logits are not finite.
    """
    clients, target = population.clients.values(), population.target

    def evaluated(images: Tensor, like: Tensor | None) -> Tensor:
        if not len(images):
            return torch.zeros(0, 1)
        adapted = model if like is None else with_fresh_statistics(model, like, BATCH)
        return _finite_logits(adapted, images, "the global model")

    if own_statistics:
        source = torch.cat(
            [evaluated(data.held_out_pixels, data.pixels) for data in clients if len(data.held_out_labels)]
        )
    else:
        source = evaluated(joined([data.held_out_pixels for data in clients]), None)
    target_logits = evaluated(target.pixels, target.pixels if own_statistics else None)
    return Utility(
        source_accuracy=accuracy(source, torch.cat([data.held_out_labels for data in clients])),
        target_accuracy=accuracy(target_logits, target.labels),
        calibration_error=calibration_error(target_logits, target.labels).measured,
        chance=_chance(target.labels),
        recomputed_statistics=own_statistics,
    )


def mean_utility(clients: PersonalUtility, population: Population) -> Utility:
    """Utility of a training without a model for everyone: that of the clients' own models, as in `PersonalUtility`."""
    reason = "each client has a model of its own, and there is none for everyone"
    return Utility(
        source_accuracy=clients.source_accuracy,
        target_accuracy=clients.target_accuracy,
        calibration_error=Measured(value=None, direction="lower_better", reason=reason),
        chance=_chance(population.target.labels),
    )


def personal_utility(
    model_of: Callable[[str], nn.Module],
    clients: Sequence[str],
    population: Population,
    every: int = 1,
) -> PersonalUtility:
    """Utility of the clients' personal models.

    Args:
        model_of: Returns a client's model; called once per client, and used before the next call.
        clients: Names of the clients to evaluate.
        population: The evaluation data.
        every: Client i's model is evaluated on target images i, i + `every`, ... only; with fewer clients than `every` on
            more images, so that every image is used at least once.

    Returns: Source accuracy over the held-out images of these clients; target accuracy as the mean over target images of
        the mean over the models evaluated on it, with the interval over target images.

    Raises:
        Diverged: Logits of one of the models are not finite.
    """
    rows, held_out, images, labels = [], [], population.target.pixels, population.target.labels
    step = min(every, len(clients), len(labels))
    correct, evaluations = torch.zeros(2, len(labels), dtype=torch.float64)
    for i, name in enumerate(clients):
        model, data, part = model_of(name), population.clients[name], slice(i % step, None, step)
        owner = f"the model of {name}"
        source_hits = _finite_logits(model, data.held_out_pixels, owner).argmax(1) == data.held_out_labels
        target_hits = _finite_logits(model, images[part], owner).argmax(1) == labels[part]
        held_out.append(source_hits)
        correct[part] += target_hits
        evaluations[part] += 1
        source = float(source_hits.float().mean()) if len(source_hits) else None
        rows.append(
            ClientUtility(client=name, source_accuracy=source, target_accuracy=float(target_hits.float().mean()))
        )
    mean = mean_interval((correct / evaluations).numpy())
    interval = mean.ends and (max(0.0, mean.ends[0]), min(1.0, mean.ends[1]))
    return PersonalUtility(
        source_accuracy=_share(torch.cat(held_out)),
        target_accuracy=Measured(value=mean.value, ci95=interval, n=mean.n, direction="higher_better"),
        clients=tuple(rows),
    )


def _finite_logits(model: nn.Module, images: Tensor, owner: str) -> Tensor:
    outputs = logits(model, images)
    if not bool(torch.isfinite(outputs).all()):
        raise Diverged(f"{owner} gives logits that are not finite: training diverged; try a smaller lr")
    return outputs


def accuracy(logits: Tensor, labels: Tensor) -> Measured:
    """Accuracy with its exact (Clopper-Pearson) interval."""
    return _share(logits.argmax(1) == labels)


def no_utility(reason: str) -> Utility:
    """The utility of a training without a model."""
    figures = [
        Measured(value=None, direction=direction, reason=reason) for direction in ("higher_better", "lower_better")
    ]
    return Utility(source_accuracy=figures[0], target_accuracy=figures[0], calibration_error=figures[1])


def _chance(labels: Tensor) -> float | None:
    """Share of the most frequent of these labels (N,); None if there are none."""
    return float(labels.bincount().max()) / len(labels) if len(labels) else None


def _share(correct: Tensor) -> Measured:
    if not len(correct):
        return Measured(value=None, n=0, direction="higher_better", reason="no images")
    share = clopper_pearson(int(correct.sum()), len(correct))
    assert share.lower is not None
    assert share.upper is not None
    return Measured(value=share.value, ci95=(share.lower, share.upper), n=share.n, direction="higher_better")
