"""Predicts images from updates, by the inputs of a fully connected layer, which the change of its weights reveals.

The gradient of such a layer's weight (O, D) is the sum over images of the outer product of the bias's gradient (O,) and the
layer's input (D,): of a single image it gives the input exactly (Phong et al., "Privacy-preserving deep learning via
additively homomorphic encryption", 2018); of several, each row of the last layer is about the images of one class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.moments import Moments, stacked
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator

from ._batchnorm import batches_seen, layer_inputs, normalised_by, revealed
from ._inversion import RowRegression, bias_change, moment_rows, one_hot, row_of_class

_MIN_FITTED = 20  # updates or public images that a regression is fitted on
_ZERO = 1e-3  # times the mean input; smaller inputs are units that dropout or ReLU set to 0

ParameterChange = Mapping[str, Tensor]


class LatentPrior:
    """Predicts images from an update, by regression from the input of a fully connected layer that the update reveals.

    Regressions are fitted on the inputs that the received model computes for public images, or on the inputs that simulated
    updates of single public images reveal, which differ after many steps or on augmented images. They are compared by how
    well they predict images from such updates. Updates of several images reveal the last layer's input; updates of a single
    image also reveal the first fully connected layer's input, and the batch statistics.

    Args:
        adversary: The adversary with its public images and its simulator of training.
        model: The network with the received model's parameters, in evaluation mode.
        received_model: The model that clients train.
        simulations: The largest number of public images whose updates are simulated, each always with the same random
            numbers. Below 20 none is simulated, and the first fully connected layer is read where possible.
        layers: The BatchNorm layers whose statistics are used.
        single: Whether updates of one image are read; else updates of several images.
    """

    def __init__(
        self,
        adversary: Adversary,
        model: nn.Module,
        received_model: ModelState,
        simulations: int,
        layers: Sequence[str],
        single: bool,
    ) -> None:
        images, labels = adversary.public_images
        self.layers, self.shape = layers, images.shape[1:]
        last = adversary.simulator(TrainingSimulator).last_layer
        first = _first_linear(model, received_model, images) or last if single else last
        if simulations < _MIN_FITTED:
            reader, public_rows = _reader(first, last, model, adversary)
            self.best = self.without_moments = _LatentRegression(reader, RowRegression(public_rows, images))
            return
        selected = torch.randperm(len(images), generator=generator(adversary.seed, 50))[:simulations]
        changes, moments = self._simulated_changes(adversary, model, received_model, selected, (*last, *first))
        simulated = selected, changes, labels[selected], moments if single else None
        readers = [_reader(layer, last, model, adversary) for layer in dict.fromkeys((last, first))]
        candidates = [
            candidate
            for reader, public_rows in readers
            for candidate in _regressions(reader, public_rows, images, *simulated)
        ]
        candidates.sort(key=lambda candidate: candidate.error)
        self.best = candidates[0].on_all(images)
        # artifacts of random numbers reveal no batch statistics
        self.without_moments = (
            next(candidate for candidate in candidates if not candidate.uses_moments).on_all(images)
            if self.best.uses_moments
            else self.best
        )

    def _simulated_changes(
        self,
        adversary: Adversary,
        model: nn.Module,
        received_model: ModelState,
        selected: Tensor,
        parameters: Sequence[str],
    ) -> tuple[list[ParameterChange], Tensor | None]:
        """What a simulated update of each public image at `selected` (S,) reveals: the changes of these parameters, and the
        batch statistics of all layers (S, E), or None where they are not revealed.
        """
        simulator = adversary.simulator(TrainingSimulator)
        images, labels = adversary.public_images
        changes: list[ParameterChange] = []
        moments = []
        for i in selected:
            update = adversary.simulate(images, labels, i[None], generator(adversary.seed, 51, int(i)), received_model)
            change = simulator.change(update, received_model)
            changes.append({name: change[name] for name in parameters})
            trained = simulator.after(update, received_model).state
            layer_moments = revealed(model, trained, received_model.state, batches_seen(trained, received_model.state))
            moments.append({name: layer_moments[name] for name in self.layers if name in layer_moments})
        if not self.layers or not moments or any(len(row) < len(self.layers) for row in moments):
            return changes, None
        return changes, moment_rows({name: stacked([row[name] for row in moments]) for name in self.layers})

    def __call__(self, changes: Sequence[ParameterChange], labels: Tensor, moments: Mapping[str, Moments]) -> Tensor:
        """Images (G, m, 3, H, W) in [0, 1] with labels (G, m), predicted from changes (received minus trained) by parameter.

        All images of a class are the same image, predicted from their mean latent.

        Args:
            changes: Changes by G clients.
            labels: Labels of the m images to predict for each client.
            moments: By layer, mean and variance (G, C).
        """
        chosen = self.best if moments.keys() >= set(self.layers) else self.without_moments
        rows = chosen.reader.rows([change for change in changes for _ in range(labels.shape[1])], labels.flatten())
        if chosen.uses_moments:
            rows = torch.cat([rows, moment_rows({name: moments[name] for name in self.layers})], dim=1)
        return chosen.regression(rows).view(*labels.shape, *self.shape).clamp(0, 1)


def images_of_one_step(
    adversary: Adversary,
    model: nn.Module,
    changes: Sequence[ParameterChange],
    labels: Tensor,
    moments: Mapping[str, Moments],
) -> Tensor:
    """Images (G, m, 3, H, W) in [0, 1] with labels (G, m), predicted from changes by one step on several images.

    A regression is fitted for each update, on the public images' latents normalised by the update's batch statistics, as the
    client's latents were.

    Args:
        adversary: The adversary with its public images.
        model: The network with the received model's parameters, in evaluation mode.
        changes: Changes by G clients, received minus trained.
        labels: Labels of the m images to predict for each client.
        moments: Mean and variance (G, C) of the batch, for every BatchNorm layer.
    """
    public_images, _ = adversary.public_images
    last = adversary.simulator(TrainingSimulator).last_layer
    images = []
    for i, change in enumerate(changes):
        with normalised_by(model, {name: (mean[i], variance[i]) for name, (mean, variance) in moments.items()}):
            reader, public_rows = _reader(last, last, model, adversary)
        images.append(RowRegression(public_rows, public_images)(reader.rows([change] * labels.shape[1], labels[i])))
    return torch.stack(images).view(*labels.shape, *public_images.shape[1:]).clamp(0, 1)


class _LastLayerReader:
    """Reads the inputs of the last layer.

    Attributes:
        layer: Names of its weight and its bias, if it has one.
        classes: K.
    """

    def __init__(self, layer: tuple[str, ...], classes: int) -> None:
        self.layer, self.classes = layer, classes

    def rows(self, changes: Sequence[ParameterChange], labels: Tensor) -> Tensor:
        """(U, D + K): inputs revealed by changes (received minus trained), of images with these labels (U,), and labels."""
        return torch.stack([self.row(change, label) for change, label in zip(changes, labels, strict=True)])

    def row(self, change: ParameterChange, label: Tensor) -> Tensor:
        """(D + K,): the mean input of the images of a class, and the class as one-hot."""
        return row_of_class(change[self.layer[0]].flatten(1), bias_change(change, self.layer), label)


class _FirstLayerReader(_LastLayerReader):
    """Reads the first fully connected layer's input for an update's only image; corrects for weight decay and dropout."""

    def __init__(self, layer: tuple[str, ...], classes: int, model: nn.Module, inputs: Tensor) -> None:
        super().__init__(layer, classes)
        self.weight, self.bias = (model.get_parameter(name).detach().to("cpu", copy=True) for name in layer)
        self.zero_threshold = _ZERO * float(inputs.abs().mean())
        active = inputs.abs() > self.zero_threshold
        self.zero_share = 1 - active.float().mean(0)  # (D,) share of images for which ReLU sets a unit to 0
        self.mean_active = (inputs * active).sum(0) / active.sum(0).clamp_min(1)  # (D,) over the other images

    def row(self, change: ParameterChange, label: Tensor) -> Tensor:
        weight, bias = (change[name] for name in self.layer)
        decay = _decay(weight, bias, self.weight)
        weight, bias = weight - decay * self.weight, bias - decay * self.bias
        latent = bias @ weight / bias.square().sum().clamp_min(1e-20)
        is_zero = latent.abs() <= self.zero_threshold
        dropped = is_zero[self.zero_share == 0].float()  # ReLU sets these units to 0 for no image, but dropout may
        dropout_rate = float(dropped.mean().nan_to_num(0))
        expected = (
            self.mean_active * dropout_rate / (dropout_rate + (1 - dropout_rate) * self.zero_share).clamp_min(1e-6)
        )
        return torch.cat([torch.where(is_zero, expected, (1 - dropout_rate) * latent), one_hot(label, self.classes)])


def _decay(weight: Tensor, bias: Tensor, received: Tensor) -> Tensor:
    """The multiple of the received weight (O, D) in its change (O, D), estimated orthogonally to the bias's change (O,)."""
    direction = bias / bias.norm().clamp_min(1e-20)
    change_residual, received_residual = (
        matrix - direction[:, None] * (direction @ matrix) for matrix in (weight, received)
    )
    multiple: Tensor = (change_residual * received_residual).sum() / received_residual.square().sum().clamp_min(1e-20)
    return multiple


