"""Artifact kind: the mean features of each class, which a client shares after local training (FPL)."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.prototypes import ClassPrototypes, ClusterPrototypes
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, DefendedSimulator, InRound, Simulator, asked
from fdgpriv.threat import Capability

_BATCH_SIZE = 256  # images


@dataclass(frozen=True, eq=False)
class PrototypeSimulator(ClientSimulator, DefendedSimulator):
    """The prototypes of the method's client after its training.

    Attributes:
        training_verb: The request to train, before the request for prototypes.
        broadcast: The cluster prototypes of the previous round, which the server sent with the model.
        shape: (K, D), shape of the features.
        first: Simulates prototypes of the first recorded round, if that is another round.
    """

    training_verb: str
    broadcast: tuple[ClusterPrototypes, ...]
    shape: tuple[int, int]
    first: InRound | None = None

    kind = ClassPrototypes.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        client = self.client(sample, rng)
        asked(client, self.training_verb, [sample.received_model, *self.broadcast])
        return asked(client, self.verb, [])

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """(K D + K,): the features of all classes, and whether each class is present."""
        assert isinstance(artifact, ClassPrototypes)
        return torch.cat([artifact.features.flatten(), artifact.present.float()])

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        assert isinstance(artifact, ClassPrototypes)
        return artifact.features.flatten()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return ClassPrototypes(client=SERVER, round=0, features=row.view(self.shape))

    @torch.no_grad()
    def features(self, images: Tensor, received_model: ModelState) -> Tensor:
        """Features (N, D) of images (N, 3, H, W) under the received model, in evaluation mode."""
        device = self.federation.device
        model: Any = self.method.model(self.federation, torch.Generator()).to(device).eval()
        received_model.load_into(model)
        return torch.cat([model.embedding(part.to(device)).cpu() for part in images.split(_BATCH_SIZE)])

    def in_first_round(self) -> InRound | None:
        return self.first


def prototype_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The prototypes of the last round for which these and the received models are recorded, and of earlier ones."""
    transcript = run.transcript
    uploads: dict[int, dict[str, Artifact]] = {}
    verbs: dict[int, str] = {}
    for record, artifact in transcript.of_kind(ClassPrototypes.kind):
        if record.receiver == SERVER and artifact is not None:
            uploads.setdefault(record.round, {})[record.origin] = artifact
            verbs[record.round] = record.verb
    models = {round: transcript.models_sent(round) for round in uploads}
    rounds = sorted(round for round, shared in uploads.items() if shared.keys() <= models[round].keys())
    if not rounds:
        return None
    sent = {r.round: r.verb for r, _ in transcript.of_kind(ModelState.kind) if r.sender == SERVER}
    clusters = {a.round: a for _, a in transcript.of_kind(ClusterPrototypes.kind) if isinstance(a, ClusterPrototypes)}

    def simulator(round: int) -> PrototypeSimulator:
        features = next(iter(uploads[round].values())).tensors()["features"]
        return PrototypeSimulator(
            run.method,
            run.federation,
            run.defense,
            run.client_template,
            verbs[round],
            sent[round],
            (clusters[round - 1],) if round - 1 in clusters else (),
            (features.shape[0], features.shape[1]),
        )

    received = {round: run.received_models(models[round]) for round in rounds}
    history = tuple(EarlierRound(round, simulator(round), uploads[round], received[round]) for round in rounds[:-1])
    last, started = rounds[-1], transcript.model_sent(rounds[0])
    first = InRound(history[0].simulator, started) if history and started is not None else None
    return ArtifactSeries(
        simulator=replace(simulator(last), first=first),
        level="client",
        wire=uploads[last],
        clients=tuple(uploads[last]),
        received_model=received[last],
        number=last,
        history=history,
        earlier=uploads[rounds[0]] if history else {},
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
        trained=True,
    )
