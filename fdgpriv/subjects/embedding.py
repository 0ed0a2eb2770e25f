"""The embedding that a client computes of its data for a hypernetwork, as a subject (hFedF with autoencoders)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifact import SERVER, Artifact, ModelState
from fdgpriv.federation import Federation, LocalData
from fdgpriv.kinds import ClientEmbedding
from fdgpriv.roles import Defense, Method
from fdgpriv.states import AutoencoderState
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .answer import answered
from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class EmbeddingCraft(Craft):
    """What the method's own client answers, asked as the server asked, from the autoencoder that the server sent.

    A client trains the autoencoder on its training images and embeds its validation images; here the images at hand
    stand for both.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its augmentation and its place in the federation.
        verb: By which embeddings are asked for.
        start: The autoencoder that all clients were sent.
    """

    method: Method
    federation: Federation
    defense: Defense
    like: LocalData
    verb: str
    start: AutoencoderState

    kind = ClientEmbedding.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        images, labels = held.images[index], held.labels[index]
        data = replace(self.like, images=images, labels=labels, held_out_images=images, held_out_labels=labels)
        client = self.method.client(self.federation, data, rng)
        made = answered(client, self.verb, self.start, ClientEmbedding)
        return self.defense.protect(made, rng) if defended else made

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """The embedding (e,)."""
        assert isinstance(artifact, ClientEmbedding)
        return artifact.vector.float()

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        return ClientEmbedding(client=SERVER, round=0, vector=row)


def embedding_subject(
    transcript: Transcript, method: Method, federation: Federation, defense: Defense, clients: Mapping[str, LocalData]
) -> Subject[Craft] | None:
    """The embeddings that clients computed; None where none did, or the autoencoder they began with is not kept."""
    shared = {r.origin: (r.verb, a) for r, a in transcript.of_kind(ClientEmbedding.kind) if a is not None}
    starts = [a for _, a in transcript.of_kind(AutoencoderState.kind) if isinstance(a, AutoencoderState)]
    if not shared or not starts:
        return None
    verb = next(verb for verb, _ in shared.values())
    return Subject(
        craft=EmbeddingCraft(method, federation, defense, next(iter(clients.values())), verb, starts[0]),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        costly=True,
    )
