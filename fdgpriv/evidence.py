"""What a transcript shows of styles: what each client shared, who was sent it, the models it comes from."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor, nn

from fdgpriv.artifact import SERVER, ModelState, StyleStatistics
from fdgpriv.federation import Federation, generator
from fdgpriv.once import Once
from fdgpriv.roles import Method
from fdgpriv.style import RULES, Moments, maps_of, styles_of
from fdgpriv.transcript import Transcript

T = TypeVar("T")
CLIENTS_KEPT = 4096  # clients whose images' styles are kept: all practice groups of one adversary


@dataclass(frozen=True, eq=False)
class Evidence:
    """The style statistics of the last round in which any crossed.

    Attributes:
        wire: By client, what it shared; the last of several.
        receiver: By client, one other client that was sent it, where any was; of many, the one halfway round.
        method: Knows how features are taken.
        model: The global model of that round, in evaluation mode.
        earlier: By client, what it shared in the first such round, if that is another.
        past: Of each earlier round in which all of these clients shared too, in order, what they shared and the model
            that it was taken under; None for the same model.
    """

    wire: Mapping[str, StyleStatistics]
    receiver: Mapping[str, str]
    method: Method
    model: nn.Module
    earlier: Mapping[str, StyleStatistics] = field(default_factory=dict)
    past: Sequence[tuple[Mapping[str, StyleStatistics], ModelState | None]] = ()
    _of_clients: Once[tuple[Tensor, Moments]] = field(default_factory=lambda: Once(most=CLIENTS_KEPT), init=False)
    _taken: Once[Any] = field(default_factory=Once, init=False)  # images stay beside, so that their id stays theirs

    @classmethod
    def of(cls, transcript: Transcript, method: Method, federation: Federation, seed: int) -> "Evidence | None":
        """The evidence in `transcript`; None where no style is kept together with the model it was taken under."""
        sent: dict[str, StyleStatistics] = {}
        first: dict[str, StyleStatistics] = {}
        told: dict[str, list[str]] = {}
        by_round: dict[int, dict[str, StyleStatistics]] = {}
        for record, artifact in transcript.of_kind(StyleStatistics.kind):
            if not isinstance(artifact, StyleStatistics):
                continue
            if not method.frozen_encoder and transcript.model_sent(record.round) is None:
                continue
            if record.receiver == SERVER:
                sent[record.origin] = artifact
                first.setdefault(record.origin, artifact)
                by_round.setdefault(artifact.round, {})[record.origin] = artifact
                told.pop(record.origin, None)
            elif record.relayed and record.receiver != record.origin:
                told.setdefault(record.origin, []).append(record.receiver)
        if not sent:
            return None
        last = max(artifact.round for artifact in sent.values())
        model = method.model(federation, generator(seed, 4))
        if (state := transcript.model_sent(last)) is not None:
            state.load_into(model)
        wire = {name: a for name, a in sent.items() if a.round == last}
        receiver = {name: halfway(list(dict.fromkeys(told[name])), i) for i, name in enumerate(sent) if name in told}
        begin = min(artifact.round for artifact in first.values())
        earlier = {name: a for name, a in first.items() if a.round == begin < last}
        past = [
            (shared, transcript.model_sent(round))
            for round, shared in sorted(by_round.items())
            if round < last and shared.keys() >= wire.keys()
        ]
        return cls(wire, receiver, method, model.eval(), earlier, past)

    @cached_property
    def rounds(self) -> tuple["Evidence", ...]:
        """The evidence of each round of which it is kept for all of these clients, this one last."""
        found = []
        for wire, state in self.past:
            model = self.model if state is None else deepcopy(self.model)
            if state is not None:
                state.load_into(model)
            found.append(replace(self, wire=wire, model=model, earlier={}, past=()))
        return (*found, self)

    @property
    def template(self) -> StyleStatistics:
        """One artifact as it is on the wire."""
        return next(iter(self.wire.values()))

    def layers(self) -> tuple[str, ...]:
        """The stages at which styles could be taken."""
        return self.method.layers(self.model)

    @property
    def jointly(self) -> bool:
        """Whether an image's style depends on the other images of its client."""
        return self.method.normalises_jointly

    def of_client(self, images: Tensor, layer: str, index: Tensor | None = None) -> Moments:
        """Mean and std (n, C) of each image's features as a client takes them; computed once for the same images.

        Args:
            images: (N, 3, H, W).
            layer: Where.
            index: (n,) those of them that the client holds, in its order; None for all.
        """

        def taken() -> tuple[Tensor, Moments]:
            held = images if index is None else images[index]
            return images, self.method.client_styles(self.model, held, layer, RULES[self.template.rule])

        which = None if index is None else index.numpy().tobytes()
        return self._of_clients.get((id(images), layer, which), taken)[1]

    def styles(self, images: Tensor, layer: str, among: Tensor | None = None) -> Moments:
        """Mean and std (N, C) of the images' features (N, 3, H, W) at `layer`, by the wire's rule; computed once.

        Args:
            images: Each by itself, whatever stands beside it.
            layer: Where.
            among: Images (n, 3, H, W) of a client in whose batches each of `images` would be, where styles are taken
                jointly; None for an image that is alone.
        """
        return self._once(styles_of, images, layer, among)

    def moments(self, images: Tensor, layer: str, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `styles`, of any images (N, 3, H, W) and with gradients to them; never kept."""
        return RULES[self.template.rule](self.method.features(self._framed(layer, among), layer)(images))

    def maps(self, images: Tensor, layer: str) -> Tensor:
        """What the wire's rule clusters images by besides their styles (N, D), or nothing (N, 0); computed once."""
        return self._once(maps_of, images, layer, None)

    def _once(self, take: Callable[..., T], images: Tensor, layer: str, among: Tensor | None) -> T:
        def taken() -> tuple[Tensor, Tensor | None, T]:
            model = self._framed(layer, among)
            return images, among, take(images, self.method.features(model, layer), RULES[self.template.rule])

        frame = id(among) if self.jointly else None
        found: T = self._taken.get((take, id(images), layer, frame), taken)[2]
        return found

    def _framed(self, layer: str, among: Tensor | None) -> nn.Module:
        """The model that normalises an image as in the batches of a client that holds `among`."""
        if among is None or not self.jointly:
            return self.model

        def framed() -> tuple[Tensor, nn.Module]:
            return among, self.method.in_frame_of(self.model, among, layer)

        model: nn.Module = self._taken.get(("frame", id(among), layer), framed)[1]
        return model


def halfway(told: Sequence[str], place: int) -> str:
    """Of all that were told of the client at `place`, the one half the round further: mostly of another domain."""
    return told[(place + len(told) // 2) % len(told)]


def each_halfway(clients: Sequence[str]) -> dict[str, str]:
    """By client, the one half the round further."""
    return {name: halfway(clients, place) for place, name in enumerate(clients)}