def _reader(
    layer: tuple[str, ...], last: tuple[str, ...], model: nn.Module, adversary: Adversary
) -> tuple[_LastLayerReader, Tensor]:
    """A reader of this layer's input, if it has a bias and is not the last layer; else of the last layer's inputs by class.
    Also the inputs and classes (N, D + K) of the public images under the received model in evaluation mode.
    """
    by_single_image = layer != last and len(layer) > 1
    layer_read, (images, labels) = layer if by_single_image else last, adversary.public_images
    inputs = layer_inputs(model, model.get_submodule(layer_read[0].rpartition(".")[0]), images)
    if inputs.ndim > 2:  # of tokens, whose mean the weights' change reveals
        inputs = inputs.flatten(1, -2).mean(1)
    public_rows = torch.cat([inputs, one_hot(labels, adversary.classes)], dim=1)
    return _FirstLayerReader(layer_read, adversary.classes, model, inputs) if by_single_image else _LastLayerReader(
        layer_read, adversary.classes
    ), public_rows


def _first_linear(model: nn.Module, received_model: ModelState, images: Tensor) -> tuple[str, ...] | None:
    """Names of the parameters of the first fully connected layer that clients share and that has one input (D,) an image.

    None if there is none: in a transformer, layers before the classifier have an input of each token.
    """
    for name, layer in model.named_modules():
        names = tuple(f"{name}.{part}" for part, _ in layer.named_parameters(recurse=False))
        is_shared = isinstance(layer, nn.Linear) and received_model.state.keys() >= set(names)
        if is_shared and layer_inputs(model, layer, images[:2]).ndim == 2:
            return names
    return None


