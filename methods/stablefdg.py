"""StableFDG: clients share styles so that all may train on all (Park et al., "StableFDG", NeurIPS 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, Message, StyleStatistics
from fdgpriv.federation import Federation, LocalData
from fdgpriv.roles import Answers, Ask, Server
from fdgpriv.setup import Setup
from fdgpriv.style import DASSL, PAPER_EPS, Moments, StyleRule
from fdgpriv.upload import Wanted

from . import _wanted
from ._federation import FederatedSGD, load_average, model_state, shared_state
from ._highlighter import ATTENTIONS, HighlightedClassifier
from ._stable_batch import RELEASED_SHIFTS
from ._stable_client import StableFDGClient
from ._style_pass import styles_in_batches, with_statistics_of

_CHOICES = {
    "sharing": ("random", "farthest"),
    "shift_select": ("kmeans++", "random"),
    "oversample": ("balanced", "random"),
    "center": ("batch", "concat"),
    "attention": ATTENTIONS,
    "style_mode": ("train", "eval"),
}
_FROM_SCRATCH = {"exploration": 1.0, "lr": 0.05}


@dataclass(frozen=True)
class StableFDG(FederatedSGD):
    """The defaults are the paper's (section 4.1, App. G).

    The presets quick and default explore less far and learn more slowly: the paper's exploration of 3 presumes a
    pre-trained network, and slows one that starts from nothing.

    Attributes:
        exploration: alpha of Eq. 4-5.
        p: Probability of shifting, and at each layer of exploring (App. E.5).
        received: How many other clients' styles a client is sent (App. E.2); 0 shares none.
        sharing: ``random`` one to one without self, or ``farthest`` in style space (App. E.1).
        shift_select: Which half keeps its style: what k-means++ seeding picks, or random (App. E.3).
        oversample, oversample_size: Class-balanced or random, and how many; none for the batch size (App. E.4).
        style_mode: BatchNorm's mode while a client takes its style. ``train``: batch statistics, as while styles are
            shifted; in the first round styles are shared but not applied, as in the released code. ``eval``: running
            statistics, applied from the first round on; trained from scratch these lag behind the batches, and shifted
            features shrink.
        style_layer: The stage whose output styles are shared and shifted at.
        explore_layers: The stages after which styles are explored and mixed (App. E.6).
        attention, attention_dim, qk_norm: Of the highlighter (App. F; `_highlighter.Highlighter`).
        style_learning: Off leaves attention only (Table 3); nothing is shared then but models.
        mixing: Of Beta(mixing, mixing) in style mixing.
        literal_shift: Step 2 as its text has it, noise of one's own variance times the other's variance.
        center: Extrapolate around the styles of the ``batch`` (Eq. 4-5) or of ``concat``, batch and oversampled (text).
        clamp_sigma: Cut extrapolated stds at 0; Eq. 5 and the released code do not.
        code_compat: As the released code has it: styles of all clients every round, taken from augmented, shuffled whole
            batches; cluster centres written onto samples; exploration at the first active layer only; a constant learning
            rate; the attention's unused branch sent along. Left out of the release: the class-balanced batch of at most
            one image per class that it passes through the network beside each batch, as partners of images alone in
            their class (here another local image of the class), and with it the release's doubled BatchNorm counters;
            and its faulty derangement, which gives a client its own style in 7.6 % of rounds.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**FederatedSGD.presets["quick"], **_FROM_SCRATCH},
        "default": {**FederatedSGD.presets["default"], **_FROM_SCRATCH},
        "paper": {},
    }
    paper_setup: ClassVar[Setup] = Setup(clients=30, partition="single", backbone="resnet18", image_size=224)

    exploration: float = 3.0
    p: float = 0.5
    received: int = 1
    sharing: str = "random"
    shift_select: str = "kmeans++"
    oversample: str = "balanced"
    oversample_size: int | None = None
    style_mode: str = "train"
    style_layer: str = "layer1"
    explore_layers: tuple[str, ...] = ("layer1", "layer2", "layer3")
    attention: str = "mix"
    attention_dim: int = 30
    qk_norm: bool = True
    style_learning: bool = True
    mixing: float = 0.1
    literal_shift: bool = False
    center: str = "batch"
    clamp_sigma: bool = False
    code_compat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"stablefdg.{name}: want one of {', '.join(choices)}; got {getattr(self, name)!r}")
        if not 0 <= self.p <= 1:
            raise ValueError(f"stablefdg.p: want a probability, got {self.p}")
        if not 0 < self.mixing <= 1:
            raise ValueError(f"stablefdg.mixing: want more than 0 and at most 1, got {self.mixing}")
        for name, least in (("attention_dim", 1), ("received", 0), ("oversample_size", 0)):
            if (given := getattr(self, name)) is not None and given < least:
                raise ValueError(f"stablefdg.{name}: want at least {least}, got {given}")

    @property
    def shares_styles(self) -> bool:
        """Whether clients share style information at all."""
        return self.style_learning and self.received > 0

    @property
    def normalises_jointly(self) -> bool:
        return self.style_mode == "train" and self.buffers != "freeze"

    def client_styles(self, model: nn.Module, images: Tensor, layer: str, rule: StyleRule) -> Moments:
        if self.normalises_jointly:
            return styles_in_batches(model, images, layer, rule, self)
        return super().client_styles(model, images, layer, rule)

    def in_frame_of(self, model: nn.Module, images: Tensor, layer: str) -> nn.Module:
        return with_statistics_of(model, images, layer, self) if self.normalises_jointly else model

    def lr_at(self, round: int) -> float:
        return self.lr if self.code_compat else super().lr_at(round)

    def releases(self, kind: str) -> int:
        return self.rounds if kind != StyleStatistics.kind or self.shares_styles else 0

    def model(self, federation: Federation, rng: torch.Generator) -> HighlightedClassifier:
        return HighlightedClassifier(
            federation.backbone(rng),
            federation.classes,
            federation.image_size,
            rng,
            dim=self.attention_dim,
            kind=self.attention,
            qk_norm=self.qk_norm,
            released=self.code_compat,
        )

    def check(self, model: nn.Module) -> None:
        assert isinstance(model, HighlightedClassifier)
        for layer in (self.style_layer, *self.explore_layers):
            if layer not in model.backbone.stages:
                raise ValueError(f"stablefdg: want layers of {', '.join(model.backbone.stages)}; got {layer!r}")

    def check_data(self, data: LocalData) -> None:
        size = min(self.batch_size, len(data))
        if self.code_compat and self.shares_styles and self.p > 0 and size <= RELEASED_SHIFTS:
            least = RELEASED_SHIFTS + 1
            raise ValueError(f"stablefdg.code_compat: want batches of at least {least}, got {size} at {data.client}")

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        layer, rule = self.style_layer, DASSL if self.code_compat else PAPER_EPS
        style = _wanted.style(model.backbone.channels[layer], layer, rule.name, variances=True)
        for round in range(self.rounds):
            clients = federation.sample(self.participants, rng)
            state = shared_state(model, SERVER, round, self)
            message: dict[str, Message]
            if self.shares_styles and len(clients) > 1:
                asked = federation.clients if self.code_compat else clients
                styles = styles_in((yield Ask("style", {client: [state] for client in asked}, wanted=[style])))
                peers = self._peers(clients, styles, rng)
                message = {client: [styles[other] for other in others] for client, others in peers}
            else:
                message = {client: [state] for client in clients}
            states = model_state((yield Ask("fit", message, reduce="mean", wanted=[Wanted(state)])))
            load_average(model, list(states.values()))
        return model

    def _peers(
        self, clients: Sequence[str], styles: Mapping[str, StyleStatistics], rng: torch.Generator
    ) -> list[tuple[str, list[str]]]:
        """By client, whose styles it is sent."""
        received = min(self.received, len(clients) - 1)
        if self.sharing == "random":
            orders = derangements(len(clients), received, rng)
            return [(client, [clients[order[i]] for order in orders]) for i, client in enumerate(clients)]
        vectors = torch.stack([styles[client].vector() for client in clients])
        far = torch.cdist(vectors, vectors).fill_diagonal_(-1).argsort(dim=1, descending=True)[:, :received].tolist()
        return [(client, [clients[j] for j in row]) for client, row in zip(clients, far, strict=True)]

    def client(self, federation: Federation, data: LocalData, rng: torch.Generator) -> "StableFDGClient":
        return StableFDGClient(self, federation, data, rng)


def styles_in(answers: Answers) -> dict[str, StyleStatistics]:
    """By client, the style in its answer."""
    return {
        client: artifact
        for client, message in answers.items()
        for artifact in message
        if isinstance(artifact, StyleStatistics)
    }


def derangements(n: int, count: int, rng: torch.Generator) -> list[list[int]]:
    """`count` permutations of range(n) without fixed points, no two of which agree anywhere.

    One is uniform over all derangements. More are rotations of one random circle by different steps.

    Raises:
        ValueError: n < 2, or count >= n, where there are none.
    """
    if n < 2 or not 0 <= count < n:
        raise ValueError(f"want n >= 2 and at most n - 1 derangements, got n={n}, count={count}")
    if count == 1:
        while True:
            order = torch.randperm(n, generator=rng)
            if not bool((order == torch.arange(n)).any()):
                return [order.tolist()]
    circle = torch.randperm(n, generator=rng)
    place = circle.argsort()
    steps = (torch.randperm(n - 1, generator=rng)[:count] + 1).tolist()
    return [circle[(place + step) % n].tolist() for step in steps]
