"""Reads the styles in a transcript: each client's artifact, its receivers, and the models that computed styles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.moments import RULES, Moments, maps_of, styles_of
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.federation.disclosure import FederatedMethod, StyleSource
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.models.copied import copied
from fdgpriv.simulation.relays import receiver_of, relayed_to
from fdgpriv.utils.cache import CacheOfTensors
from fdgpriv.utils.seeds import generator

T = TypeVar("T")
MAX_CACHED_CLIENTS = 4096  # simulated clients whose styles are cached, enough for one adversary


@dataclass(frozen=True, eq=False)
class RecordedStyles:
    """The style statistics of the last round in which any were shared.

    Attributes:
        wire: By client, its last artifact.
        receiver: By client whose artifact was relayed, one of its receivers: the one halfway around their list.
        source: Computes styles.
        model: The global model of that round, in evaluation mode.
        receivers: By client, all other clients that received its artifact.
        earlier: By client, its artifact of the first such round, if that is another round.
        past: For each earlier round in which all of these clients shared, in order, their artifacts and the model of the
            round; None for the same model.
    """

    wire: Mapping[str, StyleStatistics]
    receiver: Mapping[str, str]
    source: StyleSource
    model: nn.Module
    receivers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    earlier: Mapping[str, StyleStatistics] = field(default_factory=dict)
    past: Sequence[tuple[Mapping[str, StyleStatistics], ModelState | None]] = ()
    _of_clients: CacheOfTensors[Moments] = field(default_factory=lambda: CacheOfTensors(MAX_CACHED_CLIENTS), init=False)
    _by_images: CacheOfTensors[Any] = field(default_factory=CacheOfTensors, init=False)

    @classmethod
    def of(
        cls, transcript: Transcript, method: FederatedMethod, federation: Federation, seed: int
    ) -> "RecordedStyles | None":
        """The recorded styles in `transcript`; None if no style was recorded together with its model."""
        source = method.disclosure().styles
        by_round = _styles_by_round(transcript, needs_model=not source.frozen_encoder)
        if not by_round:
            return None
        first, last = min(by_round), max(by_round)
        clients = dict.fromkeys(client for shared in by_round.values() for client in shared)
        wire = {client: by_round[last][client] for client in clients if client in by_round[last]}
        model = method.model(federation, generator(seed, 4))
        if (state := transcript.model_sent(last)) is not None:
            state.load_into(model)
        receivers = relayed_to(transcript, StyleStatistics.kind)
        return cls(
            wire=wire,
            receiver=receiver_of(receivers, list(clients)),
            source=source,
            model=model.eval(),
            receivers={name: frozenset(receiving) for name, receiving in receivers.items()},
            earlier=by_round[first] if first < last else {},
            past=[
                (shared, transcript.model_sent(round))
                for round, shared in sorted(by_round.items())
                if round < last and shared.keys() >= wire.keys()
            ],
        )

    @cached_property
    def rounds(self) -> tuple["RecordedStyles", ...]:
        """The recorded styles of each round in which all of these clients shared, in order."""
        by_round = []
        for wire, state in self.past:
            model = self.model if state is None else copied(self.model)
            if state is not None:
                state.load_into(model)
            by_round.append(replace(self, wire=wire, model=model, earlier={}, past=()))
        return (*by_round, self)

    @property
    def template(self) -> StyleStatistics:
        """One recorded artifact, as an example of their form."""
        return next(iter(self.wire.values()))

    def layers(self) -> tuple[str, ...]:
        """The layers at which styles could be computed."""
        return self.source.layers(self.model)

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether an image's style depends on the other images of its client."""
        return self.source.uses_batch_statistics

    def of_client(self, images: Tensor, layer: str, index: Tensor | None = None) -> Moments:
        """Mean and std (n, C) of each image's features as a client computes them; cached.

        Args:
            images: (N, 3, H, W).
            layer: The layer's name.
            index: (n,) indices of the client's images, in its order; None for all.
        """

        def computed() -> Moments:
            selected = images if index is None else images[index]
            return self.source.of_client(self.model, selected, layer, RULES[self.template.rule])

        index_key = None if index is None else index.numpy().tobytes()
        return self._of_clients.get((images,), (layer, index_key), computed)

    def of_clients(self, images: Tensor, layer: str, clients: Tensor) -> Moments:
        """Mean and std (M, n, C), as `of_client`, of M clients with the images at `clients` (M, n) each; never cached."""
        return self.source.of_clients(self.model, images, layer, RULES[self.template.rule], clients)

    def styles(self, images: Tensor, layer: str, among: Tensor | None = None) -> Moments:
        """Mean and std (N, C) of the features of images (N, 3, H, W) at `layer`, by the recorded rule; cached.

        Args:
            images: Each is processed independently of the others.
            layer: The layer's name.
            among: Images (n, 3, H, W) of a client whose batch statistics normalise `images`, if styles depend on them;
                None for an image alone.
        """
        return self._cached(styles_of, images, layer, among)

    def moments(self, images: Tensor, layer: str, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `styles`, for any images (N, 3, H, W), with gradients; never cached."""
        return RULES[self.template.rule](self.source.features(self._framed(layer, among), layer)(images))

    def maps(self, images: Tensor, layer: str) -> Tensor:
        """Features (N, D) by which the recorded rule clusters images in addition to styles, or (N, 0); cached."""
        return self._cached(maps_of, images, layer, None)

    def _cached(self, function: Callable[..., T], images: Tensor, layer: str, among: Tensor | None) -> T:
        """The cached result of a function of images, features and the rule."""

        def computed() -> T:
            return function(images, self.source.features(self._framed(layer, among), layer), RULES[self.template.rule])

        frame = (among,) if self.uses_batch_statistics and among is not None else ()
        cached: T = self._by_images.get((images, *frame), (function, layer), computed)
        return cached

    def _framed(self, layer: str, among: Tensor | None) -> nn.Module:
        """The model that normalises with the batch statistics of a client that has the images `among`."""
        if among is None or not self.uses_batch_statistics:
            return self.model

        model: nn.Module = self._by_images.get(
            (among,), ("frame", layer), lambda: self.source.in_frame_of(self.model, among, layer)
        )
        return model


def _styles_by_round(transcript: Transcript, needs_model: bool) -> dict[int, dict[str, StyleStatistics]]:
    """By round and client, the latest style that the client shared; if `needs_model`, of rounds with a recorded model."""
    by_round: dict[int, dict[str, StyleStatistics]] = {}
    for record, artifact in transcript.of_kind(StyleStatistics.kind):
        if record.receiver != SERVER or not isinstance(artifact, StyleStatistics):
            continue
        if needs_model and transcript.model_sent(record.round) is None:
            continue
        by_round.setdefault(artifact.round, {})[record.origin] = artifact
    return by_round
