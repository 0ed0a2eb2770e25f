"""Latent inversion: infers latents from a client's classifier head, and decodes them to images.

Reference: LSI, section III-C (Eq. 4-7) for latents from a head; hypotheses H-L1 and H-L3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.attack import Attack
from fdgpriv.models.cpu_io import latents_of
from fdgpriv.simulation.head import SentHeadSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.statistics.ridge import ridge_regression
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import Capability
from fdgpriv.utils.fields import PositiveInt, TwoOrMore
from fdgpriv.utils.seeds import generator

from ._inversion import RowRegression, row_of_single_image
from ._updates import labels_of


@dataclass(frozen=True)
class LatentInversion(Attack):
    """Estimates latents from a head, in units of its BatchNorm, and decodes them by regression on public images.

    In training the weights of class c change by the mean of (y_c - p_c) times the normalised latent, and its bias by
    the mean of y_c - p_c. For one image their ratio is the latent, if the encoder does not change; the map from it to
    pixels is learned from heads of single public images, by kernel ridge regression. For many images the weights'
    change is a mean latent of each class, whose scale is estimated on a simulated client; a ridge regression decodes
    latents. Class frequencies are unknown: equally many images of each class are reconstructed.

    Attributes:
        latents: The source of a class's mean latent, for many images: the ``weights``, or ``inverted`` from the head by the
            method's own synthesis (LSI's stage 2).
        simulations: Heads of single public images to learn from; several of each where these are fewer.
        most: At most so many images are reconstructed for one client.
    """

    reads = (ClassifierHead,)
    task = Images()
    group_sizes = (1, None)
    threats = ("server",)
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 20, "most": 2},
        "thorough": {"simulations": 600},
    }

    latents: Literal["weights", "inverted"] = "weights"
    simulations: TwoOrMore = 150
    most: PositiveInt = 8

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        simulator = adversary.simulator(SentHeadSimulator, Capability.HAS_UPDATES)
        decoders: dict[int, PublicDecoder] = {}
        predictions: list[Prediction] = []
        for observation in observations:
            assert observation.received_model is not None
            if id(observation.received_model) not in decoders:
                decoders[id(observation.received_model)] = PublicDecoder(
                    adversary, simulator, observation.received_model, self.simulations, rng
                )
            decoder = decoders[id(observation.received_model)]
            change = head_change(observation.artifact.tensors(), observation.received_model)
            if observation.n_images == 1:
                predictions.append(decoder.image(_row_of_single_image(change)))
            else:
                count = min(self.most, observation.n_images)
                labels = labels_of(torch.full((adversary.classes,), 1 / adversary.classes), count)
                means = self._means(decoder, simulator, observation, change, rng)
                predictions.append(decoder.images(means[labels]))
        return Predictions(predictions, set_size=self.most)

    def _means(
        self,
        decoder: "PublicDecoder",
        simulator: SentHeadSimulator,
        observation: Observation,
        change: Mapping[str, Tensor],
        rng: torch.Generator,
    ) -> Tensor:
        """The mean latent (K, p) of each class, in units of the head's statistics."""
        if self.latents == "weights":
            return decoder.scale * change["linear.weight"]
        assert isinstance(observation.artifact, ClassifierHead)
        latents, labels = simulator.synthesised(observation.artifact, rng)
        head = observation.artifact.tensors()
        normalised = (latents - head["norm.running_mean"]) / (head["norm.running_var"] + 1e-5).sqrt()
        return class_means(normalised, labels, len(change["linear.weight"]))


class PublicDecoder:
    """Decoders from heads to images, fitted on public images, for heads trained from one received model.

    Args:
        adversary, simulator: The adversary with its public images, and its simulator of heads.
        received_model: The model that the heads are trained from.
        simulations: Number of heads of single images to learn from, which are always the same.
        rng: Draws the simulated client of many images.
    """

    def __init__(
        self,
        adversary: Adversary,
        simulator: SentHeadSimulator,
        received_model: ModelState,
        simulations: int,
        rng: torch.Generator,
    ) -> None:
        self.adversary, self.simulator, self.received_model = adversary, simulator, received_model
        self.simulations, self.rng = simulations, rng
        self.pixels, self.labels = adversary.public_images

    def image(self, row: Tensor) -> Tensor:
        """Predicts an image (1, 3, H, W) in [0, 1] from a single-image head, by its `_row_of_single_image` (D,)."""
        return self._to_images(self._single_image_regression(row[None]))

    def images(self, latents: Tensor) -> Tensor:
        """Decodes normalised latents (M, p) to images (M, 3, H, W) in [0, 1]."""
        weight, bias, _ = self._latent_decoder
        return self._to_images(latents.clamp(-10, 10) @ weight.T + bias)

    @property
    def scale(self) -> float:
        """Ratio of a class's mean latent to the change of the weights that it causes."""
        return self._latent_decoder[2]

    def _to_images(self, flat: Tensor) -> Tensor:
        return flat.view(-1, *self.pixels.shape[1:]).clamp(0, 1)

    @cached_property
    def _single_image_regression(self) -> RowRegression:
        n_passes = -(
            -self.simulations // len(self.labels)
        )  # heads of the same image differ, since trainings are random
        seed = self.adversary.seed
        order = [torch.randperm(len(self.labels), generator=generator(seed, 52, turn)) for turn in range(n_passes)]
        index = torch.cat(order)[: self.simulations]
        simulate_head = partial(self.adversary.simulate, self.pixels, self.labels)
        heads = (simulate_head(i[None], generator(seed, 53, turn), self.received_model) for turn, i in enumerate(index))
        rows = [_row_of_single_image(head_change(head.tensors(), self.received_model)) for head in heads]
        return RowRegression(torch.stack(rows), self.pixels[index], index if n_passes > 1 else None)

    @cached_property
    def _latent_decoder(self) -> tuple[Tensor, Tensor, float]:
        index = torch.randperm(len(self.labels), generator=self.rng)[: self.adversary.typical]
        images = ClientImages(self.pixels, self.labels, self.received_model)
        head, model = self.simulator.trained(ClientSample(images, index), self.rng)
        shared = self.simulator.defense.shared(head, self.rng, self.received_model)
        latents = latents_of(model, self.pixels)
        normalised = (latents - latents.mean(0)) / (latents.std(0) + 1e-6)
        weight_change = head_change(shared.tensors(), self.received_model)["linear.weight"]
        means = class_means(normalised, self.labels, self.adversary.classes)
        scale = float((weight_change * means).sum() / weight_change.square().sum().clamp_min(1e-12))
        return *ridge_regression(normalised, self.pixels), scale


def _row_of_single_image(change: Mapping[str, Tensor]) -> Tensor:
    """(p + K,): normalised latent and one-hot class of the only image that a head was trained on."""
    return row_of_single_image(-change["linear.weight"], -change["linear.bias"])


def class_means(latents: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(K, p): the mean of each class's latents (N, p); 0, the overall mean, for a class without any."""
    one_hot = nn.functional.one_hot(labels, classes).to(latents.dtype)
    return one_hot.T @ latents / one_hot.sum(0).clamp_min(1)[:, None]


def head_change(head: Mapping[str, Tensor], received_model: ModelState) -> dict[str, Tensor]:
    """By name, trained minus received parameters of the head."""
    return {name: tensor.float() - received_model.state[f"head.{name}"].float() for name, tensor in head.items()}
