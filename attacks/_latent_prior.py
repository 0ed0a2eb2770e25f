"""Predicts images from updates by the inputs of a fully connected layer, which the change of its weights tells.

The gradient of such a layer's weight (O, D) is the sum over images of the outer product of the bias's gradient (O,) and the
layer's input (D,): of a single image it tells the input exactly (Phong et al., "Privacy-preserving deep learning via
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
from ._inversion import Regression, bias_change, moment_rows, one_hot, row_of_class

_FITTED = 20  # simulated updates, or public images without one, that a regression is fitted on at least
_ZERO = 1e-3  # of the mean input: less than that is a unit that was dropped, or one that ReLU has cut

Change = Mapping[str, Tensor]


class LatentPrior:
    """Predicts images from an update by a regression from what it tells of a fully connected layer's input.

    Regressions are fitted on the inputs that the received model has for public images, or on those that updates of clients
    with one public image each tell: training of many steps, or on augmented images, tells other inputs. They are compared by
    how well they predict images from such updates. Updates of several images tell the last layer's input; of a single image,
    the first fully connected layer's, too, and the batch statistics.

    Args:
        adversary: Its public images, and how clients train.
        model: The network, holding the received model, in evaluation mode.
        received_model: What is trained.
        simulations: At most so many public images whose updates are simulated, each always with the same draws. With fewer
            than 20 none are, and the first fully connected layer that may be read is.
        layers: The BatchNorm layers whose statistics are used.
        single: Whether updates of one image are read, and not of several.
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
        first = _first_linear(model) if single else last
        if simulations < _FITTED:
            reader, known = _reader(first, last, model, adversary)
            self.fit = self.without = _Fit(reader, Regression(known, images))
            return
        some = torch.randperm(len(images), generator=generator(adversary.seed, 50))[:simulations]
        changes, moments = self._of_updates(adversary, model, received_model, some, (*last, *first))
        of_updates = some, changes, labels[some], moments if single else None
        readers = [_reader(layer, last, model, adversary) for layer in dict.fromkeys((last, first))]
        fits = [fit for reader, known in readers for fit in _fits(reader, known, images, *of_updates)]
        fits.sort(key=lambda fit: fit.error)
        self.fit = fits[0].on_all(images)
        # random artifacts reveal no batch statistics
        self.without = next(fit for fit in fits if not fit.moments).on_all(images) if self.fit.moments else self.fit

    def _of_updates(
        self, adversary: Adversary, model: nn.Module, received_model: ModelState, some: Tensor, wanted: Sequence[str]
    ) -> tuple[list[Change], Tensor | None]:
        """What a simulated update of each public image at `some` (S,) tells: the change of the parameters `wanted`, and the
        batch statistics of all layers (S, E); None where they are not revealed.
        """
        simulator = adversary.simulator(TrainingSimulator)
        images, labels = adversary.public_images
        changes: list[Change] = []
        seen = []
        for i in some:
            made = adversary.simulate(images, labels, i[None], generator(adversary.seed, 51, int(i)), received_model)
            change = simulator.change(made, received_model)
            changes.append({name: change[name] for name in wanted})
            after = simulator.after(made, received_model).state
            told = revealed(model, after, received_model.state, batches_seen(after, received_model.state))
            seen.append({name: told[name] for name in self.layers if name in told})
        if not self.layers or not seen or any(len(one) < len(self.layers) for one in seen):
            return changes, None
        return changes, moment_rows({name: stacked([one[name] for one in seen]) for name in self.layers})

    def __call__(self, changes: Sequence[Change], labels: Tensor, moments: Mapping[str, Moments]) -> Tensor:
        """Images (G, m, 3, H, W) in [0, 1] with labels (G, m), predicted from changes (received minus trained) by parameter.

        Of several images of one class it is the same one, that of their mean latent.

        Args:
            changes: Of G clients.
            labels: Of the m images that each is to be drawn.
            moments: By layer, mean and variance (G, C).
        """
        fit = self.fit if moments.keys() >= set(self.layers) else self.without
        rows = fit.reader.rows([change for change in changes for _ in range(labels.shape[1])], labels.flatten())
        if fit.moments:
            rows = torch.cat([rows, moment_rows({name: moments[name] for name in self.layers})], dim=1)
        return fit.regression(rows).view(*labels.shape, *self.shape).clamp(0, 1)


def of_one_step(
    adversary: Adversary,
    model: nn.Module,
    changes: Sequence[Change],
    labels: Tensor,
    moments: Mapping[str, Moments],
) -> Tensor:
    """Images (G, m, 3, H, W) in [0, 1] with labels (G, m), predicted from changes by one step on several images.

    The regression is fitted, for each update by itself, on the public images' latents under its batch statistics, by which
    those of its own images were normalised.

    Args:
        adversary: Its public images.
        model: The network, holding the received model, in evaluation mode.
        changes: Of G clients, received minus trained.
        labels: Of the m images that each is to be drawn.
        moments: By BatchNorm layer, all of them, mean and variance (G, C) of the batch.
    """
    images, _ = adversary.public_images
    last = adversary.simulator(TrainingSimulator).last_layer
    drawn = []
    for i, change in enumerate(changes):
        with normalised_by(model, {name: (mean[i], variance[i]) for name, (mean, variance) in moments.items()}):
            reader, known = _reader(last, last, model, adversary)
        drawn.append(Regression(known, images)(reader.rows([change] * labels.shape[1], labels[i])))
    return torch.stack(drawn).view(*labels.shape, *images.shape[1:]).clamp(0, 1)


