"""What an audit must know of a method beside its model, server and client: how often and how its artifacts come to be.

All of it is public. A method that discloses nothing is audited with what the transcript alone allows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self, cast

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.moments import Moments, StyleRule, styles_of
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Server
from fdgpriv.federation.federation import Federation
from fdgpriv.models.backbone import Backbone


class PlainTraining(Protocol):
    """How a client trains on cross-entropy alone, which adversaries imitate."""

    @property
    def elementwise_optimizer(self) -> bool:
        """Whether the optimiser is elementwise, so that several models can be trained as one."""

    def train_plainly(
        self, model: nn.Module, data: ClientData, round: int, rng: torch.Generator, device: torch.device
    ) -> None:
        """Trains `model` in place as a client does in this round, on cross-entropy alone."""

    def plain_batches(self, data: ClientData, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """The augmented batches that `train_plainly` makes a step of each: images (B, 3, H, W) and labels (B,)."""

    def ready(self, model: nn.Module, n: int) -> None:
        """Puts `model` into the mode in which a client with n images trains it."""

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        """A fresh optimiser for this round."""

    def steps(self, n: int) -> int:
        """How many mini-batches a client that has n images trains on in a round."""


class StyleSource:
    """How the styles that a method shares are taken: here from features of the global model's own backbone.

    Attributes:
        frozen_encoder: Whether styles come from a public network that training does not change.
        normalises_jointly: Whether an image's style depends on the client's other images, since batch statistics
            normalise its features.
    """

    frozen_encoder: ClassVar[bool] = False
    normalises_jointly: ClassVar[bool] = False

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        """The layers at which `features` can be taken."""
        return tuple(cast(Backbone, model.backbone).stages)

    def features(self, model: nn.Module, layer: str) -> Callable[[Tensor], Tensor]:
        """The public encoder: images (B, 3, H, W) to features (B, C, h, w)."""
        backbone = cast(Backbone, model.backbone)
        return lambda images: backbone.features(images, layer)

    def of_client(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule) -> Moments:
        """Mean and std (n, C) of the features of each image (n, 3, H, W) of one client that holds these; `model` is kept."""
        device = next(model.parameters()).device
        encoder = self.features(model, layer)
        mean, std = styles_of(images, lambda part: encoder(part.to(device)), rule)
        return mean.cpu(), std.cpu()

    def in_frame_of(self, model: nn.Module, images: Tensor, layer: str) -> nn.Module:
        """A model that normalises one image as among those of a client that holds `images` (n, 3, H, W), up to `layer`."""
        return model


@dataclass(frozen=True, eq=False)
class Disclosure:
    """What one configured method discloses.

    Attributes:
        method: Its name.
        otherwise: At most how often one client's artifact leaves it in a run, of kinds that `often` does not name.
        often: The same by kind.
        single_image_kinds: Kinds whose artifacts describe one image each, so that a client shares as many as it has images.
        style_rule: How shared styles are taken and pooled; None where none are shared, or plain averages.
        styles: How they come to be.
        training: How clients train; None where it does not say.
        sent_as: By kind, what the ledger calls artifacts of it that the server sends to clients, if not by their kind.
        interpolation: Makes the one style that the server broadcasts from its clients'; None where it makes none.
    """

    method: str
    otherwise: int
    often: Mapping[str, int] = field(default_factory=dict)
    single_image_kinds: frozenset[str] = frozenset()
    style_rule: StyleRule | None = None
    styles: StyleSource = field(default_factory=StyleSource)
    training: PlainTraining | None = None
    sent_as: Mapping[str, str] = field(default_factory=dict)
    interpolation: Callable[[Sequence[StyleStatistics]], InterpolationStyle] | None = None

    def releases(self, kind: str) -> int:
        """At most how often one client's artifact of this kind leaves it in a run; of single images', one image's."""
        return self.often.get(kind, self.otherwise)

    def per_image(self, kind: str) -> bool:
        """Whether an artifact of this kind describes one image."""
        return kind in self.single_image_kinds


class FederatedMethod(Protocol):
    """What engines and simulators drive."""

    rounds: int

    @classmethod
    def name(cls) -> str:
        """As the command line names it."""

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        """The global model as it starts."""

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        """The server's generator."""

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
        """A client: an object with one method for each verb."""

    def cut_to(self, clients: int) -> Self:
        """The same for a federation of so few clients."""

    def disclosure(self) -> Disclosure:
        """What it discloses."""
