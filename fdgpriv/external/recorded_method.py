"""A method built from the user's network, client training and style encoder of a recorded training."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property
from threading import Lock
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.moments import Moments, StyleRule
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images
from fdgpriv.external.binary_head import BinaryHead
from fdgpriv.external.logits import as_two_logits, logits_of
from fdgpriv.federation.averaging import average
from fdgpriv.federation.disclosure import Disclosure, StyleSource
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.recording import VERB
from fdgpriv.federation.request import Request, Server
from fdgpriv.method import Method
from fdgpriv.models.copied import copied
from fdgpriv.models.memory_format import contiguous
from fdgpriv.utils.seeds import generator

Train = Callable[[nn.Module, Tensor, Tensor, int, torch.Generator], object]
Features = Callable[[Tensor], Tensor]

_HOOKED = Lock()


class Network:
    """The recorded network, with the conversion of images (N, 3, S, S) in [0, 1] to its input.

    Its copies get contiguous images, and return logits (N, K) whatever the user's network returns.
    The user's functions and networks get copies of images and labels, which they may change in place.

    Args:
        model: The network in its initial state of the recorded training.
        adapt: The conversion; None for none.
        columns: Of its logits: K, or 1 where it has one logit.
        binary: Its last layer, where it has one logit and `model` is its form with two rows; None for several logits.
    """

    def __init__(
        self, model: nn.Module, adapt: Features | None, columns: int, binary: BinaryHead | None = None
    ) -> None:
        self.adapt, self.columns, self.binary = adapt, columns, binary
        self._model = contiguous(copied(model)).eval()
        # functions, not methods: a copy of the network would copy the owner of a method, too
        self._input_hook = self._model.register_forward_pre_hook(
            lambda _, inputs: (adapted(adapt, inputs[0]), *inputs[1:])
        ).id
        self._output_hook = self._model.register_forward_hook(
            lambda _, inputs, output: network_logits(output, columns, binary)
        ).id

    def new(self) -> nn.Module:
        """A new copy of the network, which converts its input and output."""
        return copied(self._model)

    def adapted_by(self, adapt: Features) -> "Network":
        """The same network with another conversion of images."""
        plain = copied(self._model)
        plain._forward_pre_hooks.pop(self._input_hook)
        plain._forward_hooks.pop(self._output_hook)
        return Network(plain, adapt, self.columns, self.binary)

    def adapted(self, images: Tensor) -> Tensor:
        """A copy of the images, converted to the input of the user's network."""
        return adapted(self.adapt, images)

    def train(self, train: Train, model: nn.Module, data: ClientData, round: int, rng: torch.Generator) -> None:
        """Trains `model`, a result of `new`, in place by the user's function, which gets converted images."""
        input_hook = model._forward_pre_hooks.pop(self._input_hook)
        output_hook = model._forward_hooks.pop(self._output_hook)
        try:
            with nullcontext() if self.binary is None else self.binary.with_one_row(model):
                train(model, self.adapted(as_images(data.pixels)), data.labels.clone(), round, rng)
        finally:
            model._forward_pre_hooks[self._input_hook] = input_hook
            model._forward_hooks[self._output_hook] = output_hook


def adapted(adapt: Features | None, images: Tensor) -> Tensor:
    """A copy of the images, converted and contiguous."""
    images = images.clone(memory_format=torch.contiguous_format)
    return images if adapt is None else adapt(images).contiguous()


def network_logits(output: object, columns: int, binary: BinaryHead | None) -> object:
    """The logits (N, K) in a network's output; the output itself if there are none."""
    logits = logits_of(output, columns)
    if logits is None:
        return output
    return logits if binary is None else as_two_logits(logits)


