"""Artifact kind: the embedding of a client's data for a hypernetwork (hFedF with autoencoders)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import AutoencoderState, ModelState
from fdgpriv.artifacts.statistics import ClientEmbedding
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, DefendedSimulator, Simulator, answered
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class EmbeddingSimulator(ClientSimulator, DefendedSimulator):
    """The answer of the method's client to the server's request, from the autoencoder that it received.

    A client trains the autoencoder on its training images and embeds its validation images; in the simulation, both are
    the same images.

    Attributes:
        start: The autoencoder that all clients received.
    """

    start: AutoencoderState

    kind = ClientEmbedding.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        client = self.client(sample, rng, held_out=sample)
        return [answered(client, self.verb, self.start, ClientEmbedding)]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The embedding (e,)."""
        assert isinstance(artifact, ClientEmbedding)
        return artifact.vector.float()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return ClientEmbedding(client=SERVER, round=0, vector=row)


def embedding_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The embeddings of clients; None if there are none, or the initial autoencoder was not recorded."""
    shared = {r.origin: (r.verb, a) for r, a in run.transcript.of_kind(ClientEmbedding.kind) if a is not None}
    starts = [a for _, a in run.transcript.of_kind(AutoencoderState.kind) if isinstance(a, AutoencoderState)]
    if not shared or not starts:
        return None
    verb = next(verb for verb, _ in shared.values())
    return ArtifactSeries(
        simulator=EmbeddingSimulator(run.method, run.federation, run.defense, run.client_template, verb, starts[0]),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
    )
