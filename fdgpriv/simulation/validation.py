"""Artifact kind: the accuracies that clients report on the models they receive, over all rounds (LSI, CCST)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import ValidationHistory, ValidationMetrics
from fdgpriv.federation.held_out import held_out_for
from fdgpriv.models.cpu_io import with_cpu_io
from fdgpriv.results.utility import logits
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, DefendedSimulator, Simulator, answered
from fdgpriv.threat import Capability
from fdgpriv.utils.seeds import generator


@dataclass(frozen=True, eq=False)
class ValidationSimulator(ClientSimulator, DefendedSimulator):
    """The answer of the method's own client to the server's request for its accuracy on held-out images.

    For n images the client holds out as many as a client of that size does, drawn from all of the party's images, the n
    included. Images that were trained on raise accuracies, which makes these less informative. The request for accuracies
    is sent with a model only.

    Attributes:
        models: The model of each accuracy; where that one was not recorded, the next recorded one.
    """

    models: Sequence[ModelState]

    kind = ValidationHistory.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        count = held_out_for(len(sample.index), self.federation.held_out)
        held_out = torch.randperm(len(sample.party.images), generator=rng)[:count]
        client = self.client(sample, rng, ClientSample(sample.party, held_out))
        distinct = {id(model): model for model in self.models}
        answers = {key: answered(client, self.verb, model, ValidationMetrics) for key, model in distinct.items()}
        return [answers[id(model)] for model in self.models]

    def read(self, shared: Message, sample: ClientSample) -> Artifact:
        return joined(shared)

    @property
    def defended(self) -> bool:
        """Whether the defense changes the accuracies."""
        return self.defense.alters(ValidationMetrics.kind)

    def correct(self, images: Tensor, labels: Tensor) -> Tensor:
        """(N, T): 1 where a model names an image (N, 3, H, W) right, else 0; accuracies are means over held-out images."""
        network = with_cpu_io(self.method.model(self.federation, generator(0)).to(self.federation.device))
        columns = {}
        for model in {id(model): model for model in self.models}.values():
            model.load_into(network)
            columns[id(model)] = (logits(network, images).argmax(1) == labels).float()
        return torch.stack([columns[id(model)] for model in self.models], dim=1)

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The accuracies (T,)."""
        assert isinstance(artifact, ValidationHistory)
        return artifact.accuracies.float()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        return ValidationHistory(client=SERVER, round=self.models[-1].round, accuracies=row.clamp(0, 1).double())


def joined(metrics: Sequence[Artifact]) -> ValidationHistory:
    """Several rounds' accuracies as one artifact with the metadata of the last."""
    accuracies = torch.stack([metric.tensors()["accuracy"].double() for metric in metrics])
    return ValidationHistory(client=metrics[-1].client, round=metrics[-1].round, accuracies=accuracies)


def validation_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The accuracies of all rounds in which all clients of the last round reported one, where its model is recorded."""
    shared: dict[tuple[int, str], dict[str, Artifact]] = {}
    for record, artifact in run.transcript.of_kind(ValidationMetrics.kind):
        if artifact is not None:
            shared.setdefault((record.round, record.verb), {})[record.origin] = artifact
    if not shared:
        return None
    clients = tuple(list(shared.values())[-1])
    times = [time for time, by_client in shared.items() if by_client.keys() >= set(clients)]
    models: list[ModelState] = []
    for time in reversed(times):
        model = run.transcript.model_sent(*time) or next(iter(models), None)
        if model is None:
            return None
        models.insert(0, model)
    return ArtifactSeries(
        simulator=ValidationSimulator(
            run.method, run.federation, run.defense, run.client_template, times[-1][1], models
        ),
        level="client",
        wire={name: joined([shared[time][name] for time in times]) for name in clients},
        clients=clients,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.SEES_ALL_ROUNDS}),
        expensive=True,
        name=ValidationMetrics.kind,
    )