@dataclass(frozen=True, eq=False)
class _LatentRegression:
    """A regression to images from a reader's rows, joined with batch statistics if `uses_moments`; `error` is that on updates.

    A regression fitted on a part of the public images only has the rows (N, D + K) of all of them in `public_rows`.
    """

    reader: _LastLayerReader
    regression: RowRegression
    error: float = 0.0
    uses_moments: bool = False
    public_rows: Tensor | None = None

    def on_all(self, images: Tensor) -> "_LatentRegression":
        """Returns the regression fitted on all public images (N, 3, H, W), if it was fitted on a part of them."""
        return (
            self
            if self.public_rows is None
            else replace(self, regression=RowRegression(self.public_rows, images), public_rows=None)
        )


def _regressions(
    reader: _LastLayerReader,
    public_rows: Tensor,
    images: Tensor,
    selected: Tensor,
    changes: Sequence[ParameterChange],
    labels: Tensor,
    moments: Tensor | None,
) -> list[_LatentRegression]:
    """Candidate regressions of this reader's rows, with errors on the updates (S,) of the public images at `selected` (S,)."""
    rows, targets = reader.rows(changes, labels), images[selected]
    from_updates = RowRegression(rows, targets)
    candidates = [_LatentRegression(reader, from_updates, from_updates.left_out_error)]
    if moments is not None:
        from_updates_and_moments = RowRegression(torch.cat([rows, moments], dim=1), targets)
        candidates.append(
            _LatentRegression(
                reader, from_updates_and_moments, from_updates_and_moments.left_out_error, uses_moments=True
            )
        )
    not_selected = ~torch.isin(torch.arange(len(images)), selected)
    if int(not_selected.sum()) >= _MIN_FITTED:
        from_public = RowRegression(public_rows[not_selected], images[not_selected])
        candidates.append(
            _LatentRegression(reader, from_public, from_public.error(rows, targets), public_rows=public_rows)
        )
    return candidates
