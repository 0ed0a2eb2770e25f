"""Styles in a transcript: each client's artifact, its receivers, and the models that styles were computed under."""

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
CLIENTS_KEPT = 4096  # clients whose images' styles are cached: all simulated groups of one adversary


@dataclass(frozen=True, eq=False)
class RecordedStyles:
    """The style statistics of the last round in which any were shared.

    Attributes:
        wire: By client, the last artifact it shared.
        receiver: By client, one other client that received it, where any did; of several, the one halfway around the
            list.
        source: Computes styles.
        model: The global model of that round, in evaluation mode.
        receivers: By client, all other clients that received it.
        earlier: By client, its artifact of the first such round, if that is another.
        past: For each earlier round in which all of these clients shared too, in order, their artifacts and the model
            that styles were computed under; None for the same model.
    """

    wire: Mapping[str, StyleStatistics]
    receiver: Mapping[str, str]
    source: StyleSource
    model: nn.Module
    receivers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    earlier: Mapping[str, StyleStatistics] = field(default_factory=dict)
    past: Sequence[tuple[Mapping[str, StyleStatistics], ModelState | None]] = ()
    _of_clients: CacheOfTensors[Moments] = field(default_factory=lambda: CacheOfTensors(CLIENTS_KEPT), init=False)
    _taken: CacheOfTensors[Any] = field(default_factory=CacheOfTensors, init=False)

    @classmethod
    def of(
        cls, transcript: Transcript, method: FederatedMethod, federation: Federation, seed: int
    ) -> "RecordedStyles | None":
        """The recorded styles in `transcript`; None where no style was recorded together with the model it was computed
        under.
        """
        source = method.disclosure().styles
        sent: dict[str, StyleStatistics] = {}
        first: dict[str, StyleStatistics] = {}
        receivers = relayed_to(transcript, StyleStatistics.kind)
        by_round: dict[int, dict[str, StyleStatistics]] = {}
        for record, artifact in transcript.of_kind(StyleStatistics.kind):
            if not isinstance(artifact, StyleStatistics):
                continue
            if not source.frozen_encoder and transcript.model_sent(record.round) is None:
                continue
            if record.receiver == SERVER:
                sent[record.origin] = artifact
                first.setdefault(record.origin, artifact)
                by_round.setdefault(artifact.round, {})[record.origin] = artifact
        if not sent:
            return None
        last = max(artifact.round for artifact in sent.values())
        model = method.model(federation, generator(seed, 4))
        if (state := transcript.model_sent(last)) is not None:
            state.load_into(model)
        wire = {name: a for name, a in sent.items() if a.round == last}
        receiver = receiver_of(receivers, list(sent))
        begin = min(artifact.round for artifact in first.values())
        earlier = {name: a for name, a in first.items() if a.round == begin < last}
        past = [
            (shared, transcript.model_sent(round))
            for round, shared in sorted(by_round.items())
            if round < last and shared.keys() >= wire.keys()
        ]
        every = {name: frozenset(received) for name, received in receivers.items()}
        return cls(wire, receiver, source, model.eval(), every, earlier, past)

    @cached_property
    def rounds(self) -> tuple["RecordedStyles", ...]:
        """The recorded styles of each round in which all of these clients shared, the last one last."""
        by_round = []
        for wire, state in self.past:
            model = self.model if state is None else copied(self.model)
            if state is not None:
                state.load_into(model)
            by_round.append(replace(self, wire=wire, model=model, earlier={}, past=()))
        return (*by_round, self)

    @property
    def template(self) -> StyleStatistics:
        """One artifact as it is on the wire."""
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

        def taken() -> Moments:
            selected = images if index is None else images[index]
            return self.source.of_client(self.model, selected, layer, RULES[self.template.rule])

        index_key = None if index is None else index.numpy().tobytes()
        return self._of_clients.get((images,), (layer, index_key), taken)

    def of_clients(self, images: Tensor, layer: str, clients: Tensor) -> Moments:
        """Mean and std (M, n, C), as `of_client`, of M clients with the images at `clients` (M, n) each; never cached."""
        return self.source.of_clients(self.model, images, layer, RULES[self.template.rule], clients)

    def styles(self, images: Tensor, layer: str, among: Tensor | None = None) -> Moments:
        """Mean and std (N, C) of the features of images (N, 3, H, W) at `layer`, by the wire's rule; cached.

        Args:
            images: Each is processed independently of the others.
            layer: The layer's name.
            among: Images (n, 3, H, W) of a client in whose batches each of `images` is placed, where styles are
                computed jointly; None for an image on its own.
        """
        return self._cached(styles_of, images, layer, among)

    def moments(self, images: Tensor, layer: str, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `styles`, for any images (N, 3, H, W), with gradients; never cached."""
        return RULES[self.template.rule](self.source.features(self._framed(layer, among), layer)(images))

    def maps(self, images: Tensor, layer: str) -> Tensor:
        """Features (N, D) by which the wire's rule clusters images in addition to styles, or (N, 0); cached."""
        return self._cached(maps_of, images, layer, None)

    def _cached(self, take: Callable[..., T], images: Tensor, layer: str, among: Tensor | None) -> T:
        def taken() -> T:
            return take(images, self.source.features(self._framed(layer, among), layer), RULES[self.template.rule])

        frame = (among,) if self.uses_batch_statistics and among is not None else ()
        cached: T = self._taken.get((images, *frame), (take, layer), taken)
        return cached

    def _framed(self, layer: str, among: Tensor | None) -> nn.Module:
        """The model that normalises an image as in the batches of a client that holds `among`."""
        if among is None or not self.uses_batch_statistics:
            return self.model

        model: nn.Module = self._taken.get(
            (among,), ("frame", layer), lambda: self.source.in_frame_of(self.model, among, layer)
        )
        return model
