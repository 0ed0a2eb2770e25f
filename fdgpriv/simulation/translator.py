"""Artifact kind: the output for each client of the representation translator that the server broadcasts (LSI, stage 3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState, RepresentationTranslator
from fdgpriv.artifacts.statistics import TranslatedLatents
from fdgpriv.models.cpu_io import device_of
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, Simulator, asked
from fdgpriv.utils.seeds import generator

_LATENTS = 256  # drawn from N(0, 1), the same for every translator


@dataclass(frozen=True, eq=False)
class TranslatorSimulator(ClientSimulator):
    """Simulates the method's own server: trains a translator from the heads of a federation.

    The translator is one artifact for all clients, with a mapping to each client's position. The artifact of a client is
    the output for fixed latents at its position, minus the mean over all positions. The request is the one for heads.
    """

    kind = TranslatedLatents.kind
    needs_all_clients = True

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> Artifact:
        """The artifact of a federation of this client only."""
        (artifact,) = self.simulate_jointly([sample], rng)
        return artifact

    def simulate_jointly(self, samples: Sequence[ClientSample], rng: torch.Generator) -> list[Artifact]:
        names = tuple(f"client-{i:02d}" for i in range(len(samples)))
        federation = replace(self.federation, clients=names)
        answers: dict[str, Message] = {}
        for name, sample in zip(names, samples, strict=True):
            template = replace(self.client_template, client=name)
            client = replace(self, federation=federation, client_template=template).client(sample, rng)
            answer = asked(client, self.verb, [sample.received_model])
            if sample.defended:
                answer = [self.defense.shared(artifact, rng, sample.received_model) for artifact in answer]
            answers[name] = answer
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
        moments = torch.stack([torch.cat([output.mean(0), output.std(0, correction=0)]) for output in outputs]).cpu()
        return [TranslatedLatents(client=SERVER, round=0, moments=row) for row in moments - moments.mean(0)]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """Moments (2p,)."""
        assert isinstance(artifact, TranslatedLatents)
        return artifact.moments

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return TranslatedLatents(client=SERVER, round=0, moments=row)


def translator_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The translator that all clients received; None if the models that they received are not recorded."""
    broadcast = [a for _, a in run.transcript.of_kind(RepresentationTranslator.kind) if a is not None]
    verbs = [record.verb for record, _ in run.transcript.of_kind(ClassifierHead.kind)]
    clients = run.federation.clients
    if not broadcast or not verbs or not run.first_models or len(clients) < 2:
        return None
    simulator = TranslatorSimulator(run.method, run.federation, run.defense, run.client_template, verbs[0])
    method: Any = run.method
    translator = method.received(broadcast[-1], len(clients), generator(run.federation.seed, 16))
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire=dict(zip(clients, simulator.translated(translator, len(clients)), strict=True)),
        clients=clients,
        received_model=run.first_models,
        expensive=True,
        name=RepresentationTranslator.kind,
    )
