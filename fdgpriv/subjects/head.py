"""The classifier head that a client shares after training alone, as a subject (LSI's stage 1)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.artifact import SERVER, Artifact, ModelState
from fdgpriv.federation import Federation, LocalData
from fdgpriv.roles import Defense, Method
from fdgpriv.states import ClassifierHead
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .answer import answered
from .subject import Craft, Holding, Subject, like_any


@dataclass(frozen=True, eq=False)
class HeadCraft(Craft):
    """The head of a model that the method's own client trains alone, asked for it as the server asked.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its augmentation and its place in the federation.
        verb: By which heads are asked for.
    """

    method: Method
    federation: Federation
    defense: Defense
    like: LocalData
    verb: str

    kind = ClassifierHead.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        head, _ = self.trained(held, index, rng)
        return self.defense.protect(head, rng) if defended else head

    def trained(self, held: Holding, index: Tensor, rng: torch.Generator) -> tuple[ClassifierHead, Any]:
        """The head that a client with the images at `index` (m,) trains, undefended, and its model in evaluation mode."""
        assert held.sent is not None
        data = replace(self.like, images=held.images[index], labels=held.labels[index])
        client: Any = self.method.client(self.federation, data, rng)
        head = answered(client, self.verb, held.sent, ClassifierHead)
        return head, client.model.eval()

    def synthesised(self, head: ClassifierHead, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Latents (N, p), and their classes (N,), that the method's server itself makes of this head."""
        method: Any = self.method
        alone = replace(self.federation, clients=(head.client,))
        found, _, _ = method.synthesised(alone, {head.client: [head]}, rng)
        return found.latents, found.labels

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """How its statistics and its layer differ from the head that was sent, in one row."""
        assert sent is not None
        own = artifact.tensors()
        return torch.cat([(own[name].float() - start.float()).flatten() for name, start in _head(own, sent).items()])

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        assert sent is not None
        state, begin = {}, 0
        names = [name.removeprefix(_PREFIX) for name in sent.state if name.startswith(_PREFIX)]
        for name, start in _head(dict.fromkeys(names, row), sent).items():
            change = row[begin : begin + start.numel()].view_as(start)
            begin += start.numel()
            state[name] = start + (change if start.is_floating_point() else change.round().to(start.dtype))
            if name.endswith("running_var"):
                state[name] = state[name].clamp_min(1e-5)
        return ClassifierHead(client=SERVER, round=0, state=state)


_PREFIX = "head."


def _head(named: Mapping[str, Tensor], sent: ModelState) -> dict[str, Tensor]:
    """The tensors of these names in the model that was sent."""
    return {name: sent.state[_PREFIX + name] for name in named}


def head_subject(
    transcript: Transcript,
    method: Method,
    federation: Federation,
    defense: Defense,
    clients: Mapping[str, LocalData],
    sent: Mapping[str, ModelState],
) -> Subject[Craft] | None:
    """The heads that clients shared, where the models that they began with are kept.

    Args:
        transcript, method, federation, defense: As trained.
        clients: What each holds.
        sent: By client or shadow, the model it began with; empty where none is kept.
    """
    shared = {r.origin: (r.verb, a) for r, a in transcript.of_kind(ClassifierHead.kind) if a is not None}
    if not shared or not sent:
        return None
    empty = like_any(clients)
    verb = next(verb for verb, _ in shared.values())
    return Subject(
        craft=HeadCraft(method, federation, defense, empty, verb),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        sent=sent,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        costly=True,
    )
