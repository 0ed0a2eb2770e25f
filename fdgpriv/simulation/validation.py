"""Artifact kinds: the accuracies or losses of received or trained models on clients' held-out images, over all rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import METRICS, ModelEvaluation, ValidationHistory, ValidationMetrics
from fdgpriv.federation.held_out import held_out_for
from fdgpriv.models.cpu_io import with_cpu_io
from fdgpriv.results.utility import logits
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, DefendedSimulator, Simulator, answered
from fdgpriv.threat import Capability
from fdgpriv.utils.seeds import generator

METRIC_OF_EACH: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": lambda logits, labels: (logits.argmax(1) == labels).float(),
    "loss": lambda logits, labels: nn.functional.cross_entropy(logits, labels, reduction="none"),
}


@dataclass(frozen=True, eq=False)
class ValidationSimulator(ClientSimulator, DefendedSimulator):
    """The answer of the method's client to the server's request for its accuracy on held-out images.

    For n images, the client holds out as many as a client of that size, drawn from all of the party's images including the
    n. Accuracies on training images are higher and less informative.

    Attributes:
        models: The model of each accuracy; the next recorded one if it was not recorded.
        metric: ``accuracy`` or ``loss``.
        own_models: Where each client evaluates the models that it trained: by id of the last one, all of them. Empty where
            all clients evaluate the models that they received.
    """

    models: Sequence[ModelState]
    metric: str = "accuracy"
    own_models: Mapping[int, Sequence[ModelState]] = field(default_factory=dict)

    kind = ValidationHistory.kind

    def of(self, last: ModelState | None) -> Self:
        """The simulator of the client whose last evaluated model this is."""
        return replace(self, models=self.own_models[id(last)], own_models={}) if self.own_models else self

    def held_out(self, sample: ClientSample, rng: torch.Generator) -> ClientSample:
        """The images that a client with the images of `sample` holds out: those of the party, if they are known."""
        if sample.party.held_out is not None and sample.granularity == "client":
            return ClientSample.all_of(sample.party.held_out)
        count = held_out_for(len(sample.index), self.federation.held_out)
        return ClientSample(sample.party, torch.randperm(len(sample.party.images), generator=rng)[:count])

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        client = self.client(sample, rng, self.held_out(sample, rng))
        distinct = {id(model): model for model in self.models}
        answers = {key: answered(client, self.verb, model, ValidationMetrics) for key, model in distinct.items()}
        return [answers[id(model)] for model in self.models]

    def read(self, shared: Message, sample: ClientSample) -> Artifact:
        return joined(shared)

    @property
    def defended(self) -> bool:
        """Whether the defense changes the accuracies."""
        return self.defense.alters(ValidationMetrics.kind)

    def of_each(self, images: Tensor, labels: Tensor) -> Tensor:
        """(N, T): each model's `metric` on each image (N, 3, H, W); a client shares the mean over its held-out images."""
        metric = METRIC_OF_EACH[self.metric]
        return torch.stack([metric(outputs, labels) for outputs in self.outputs(images)], dim=1)

    def outputs(self, images: Tensor) -> list[Tensor]:
        """The logits (N, K) of each of the T models on images (N, 3, H, W)."""
        network = with_cpu_io(self.method.model(self.federation, generator(0)).to(self.federation.device))
        by_model = {}
        for model in {id(model): model for model in self.models}.values():
            model.load_into(network)
            by_model[id(model)] = logits(network, images)
        return [by_model[id(model)] for model in self.models]

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """The values (T,)."""
        assert isinstance(artifact, ValidationHistory)
        return artifact.values.float()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        values = row.clamp(0, 1 if self.metric == "accuracy" else None).double()
        return ValidationHistory(client=SERVER, round=self.models[-1].round, values=values)


