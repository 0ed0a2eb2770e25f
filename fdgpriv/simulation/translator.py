"""Artifact kind: the representation translator that the server broadcasts, read as each client (LSI, stage 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, RepresentationTranslator
from fdgpriv.artifacts.statistics import TranslatedLatents
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.models.cpu_io import device_of
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, Simulator, client_template
from fdgpriv.utils.seeds import generator

_LATENTS = 256  # drawn from N(0, 1), the same for every translator


@dataclass(frozen=True, eq=False)
class TranslatorSimulator(Simulator):
    """Simulates the method's own server: trains a translator from the heads of a federation.

    The translator is one artifact for all clients, with a separate mapping to each client's position. The artifact of a
    client is the output for the same latents at its position, minus the mean over all positions. It can only be
    simulated jointly.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its augmentation.
        verb: The request for heads.
    """

    method: FederatedMethod
    federation: Federation
    defense: Defense
    like: ClientData
    verb: str

    kind = TranslatedLatents.kind
    needs_all_clients = True

    def simulate(
        self,
        party: ClientImages,
        index: Tensor,
        rng: torch.Generator,
        *,
        granularity: str = "client",
        defended: bool = True,
    ) -> Artifact:
        """The artifact of a federation of this client only."""
        (artifact,) = self.simulate_jointly([(party, index)], rng, defended=defended)
        return artifact

    def simulate_jointly(
        self, parties: Sequence[tuple[ClientImages, Tensor]], rng: torch.Generator, *, defended: bool = True
    ) -> list[Artifact]:
        names = tuple(f"client-{i:02d}" for i in range(len(parties)))
        federation = replace(self.federation, clients=names)
        answers: dict[str, Message] = {}
        for name, (party, index) in zip(names, parties, strict=True):
            assert party.received_model is not None
            data = replace(self.like, client=name, pixels=party.images[index], labels=party.labels[index])
            client: Any = self.method.client(federation, data, rng)
            answer: Message = getattr(client, self.verb)([party.received_model])
            answers[name] = (
                [self.defense.shared(one, rng, party.received_model) for one in answer] if defended else answer
            )
        method: Any = self.method
        translator, _ = method.translator(federation, answers, rng)
        return list(self.translated(translator, len(names)))

    @torch.no_grad()
    def translated(self, translator: nn.Module, clients: int) -> Sequence[TranslatedLatents]:
        """The translator's output for each of `clients` clients."""
        method: Any = self.method
        latents = torch.randn(_LATENTS, method.latent_dim, generator=generator(self.federation.seed, 21))
        latents = latents.to(device_of(translator))
        source = torch.arange(_LATENTS, device=latents.device) % clients
        outputs = [translator(latents, source, torch.full_like(source, to)) for to in range(clients)]
        moments = torch.stack([torch.cat([one.mean(0), one.std(0, correction=0)]) for one in outputs]).cpu()
        return [TranslatedLatents(client=SERVER, round=0, moments=row) for row in moments - moments.mean(0)]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """Moments (2p,)."""
        assert isinstance(artifact, TranslatedLatents)
        return artifact.moments

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return TranslatedLatents(client=SERVER, round=0, moments=row)


def translator_series(
    transcript: Transcript,
    method: FederatedMethod,
    federation: Federation,
    defense: Defense,
    clients: Mapping[str, ClientData],
    received_model: Mapping[str, ModelState],
) -> ArtifactSeries[Simulator] | None:
    """The translator that all clients received, where the models they started from are recorded.

    Args:
        transcript, method, federation, defense: As trained.
        clients: The data of each.
        received_model: By client or shadow client, the model it started from; empty where none is recorded.
    """
    crossed = [a for _, a in transcript.of_kind(RepresentationTranslator.kind) if a is not None]
    verbs = [record.verb for record, _ in transcript.of_kind(ClassifierHead.kind)]
    if not crossed or not verbs or not received_model or len(clients) < 2:
        return None
    empty = client_template(clients)
    simulator = TranslatorSimulator(method, federation, defense, empty, verbs[0])
    trained: Any = method
    translator = trained.received(crossed[-1], len(clients), generator(federation.seed, 16))
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire=dict(zip(federation.clients, simulator.translated(translator, len(clients)), strict=True)),
        clients=federation.clients,
        received_model=received_model,
        expensive=True,
        name=RepresentationTranslator.kind,
    )
