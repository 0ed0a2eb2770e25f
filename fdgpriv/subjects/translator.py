"""What the server's translator makes of latents, place by place, as a subject (LSI's stage 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, Artifact, Message, ModelState
from fdgpriv.federation import Federation, LocalData, generator
from fdgpriv.kinds import TranslatedLatents
from fdgpriv.roles import Defense, Method
from fdgpriv.states import ClassifierHead, RepresentationTranslator
from fdgpriv.transcript import Transcript

from .subject import Craft, Holding, Subject, like_any

_LATENTS = 256  # of N(0, 1), the same for every translator


@dataclass(frozen=True, eq=False)
class TranslatorCraft(Craft):
    """What the method's own server answers a federation's heads with: a translator that knows each client's place.

    It is one artifact for all, and speaks of each place for itself: here that is what it makes of the same latents for a
    client, less what it makes of them for all. None comes to be without the others.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its augmentation.
        verb: By which heads are asked for.
    """

    method: Method
    federation: Federation
    defense: Defense
    like: LocalData
    verb: str

    kind = TranslatedLatents.kind
    together = True

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        """Of a federation of this client alone."""
        (made,) = self.make_all([(held, index)], rng, defended=defended)
        return made

    def make_all(
        self, parties: Sequence[tuple[Holding, Tensor]], rng: torch.Generator, *, defended: bool = True
    ) -> list[Artifact]:
        names = tuple(f"client-{i:02d}" for i in range(len(parties)))
        federation = replace(self.federation, clients=names)
        answers: dict[str, Message] = {}
        for name, (held, index) in zip(names, parties, strict=True):
            assert held.sent is not None
            data = replace(self.like, client=name, images=held.images[index], labels=held.labels[index])
            client: Any = self.method.client(federation, data, rng)
            answer: Message = getattr(client, self.verb)([held.sent])
            answers[name] = [self.defense.protect(one, rng) for one in answer] if defended else answer
        method: Any = self.method
        translator, _ = method.translator(federation, answers, rng)
        return list(self.told(translator, len(names)))

    @torch.no_grad()
    def told(self, translator: nn.Module, clients: int) -> Sequence[TranslatedLatents]:
        """What the translator of so many clients makes of each."""
        method: Any = self.method
        latents = torch.randn(_LATENTS, method.latent_dim, generator=generator(self.federation.seed, 21))
        latents = latents.to(self.federation.device)
        source = torch.arange(_LATENTS, device=latents.device) % clients
        made = [translator(latents, source, torch.full_like(source, to)) for to in range(clients)]
        moments = torch.stack([torch.cat([one.mean(0), one.std(0, correction=0)]) for one in made]).cpu()
        return [TranslatedLatents(client=SERVER, round=0, moments=row) for row in moments - moments.mean(0)]

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """Moments (2p,)."""
        assert isinstance(artifact, TranslatedLatents)
        return artifact.moments

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        return TranslatedLatents(client=SERVER, round=0, moments=row)


def translator_subject(
    transcript: Transcript,
    method: Method,
    federation: Federation,
    defense: Defense,
    clients: Mapping[str, LocalData],
    sent: Mapping[str, ModelState],
) -> Subject[Craft] | None:
    """The translator that all clients were sent, where the models that they began with are kept.

    Args:
        transcript, method, federation, defense: As trained.
        clients: What each holds.
        sent: By client or shadow, the model it began with; empty where none is kept.
    """
    crossed = [a for _, a in transcript.of_kind(RepresentationTranslator.kind) if a is not None]
    verbs = [record.verb for record, _ in transcript.of_kind(ClassifierHead.kind)]
    if not crossed or not verbs or not sent or len(clients) < 2:
        return None
    empty = like_any(clients)
    craft = TranslatorCraft(method, federation, defense, empty, verbs[0])
    trained: Any = method
    translator = trained.received(crossed[-1], len(clients), generator(federation.seed, 16))
    return Subject(
        craft=craft,
        level="client",
        wire=dict(zip(federation.clients, craft.told(translator, len(clients)), strict=True)),
        clients=federation.clients,
        sent=sent,
        costly=True,
        name=RepresentationTranslator.kind,
    )
