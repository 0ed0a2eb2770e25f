"""Latent inversion: a client's classifier head tells latents, and a decoder learned on public images draws them.

Reference: LSI, section III-C (Eq. 4-7) for latents from a head; METHODS 7e, H-L1 and H-L3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
from fdgpriv.exam import Guess, Question, View
from fdgpriv.states import ClassifierHead
from fdgpriv.subjects import HeadCraft, Holding
from fdgpriv.threat import Capability

from ._blind import blind_sets
from ._labels import labels_of
from ._linear import linear_reader
from ._reading import public_images, want_practice
from ._reconstruction import Reconstruction

LATENTS = ("weights", "inverted")


@dataclass(frozen=True)
class LatentInversion(Reconstruction):
    """Reads latents off a head, in units of its BatchNorm, and decodes them by ridge regression.

    In training the weights of class c move along the mean of (y_c - p_c) times the normalised latent, and its bias by the
    mean of y_c - p_c. Of one image their ratio is the latent, as far as the encoder stands still; what it tells of pixels
    is learned from heads of single public images. Of many images the weights' change is a mean latent of each class, whose
    scale is that of a client practised on public images. Nobody tells how often each class occurs: all are drawn alike.

    Attributes:
        latents: Of many images, from the ``weights``; or ``inverted`` from the head by the method's own synthesis (LSI's
            stage 2), the mean of each class.
        practice: Heads of single public images to learn from.
        most: Images drawn of a client of that many or more.
    """

    reads: ClassVar[tuple[str, ...]] = (ClassifierHead.kind,)
    sizes: ClassVar[tuple[int | None, ...]] = (1, None)
    threats: ClassVar[tuple[str, ...]] = ("server",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"practice": 20, "most": 2}}

    latents: str = "weights"
    practice: int = 90
    most: int = 8

    def __post_init__(self) -> None:
        want_practice(self.name(), self.practice)
        if self.latents not in LATENTS:
            raise ValueError(f"latent_inversion.latents: want one of {', '.join(LATENTS)}; got {self.latents!r}")
        if self.most < 1:
            raise ValueError(f"latent_inversion.most: want at least 1, got {self.most}")

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        craft = view.craft(HeadCraft, Capability.HAS_UPDATES)
        public: dict[int, Public] = {}
        guesses: list[Guess] = []
        for question in questions:
            assert question.sent is not None
            if id(question.sent) not in public:
                public[id(question.sent)] = Public(view, craft, question.sent, self.practice, rng)
            known = public[id(question.sent)]
            change = head_change(question.artifact.tensors(), question.sent)
            if question.images_behind == 1:
                guesses.append(known.image(row_of_one(change)))
            else:
                count = min(self.most, question.images_behind)
                labels = labels_of(torch.full((view.classes,), 1 / view.classes), count)
                means = self._means(known, craft, question, change, rng)
                guesses.append(known.images(means[labels]))
        return guesses, blind_sets(view, self.most, rng)

    def _means(
        self, known: "Public", craft: HeadCraft, question: Question, change: Mapping[str, Tensor], rng: torch.Generator
    ) -> Tensor:
        """The mean latent (K, p) of each class, in units of the head's statistics."""
        if self.latents == "weights":
            return known.scale * change["linear.weight"]
        assert isinstance(question.artifact, ClassifierHead)
        latents, labels = craft.synthesised(question.artifact, rng)
        head = question.artifact.tensors()
        normal = (latents - head["norm.running_mean"]) / (head["norm.running_var"] + 1e-5).sqrt()
        return class_means(normal, labels, len(change["linear.weight"]))


class Public:
    """What public images teach of heads that began with one model.

    Args:
        view, craft: What the adversary has.
        sent: The model.
        practice: Heads of single images to learn from.
        rng: Of the practice.
    """

    def __init__(self, view: View, craft: HeadCraft, sent: ModelState, practice: int, rng: torch.Generator) -> None:
        self.craft, self.sent, self.rng, self.practice, self.typical = craft, sent, rng, practice, view.typical
        self.classes = view.classes
        self.pixels, self.labels = public_images(view)

    def image(self, row: Tensor) -> Tensor:
        """(1, 3, H, W) in [0, 1]: what heads of single public images suggest for one that says `row` (D,)."""
        center, spread, weight, bias = self._single
        return self._shaped(((row - center) / spread).clamp(-10, 10)[None] @ weight.T + bias)

    def images(self, latents: Tensor) -> Tensor:
        """(M, 3, H, W) in [0, 1] of normalised latents (M, p)."""
        weight, bias, _ = self._many
        return self._shaped(latents.clamp(-10, 10) @ weight.T + bias)

    @property
    def scale(self) -> float:
        """How much longer class means of latents are than the change of the weights that they cause."""
        return self._many[2]

    def _shaped(self, flat: Tensor) -> Tensor:
        return flat.view(-1, *self.pixels.shape[1:]).clamp(0, 1)

    def _trained(self, index: Tensor) -> tuple[ClassifierHead, Any]:
        return self.craft.trained(Holding(self.pixels, self.labels, self.sent), index, self.rng)

    @cached_property
    def _single(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        index = torch.randperm(len(self.labels), generator=self.rng)[: self.practice]
        rows = torch.stack([row_of_one(head_change(self._trained(i[None])[0].tensors(), self.sent)) for i in index])
        center, spread = rows.mean(0), rows.std(0) + 1e-3 * rows.std(0).mean() + 1e-8
        return center, spread, *linear_reader((rows - center) / spread, self.pixels[index])

    @cached_property
    def _many(self) -> tuple[Tensor, Tensor, float]:
        index = torch.randperm(len(self.labels), generator=self.rng)[: self.typical]
        head, model = self._trained(index)
        with torch.no_grad():
            latents = torch.cat([model.embedding(part) for part in self.pixels.split(256)])
        normal = (latents - latents.mean(0)) / (latents.std(0) + 1e-6)
        moved = head_change(head.tensors(), self.sent)["linear.weight"]
        means = class_means(normal, self.labels, self.classes)
        scale = float((moved * means).sum() / moved.square().sum().clamp_min(1e-12))
        return *linear_reader(normal, self.pixels), scale


def row_of_one(change: Mapping[str, Tensor]) -> Tensor:
    """(p + K,): the normalised latent of the only image that a head was trained on, and its class, marked."""
    gained = change["linear.bias"]
    label = gained.argmax()
    latent = change["linear.weight"][label] / gained[label].clamp_min(1e-12)
    return torch.cat([latent, nn.functional.one_hot(label, len(gained)).float()])


def class_means(latents: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(K, p): the mean of each class's latents (N, p); 0, the mean of all, of a class that has none."""
    named = nn.functional.one_hot(labels, classes).to(latents.dtype)
    return named.T @ latents / named.sum(0).clamp_min(1)[:, None]


def head_change(head: Mapping[str, Tensor], sent: ModelState) -> dict[str, Tensor]:
    """By name, what training added to the head that was sent."""
    return {name: tensor.float() - sent.state[f"head.{name}"].float() for name, tensor in head.items()}