@dataclass(frozen=True, eq=False)
class EvaluationSimulator(ValidationSimulator):
    """The values of a metric of the evaluated models on the images that the client holds out, computed directly."""

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        held_out, simulator = self.held_out(sample, rng), self.of(sample.party.received_model)
        values, is_own = simulator.of_each(held_out.images, held_out.labels).mean(0), bool(self.own_models)
        return [
            ModelEvaluation(client=SERVER, round=model.round, value=value, metric=self.metric, trained=is_own)
            for model, value in zip(simulator.models, values, strict=True)
        ]

    @property
    def defended(self) -> bool:
        return self.defense.alters(ModelEvaluation.kind)


def joined(metrics: Sequence[Artifact]) -> ValidationHistory:
    """Several rounds' metrics as one artifact with the metadata of the last."""
    values = torch.stack([next(iter(metric.tensors().values())).double() for metric in metrics])
    return ValidationHistory(client=metrics[-1].client, round=metrics[-1].round, values=values)


def validation_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The accuracies of all rounds in which all clients of the last round reported one; None without recorded models."""
    return _metric_series(run, ValidationMetrics.kind)


def evaluation_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The evaluations of received models, as in `validation_series`; where there are none, those of trained models."""
    return _metric_series(run, ModelEvaluation.kind) or _own_series(run)


def _metric_series(run: RecordedRun, kind: str) -> ArtifactSeries[Simulator] | None:
    """The metrics of this kind, by client and over rounds."""
    shared: dict[tuple[int, str], dict[str, Artifact]] = {}
    for record, artifact in run.transcript.of_kind(kind):
        if artifact is not None and not (isinstance(artifact, ModelEvaluation) and artifact.trained):
            shared.setdefault((record.round, record.verb), {})[record.origin] = artifact
    if not shared:
        return None
    clients = tuple(list(shared.values())[-1])
    requests = [request for request, by_client in shared.items() if by_client.keys() >= set(clients)]
    models: list[ModelState] = []
    for request in reversed(requests):
        model = run.transcript.model_sent(*request) or next(iter(models), None)
        if model is None:
            return None
        models.insert(0, model)
    _, verb = requests[-1]
    arguments = run.method, run.federation, run.defense, run.client_template, verb, models
    example = shared[requests[-1]][clients[0]]
    simulator = (
        EvaluationSimulator(*arguments, metric=example.metric)
        if isinstance(example, ModelEvaluation)
        else ValidationSimulator(*arguments)
    )
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire={name: joined([shared[request][name] for request in requests]) for name in clients},
        clients=clients,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.SEES_ALL_ROUNDS}),
        expensive=True,
        name=kind,
    )


def _own_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """Each client's evaluations of the models that it trained and sent, losses where it shares both metrics.

    Of the rounds in which all clients of the last round trained, and whose models are recorded.
    """
    shared: dict[str, dict[int, dict[str, ModelEvaluation]]] = {}
    models: dict[int, dict[str, ModelState]] = {}
    verb = ""
    for record, artifact in run.transcript.of_kind(ModelEvaluation.kind):
        if isinstance(artifact, ModelEvaluation) and artifact.trained:
            verb = record.verb
            shared.setdefault(artifact.metric, {}).setdefault(record.round, {})[record.origin] = artifact
    for record, model in run.transcript.of_kind(ModelState.kind):
        if isinstance(model, ModelState) and record.receiver == SERVER:
            models.setdefault(record.round, {})[record.origin] = model
    if not shared:
        return None
    metric = next(metric for metric in METRICS if metric in shared)
    values = shared[metric]
    clients = tuple(values[max(values)])
    rounds = [r for r in sorted(values) if set(clients) <= values[r].keys() & models.get(r, {}).keys()]
    if not rounds:
        return None
    own = {name: [models[r][name] for r in rounds] for name in clients}
    last = {name: trained[-1] for name, trained in own.items()}
    simulator = EvaluationSimulator(
        run.method,
        run.federation,
        run.defense,
        run.client_template,
        verb,
        own[clients[0]],
        metric,
        {id(last[name]): own[name] for name in clients},
    )
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire={name: joined([values[r][name] for r in rounds]) for name in clients},
        clients=clients,
        received_model=run.received_models(last),
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.SEES_ALL_ROUNDS, Capability.HAS_UPDATES}),
        expensive=True,
        name=ModelEvaluation.kind,
    )