class UserTraining:
    """The user's training of one client (see `PlainTraining`).

    Args:
        train: ``train(model, images, labels, round, rng)``, which trains `model` in place.
        network: The network to train.
        image_size: S, in pixels.
        largest: Number of images of the largest client.
    """

    elementwise_optimizer = False  # not known, so that several models are never trained as one

    def __init__(self, train: Train, network: Network, image_size: int, largest: int) -> None:
        self.train, self.network, self.image_size, self.largest = train, network, image_size, largest

    def train_plainly(self, model: nn.Module, data: ClientData, round: int, rng: torch.Generator) -> None:
        """Trains `model` in place by the user's function."""
        self.network.train(self.train, model, data, round, rng)

    def plain_batches(self, data: ClientData, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Not known: asked for only where the optimiser is elementwise."""
        raise NotImplementedError("the batches of a user's training are not known")

    def ready(self, model: nn.Module, n: int) -> None:
        """Not known, as `plain_batches`."""
        raise NotImplementedError("the modes of layers in a user's training are not known")

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        """Not known, as `plain_batches`."""
        raise NotImplementedError("the optimiser of a user's training is not known")

    def steps(self, n: int) -> int:
        """Number of mini-batches per round of a client with n images, extrapolated from one observed training."""
        batch_size, epochs, drops_last = self._batches
        if batch_size is None:
            return epochs
        return epochs * max(1, n // batch_size if drops_last else math.ceil(n / batch_size))

    @cached_property
    def _batches(self) -> tuple[int | None, int, bool]:
        """Batch size (None for all images at once), epochs, and whether incomplete batches are left out.

        Observed in a training on random images, more than the largest client has.
        """
        model, sizes, count = self.network.new(), list[int](), 2 * self.largest + 1

        def add(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if module.training:
                sizes.append(len(inputs[0]))

        model.register_forward_pre_hook(add)
        pixels = torch.rand(count, 3, self.image_size, self.image_size, generator=generator(0))
        labels = torch.arange(count) % 2
        data = ClientData(SERVER, pixels, labels, pixels[:0], labels[:0], 2)
        self.train_plainly(model, data, 0, generator(1))
        batch_size = max(sizes, default=count)
        if batch_size == count:
            return None, max(1, len(sizes)), False
        drops_last = len(set(sizes)) == 1 and count % batch_size > 0
        images_per_epoch = count // batch_size * batch_size if drops_last else count
        return batch_size, max(1, round(sum(sizes) / images_per_epoch)), drops_last


class EncoderStyles(StyleSource):
    """Styles of the features that the user's encoder computes, with the model in evaluation mode.

    Args:
        encoder_of: Gives the encoder of a model, from the network's input to features (B, C, h, w).
        network: Converts images.
        layer: Name of the encoder's output.
        changes_model: Whether `encoder_of` may change its model, so that it gets a copy.
    """

    def __init__(
        self, encoder_of: Callable[[nn.Module], Features], network: Network, layer: str, changes_model: bool = False
    ) -> None:
        self.encoder_of, self.network, self.layer, self.changes_model = encoder_of, network, layer, changes_model

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        return (self.layer,)

    def features(self, model: nn.Module, layer: str) -> Features:
        encoder = self.encoder_of(copied(model) if self.changes_model else model)
        return lambda images: encoder(self.network.adapted(images))


class FrozenEncoderStyles(EncoderStyles):
    """Styles by a public encoder that is not trained."""

    frozen_encoder: ClassVar[bool] = True


class BatchEncoderStyles(EncoderStyles):
    """Styles with the model in training mode, on all images of a client as one batch."""

    uses_batch_statistics: ClassVar[bool] = True

    @torch.no_grad()
    def of_client(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule) -> Moments:
        return rule(self.features(copied(model).train(), layer)(images))

    def of_clients(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule, clients: Tensor) -> Moments:
        by_client = [self.of_client(model, images[index], layer, rule) for index in clients]
        mean, std = (torch.stack(moments) for moments in zip(*by_client, strict=True))
        return mean, std

    @torch.no_grad()
    def in_frame_of(self, model: nn.Module, images: Tensor, layer: str) -> nn.Module:
        framed = copied(model).train()
        for module in framed.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.reset_running_stats()
                module.momentum = None  # the statistics of the one batch
        self.encoder_of(framed)(self.network.adapted(images))
        return framed.eval()


def output_of_layer(name: str) -> Callable[[nn.Module], Features]:
    """The encoder that gives the output of the layer `name` in a pass of the whole network."""

    def encoder_of(model: nn.Module) -> Features:
        def features(images: Tensor) -> Tensor:
            outputs = list[Tensor]()
            with _HOOKED:  # attacks share the model
                layer = model.get_submodule(name)
                hook = layer.register_forward_hook(lambda _, inputs, output: outputs.append(output.clone()))
                try:
                    model.forward(images)  # not a call, which would convert the images again
                finally:
                    hook.remove()
            return outputs[0]

        return features

    return encoder_of


class RecordedMethod(Method):
    """The recorded training: its network, its clients' training, and a server that takes the mean of their models.

    Args:
        network: The recorded network.
        disclosure: Known facts about its artifacts.
        rounds: Number of recorded rounds.
    """

    installed_as = "recording"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, network: Network, disclosure: Disclosure, rounds: int) -> None:
        self.network, self.rounds, self._disclosure = network, rounds, disclosure

    def disclosure(self) -> Disclosure:
        return self._disclosure

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        return self.network.new()

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        """Federated averaging with the recorded weights: how an adversary simulates the federation."""
        model = self.model(federation, rng)
        for round in federation.rounds(self.rounds, model=model):
            clients = federation.sample(self._disclosure.participants, rng)
            state = ModelState.of(model, SERVER, round)
            answers = yield Request(VERB, {client: [state] for client in clients}, number=round)
            trained = [artifact for message in answers.values() for artifact in message]
            states = [artifact.state for artifact in trained if isinstance(artifact, ModelState)]
            counts = [float(artifact.count) for artifact in trained if isinstance(artifact, SampleCount)]
            by_samples = self._disclosure.weights == "samples"
            model.load_state_dict(average(states, counts if by_samples else None), strict=False)
        return model

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "RecordedClient":
        return RecordedClient(self, federation, data, rng)


class RecordedClient:
    """A simulated client of the recorded training, for shadow federations."""

    def __init__(self, method: RecordedMethod, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng = method, data, rng
        self.model = method.model(federation, rng)

    def train(self, message: Message) -> Message:
        """The model after the user's training, and the number of images."""
        (received,) = (artifact for artifact in message if isinstance(artifact, ModelState))
        training = self.method.disclosure().training
        assert training is not None
        received.load_into(self.model)
        training.train_plainly(self.model, self.data, received.round, self.rng)
        count = SampleCount(client=self.data.client, round=received.round, count=torch.tensor(len(self.data)))
        return [ModelState.of(self.model, self.data.client, received.round), count]
