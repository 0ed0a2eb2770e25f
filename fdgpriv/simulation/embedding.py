"""Artifact kind: the embedding that a client computes of its data for a hypernetwork (hFedF with autoencoders)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import AutoencoderState, ModelState
from fdgpriv.artifacts.statistics import ClientEmbedding
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, DefendedSimulator, Simulator, answered
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class EmbeddingSimulator(DefendedSimulator):
    """The answer of the method's own client to the server's request, from the autoencoder that it received.

    A client trains the autoencoder on its training images and embeds its validation images; in the simulation the same
    images serve as both.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its augmentation and its position in the federation.
        verb: The request for embeddings.
        start: The autoencoder that all clients received.
    """

    method: FederatedMethod
    federation: Federation
    defense: Defense
    like: ClientData
    verb: str
    start: AutoencoderState

    kind = ClientEmbedding.kind

    def answer(self, party: ClientImages, index: Tensor, rng: torch.Generator, granularity: str) -> Message:
        images, labels = party.images[index], party.labels[index]
        data = replace(self.like, pixels=images, labels=labels, held_out_pixels=images, held_out_labels=labels)
        client = self.method.client(self.federation, data, rng)
        return [answered(client, self.verb, self.start, ClientEmbedding)]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The embedding (e,)."""
        assert isinstance(artifact, ClientEmbedding)
        return artifact.vector.float()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return ClientEmbedding(client=SERVER, round=0, vector=row)


def embedding_series(
    transcript: Transcript,
    method: FederatedMethod,
    federation: Federation,
    defense: Defense,
    clients: Mapping[str, ClientData],
) -> ArtifactSeries[Simulator] | None:
    """The embeddings of clients; None where there are none, or the autoencoder they started from was not recorded."""
    shared = {r.origin: (r.verb, a) for r, a in transcript.of_kind(ClientEmbedding.kind) if a is not None}
    starts = [a for _, a in transcript.of_kind(AutoencoderState.kind) if isinstance(a, AutoencoderState)]
    if not shared or not starts:
        return None
    verb = next(verb for verb, _ in shared.values())
    return ArtifactSeries(
        simulator=EmbeddingSimulator(method, federation, defense, next(iter(clients.values())), verb, starts[0]),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
    )
