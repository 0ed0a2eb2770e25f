"""Public facts about a method's artifacts that audits use: number of releases, style computation, client training.

A method that discloses nothing is audited with the attacks that the transcript alone allows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self, cast

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import Moments, StyleRule, styles_of
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, RepresentationTranslator
from fdgpriv.artifacts.prototypes import ClassPrototypes, ClusterPrototypes
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Server
from fdgpriv.federation.weights import Weights
from fdgpriv.models.backbone import Backbone
from fdgpriv.models.cpu_io import device_of

_COMPUTED_FROM = {  # for each kind that only the server sends: the kind of the clients' artifacts it is computed from
    InterpolationStyle.kind: StyleStatistics.kind,
    RepresentationTranslator.kind: ClassifierHead.kind,
    ClusterPrototypes.kind: ClassPrototypes.kind,
}


class PlainTraining(Protocol):
    """A client's training on cross-entropy alone, which adversaries simulate."""

    @property
    def elementwise_optimizer(self) -> bool:
        """Whether the optimiser is elementwise, so that several models can be trained as one."""

    def train_plainly(self, model: nn.Module, data: ClientData, round: int, rng: torch.Generator) -> None:
        """Trains `model` in place as a client does in this round, on cross-entropy alone."""

    def plain_batches(self, data: ClientData, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """The augmented batches of `train_plainly`, one per step: images (B, 3, H, W) and labels (B,)."""

    def ready(self, model: nn.Module, n: int) -> None:
        """Sets the training or evaluation mode of `model`'s layers as a client with n images does."""

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        """A new optimiser for this round."""

    def steps(self, n: int) -> int:
        """Number of mini-batches per round of a client with n images."""


class StyleSource:
    """Computes the styles that a method shares; by default from features of the global model's backbone.

    Attributes:
        frozen_encoder: Whether the encoder is a public network that is not trained.
        uses_batch_statistics: Whether an image's style depends on the client's other images through batch statistics.
    """

    frozen_encoder: ClassVar[bool] = False
    uses_batch_statistics: ClassVar[bool] = False

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        """The layers at which `features` can be taken."""
        return tuple(cast(Backbone, model.backbone).stages)

    def features(self, model: nn.Module, layer: str) -> Callable[[Tensor], Tensor]:
        """The public encoder: images (B, 3, H, W) to features (B, C, h, w)."""
        backbone = cast(Backbone, model.backbone)
        return lambda images: backbone.features(images, layer)

    def of_client(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule) -> Moments:
        """Mean and std (n, C) of the features of each of one client's images (n, 3, H, W); `model` is not changed."""
        device = device_of(model)
        encoder = self.features(model, layer)
        mean, std = styles_of(images, lambda part: encoder(part.to(device)), rule)
        return mean.cpu(), std.cpu()

    def of_clients(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule, clients: Tensor) -> Moments:
        """Mean and std (M, n, C), as `of_client`, of M clients with the images at `clients` (M, n) each."""
        mean, std = self.of_client(model, images, layer, rule)
        return mean[clients], std[clients]

    def in_frame_of(self, model: nn.Module, images: Tensor, layer: str) -> nn.Module:
        """A copy of `model` that normalises up to `layer` with the batch statistics of a client's `images` (n, 3, H, W).

        `model` itself if styles do not depend on batch statistics.
        """
        return model


@dataclass(frozen=True, eq=False)
class Disclosure:
    """Public facts about one configured method.

    Attributes:
        method: Its name.
        otherwise: Maximum number of releases per client and run, for kinds not in `often`.
        often: The same by kind.
        shares: Whether clients send anything at all.
        uploads: The kinds that clients send; empty if not stated.
        individual: The kinds in `uploads` that the server needs from each client; of other kinds it needs only the sum.
        named: The kinds in `uploads` whose senders the server must know.
        signed_importances: Whether importance weights may be negative.
        single_image_kinds: Kinds whose artifacts describe one image each: a client shares one per image.
        style_rule: Definition of the shared styles; None if none are shared, or plain averages.
        styles: Computes the shared styles.
        training: The clients' training; None if not disclosed.
        participants: Clients per round; None for all.
        sent_as: By kind, the ledger's name for artifacts that the server sends to clients, if not the kind.
        weights: The clients' weights in the server's averages; None if it takes none, or that is not stated.
        interpolation: Computes the style that the server broadcasts from its clients' styles; None if there is none.
        not_evaluated: By name of a series of artifacts that were transferred and cannot be evaluated, the reason.
        global_model: Builds the model that every client holds in a round from the part that the server sends to all and the
            clients' heads that it relays; None if it sends the whole model.
    """

    method: str
    otherwise: int
    often: Mapping[str, int] = field(default_factory=dict)
    shares: bool = True
    uploads: tuple[str, ...] = ()
    individual: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    signed_importances: bool = False
    single_image_kinds: frozenset[str] = frozenset()
    style_rule: StyleRule | None = None
    styles: StyleSource = field(default_factory=StyleSource)
    training: PlainTraining | None = None
    participants: int | None = None
    sent_as: Mapping[str, str] = field(default_factory=dict)
    weights: Weights | None = None
    interpolation: Callable[[Sequence[StyleStatistics]], InterpolationStyle] | None = None
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    global_model: Callable[[ModelState, Sequence[ClassifierHead]], ModelState] | None = None

    def releases(self, kind: str) -> int:
        """Maximum number of releases of this kind per client and run; per image for kinds of single images."""
        return self.often.get(kind, self.otherwise)

    def may_share(self, kind: str) -> bool:
        """Whether artifacts of this kind may cross the wire; true of all kinds where uploads are not stated.

        Names that are no artifact kind stand for models of several clients.
        """
        uploaded = _COMPUTED_FROM.get(kind, kind)
        return self.shares and (not self.uploads or uploaded in self.uploads or uploaded not in Artifact.kinds)

    def per_image(self, kind: str) -> bool:
        """Whether an artifact of this kind describes one image."""
        return kind in self.single_image_kinds


class FederatedMethod(Protocol):
    """The interface of a method for engines and simulators."""

    rounds: int

    @property
    def federated(self) -> bool:
        """Whether clients and a server train together."""

    @property
    def pools_images(self) -> bool:
        """Whether one participant trains on the images of all clients."""

    @classmethod
    def name(cls) -> str:
        """Its name on the command line."""

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        """The initial global model."""

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        """The server's generator."""

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
        """A client: an object with one method per verb."""

    def for_clients(self, clients: int) -> Self:
        """This method, adapted to a federation with this number of clients."""

    def undefended(self) -> Self:
        """This method with undefended training steps, on the same network."""

    def disclosure(self) -> Disclosure:
        """Its public facts."""
