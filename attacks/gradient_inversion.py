"""Gradient inversion: images are optimised until training on them would change the model as the client did.

Reference: Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", NeurIPS 2020
(cosine objective, total variation); Yin et al., "See through gradients", CVPR 2021 (BatchNorm prior, labels first).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fdgpriv.artifact import ModelState
from fdgpriv.exam import Guess, Question, View
from fdgpriv.states import ModelUpdate
from fdgpriv.style import Moments
from fdgpriv.subjects import TrainingCraft
from fdgpriv.threat import Capability

from ._batchnorm import apart, watched
from ._blind import blind_sets
from ._descent import around, descend, total_variation, want_descent
from ._images import Labelled, known_shares
from ._reconstruction import Reconstruction
from ._uploads import uploads

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class GradientInversion(Reconstruction):
    """Takes the update for the gradient of one batch at the model that was sent, or for a few plain steps of SGD from it.

    Attributes:
        steps: Of Adam.
        lr: Of the first step, in pixel values.
        restarts: Starts tried, the one with the least objective kept.
        tv: Weight of the total variation.
        prior: Weight of the squared distance from what public images suggest.
        bn: Weight of the batch statistics that the buffers reveal; 0 where they are not known.
        signed: Follow the gradient's sign only, as Geiping et al. do: the better choice without `prior` and BatchNorm.
        unrolled: Steps of SGD on the whole batch that are differentiated through; 0 takes the update for one gradient.
        unrolled_lr: Of these steps.
        most: Images drawn for an update of that many or more.
    """

    reads: ClassVar[tuple[str, ...]] = (ModelUpdate.kind, ModelState.kind)
    sizes: ClassVar[tuple[int | None, ...]] = (1, None)
    threats: ClassVar[tuple[str, ...]] = ("server",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"steps": 1, "most": 2},
        "paper": {"steps": 24_000, "lr": 0.1, "signed": True, "prior": 0.0, "tv": 0.2, "most": 100},
    }

    steps: int = 5
    lr: float = 0.05
    restarts: int = 1
    tv: float = 0.02
    prior: float = 100.0
    bn: float = 1.0
    signed: bool = False
    unrolled: int = 0
    unrolled_lr: float = 0.1
    most: int = 4

    def __post_init__(self) -> None:
        want_descent(self.name(), self.steps, self.lr, self.restarts)
        if self.unrolled < 0 or self.unrolled_lr <= 0 or self.most < 1:
            raise ValueError(
                f"gradient_inversion: want unrolled >= 0, unrolled_lr > 0 and most >= 1, "
                f"got {self.unrolled}, {self.unrolled_lr} and {self.most}"
            )

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        craft = view.craft(TrainingCraft, Capability.HAS_UPDATES)
        if self.bn:
            view.threat.require(Capability.HAS_BN)
        model, layers = craft.network().eval(), slice(None) if self.bn else slice(0)
        guesses: dict[int, Guess] = {}
        for found in uploads(view, craft, model, questions, self.most, layers, rng):
            for i, place in enumerate(found.places):
                shown = {name: (mean[i], variance[i]) for name, (mean, variance) in found.moments.items()}
                images = self.inverted(
                    model, found.changes[i], found.labels[i], shown, found.start[i], found.likely[i], found.own, rng
                )
                guesses[place] = Labelled.told(images, found.shares[i])
        return [guesses[i] for i in range(len(questions))], known_shares(view, blind_sets(view, self.most, rng))

    def inverted(
        self,
        model: nn.Module,
        change: State,
        labels: Tensor,
        shown: Mapping[str, Moments],
        start: Tensor,
        likely: Tensor,
        own: bool,
        rng: torch.Generator,
    ) -> Tensor:
        """Images (n, 3, H, W) with these labels (n,) that would change the model so.

        Args:
            model: As it was sent, in evaluation mode.
            change: By parameter, sent minus trained, in any unit.
            labels: Of the batch.
            shown: By layer, the batch statistics that came along, if any.
            start: (n, 3, H, W) to start near.
            likely: (n, 3, H, W) to stay near, as far as `prior` says.
            own: Whether BatchNorm, if there is any, normalised by the batch's own statistics; else by its buffers.
            rng: Of the starts.
        """
        asked = _row([change[name] for name, _ in model.named_parameters()])
        length = asked.norm().clamp_min(1e-12)

        def objective(images: Tensor) -> Tensor:
            (batch,) = images
            made = _row(self._made(model, batch, labels))
            cosine = made @ asked / (length * (made @ made + 1e-12).sqrt())
            value: Tensor = 1 - cosine + self.tv * total_variation(batch).mean()
            if self.prior:
                value = value + self.prior * (batch - likely).square().mean()
            if shown:
                value = value + self.bn * apart(seen, shown)[0]
            return value[None]

        with watched(model, 1, own) as seen:
            return descend(objective, around(start[None], self.restarts, rng), self.steps, self.lr, self.signed)[0]

    def _made(self, model: nn.Module, images: Tensor, labels: Tensor) -> list[Tensor]:
        """What training on the images takes away from the parameters, in any unit, differentiable."""
        begun: dict[str, Tensor] = dict(model.named_parameters())
        now = begun
        for _ in range(max(1, self.unrolled)):
            loss = nn.functional.cross_entropy(functional_call(model, now, (images,)), labels)
            slopes = torch.autograd.grad(loss, list(now.values()), create_graph=True)
            if not self.unrolled:
                return list(slopes)
            now = {name: now[name] - self.unrolled_lr * slope for name, slope in zip(now, slopes, strict=True)}
        return [begun[name] - now[name] for name in now]


def _row(tensors: Sequence[Tensor]) -> Tensor:
    """All their numbers (P,), one tensor after the other."""
    return torch.cat([tensor.flatten() for tensor in tensors])