class _Reader:
    """Reads the inputs of the last layer.

    Attributes:
        layer: Names of its weight and its bias, if it has one.
        classes: K.
    """

    def __init__(self, layer: tuple[str, ...], classes: int) -> None:
        self.layer, self.classes = layer, classes

    def rows(self, changes: Sequence[Change], labels: Tensor) -> Tensor:
        """(U, D + K): what changes (received minus trained) tell of the input that images of these labels (U,) had."""
        return torch.stack([self.row(change, label) for change, label in zip(changes, labels, strict=True)])

    def row(self, change: Change, label: Tensor) -> Tensor:
        """(D + K,): the mean input of the images of a class, and the class."""
        return row_of_class(change[self.layer[0]].flatten(1), bias_change(change, self.layer), label)


class _FirstLayer(_Reader):
    """Reads the input that the first fully connected layer had for an update's only image, without weight decay and dropout."""

    def __init__(self, layer: tuple[str, ...], classes: int, model: nn.Module, inputs: Tensor) -> None:
        super().__init__(layer, classes)
        self.weight, self.bias = (model.get_parameter(name).detach().to("cpu", copy=True) for name in layer)
        self.least = _ZERO * float(inputs.abs().mean())
        used = inputs.abs() > self.least
        self.cut = 1 - used.float().mean(0)  # (D,) share of images for which ReLU cuts a unit
        self.mean = (inputs * used).sum(0) / used.sum(0).clamp_min(1)  # (D,) over the others

    def row(self, change: Change, label: Tensor) -> Tensor:
        weight, bias = (change[name] for name in self.layer)
        decay = _decay(weight, bias, self.weight)
        weight, bias = weight - decay * self.weight, bias - decay * self.bias
        found = bias @ weight / bias.square().sum().clamp_min(1e-20)
        zero = found.abs() <= self.least
        whole = zero[self.cut == 0].float()  # units that ReLU cuts for no image: those at zero were dropped
        dropped = float(whole.mean().nan_to_num(0))  # the rate
        expected = self.mean * dropped / (dropped + (1 - dropped) * self.cut).clamp_min(1e-6)
        return torch.cat([torch.where(zero, expected, (1 - dropped) * found), one_hot(label, self.classes)])


def _decay(weight: Tensor, bias: Tensor, received: Tensor) -> Tensor:
    """The multiple of the received weight (O, D) in its change (O, D), by what is no product with the bias's change (O,)."""
    direction = bias / bias.norm().clamp_min(1e-20)
    across, own = (one - direction[:, None] * (direction @ one) for one in (weight, received))
    multiple: Tensor = (across * own).sum() / own.square().sum().clamp_min(1e-20)
    return multiple


def _reader(
    layer: tuple[str, ...], last: tuple[str, ...], model: nn.Module, adversary: Adversary
) -> tuple[_Reader, Tensor]:
    """Reads this layer, by its only image if it is not the last one and has a bias, else the last layer by class; with the
    inputs and classes (N, D + K) of the public images, from the received model in evaluation mode.
    """
    alone = layer != last and len(layer) > 1
    read, (images, labels) = layer if alone else last, adversary.public_images
    inputs = layer_inputs(model, model.get_submodule(read[0].rpartition(".")[0]), images)
    known = torch.cat([inputs, one_hot(labels, adversary.classes)], dim=1)
    return _FirstLayer(read, adversary.classes, model, inputs) if alone else _Reader(read, adversary.classes), known


def _first_linear(model: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of the first fully connected layer."""
    name, layer = next((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))
    return tuple(f"{name}.{part}" for part, _ in layer.named_parameters())


@dataclass(frozen=True, eq=False)
class _Fit:
    """A regression from the rows of a reader, followed by the batch statistics' where `moments`, and its error for updates.

    One that was fitted on a part of the public images only has all of their rows (N, D + K) in `known`.
    """

    reader: _Reader
    regression: Regression
    error: float = 0.0
    moments: bool = False
    known: Tensor | None = None

    def on_all(self, images: Tensor) -> "_Fit":
        """The same, fitted on all public images (N, 3, H, W) if it was on a part of them."""
        return self if self.known is None else replace(self, regression=Regression(self.known, images), known=None)


def _fits(
    reader: _Reader,
    known: Tensor,
    images: Tensor,
    some: Tensor,
    changes: Sequence[Change],
    labels: Tensor,
    moments: Tensor | None,
) -> list[_Fit]:
    """The regressions with what this reader reads, by their errors on the updates (S,) of the public images at `some` (S,)."""
    rows, wanted = reader.rows(changes, labels), images[some]
    of_updates = Regression(rows, wanted)
    found = [_Fit(reader, of_updates, of_updates.left_out_error)]
    if moments is not None:
        of_both = Regression(torch.cat([rows, moments], dim=1), wanted)
        found.append(_Fit(reader, of_both, of_both.left_out_error, moments=True))
    others = ~torch.isin(torch.arange(len(images)), some)
    if int(others.sum()) >= _FITTED:
        plain = Regression(known[others], images[others])
        found.append(_Fit(reader, plain, plain.error(rows, wanted), known=known))
    return found
