"""The accuracies that clients share of the models they are sent, all rounds' together, as a subject (LSI, CCST)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifact import SERVER, Artifact, ModelState
from fdgpriv.federation import Federation, LocalData
from fdgpriv.kinds import ValidationHistory, ValidationMetrics
from fdgpriv.partition import Population, held_out_beside
from fdgpriv.roles import Defense, Method
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .answer import answered
from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class ValidationCraft(Craft):
    """What the method's own client answers, asked how well it finds each model on what it holds out.

    Of n images the client holds out as many more as one of that size does; they are drawn from all that the party holds,
    with those n among them. A client's were trained on by then, which makes accuracies higher and tells less.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its place in the federation.
        verb: By which accuracies are asked for, of a model and nothing else.
        models: Of each number shared; where that one is not kept, the next that is.
    """

    method: Method
    federation: Federation
    defense: Defense
    like: LocalData
    verb: str
    models: Sequence[ModelState]

    kind = ValidationHistory.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        out = torch.randperm(len(held.images), generator=rng)[: held_out_beside(len(index))]
        data = replace(
            self.like,
            images=held.images[index],
            labels=held.labels[index],
            held_out_images=held.images[out],
            held_out_labels=held.labels[out],
        )
        client = self.method.client(self.federation, data, rng)
        several = {id(model): model for model in self.models}
        told = {key: answered(client, self.verb, model, ValidationMetrics) for key, model in several.items()}
        metrics = [told[id(model)] for model in self.models]
        return joined([self.defense.protect(one, rng) for one in metrics] if defended else metrics)

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """The accuracies (T,)."""
        assert isinstance(artifact, ValidationHistory)
        return artifact.accuracies.float()

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        return ValidationHistory(client=SERVER, round=self.models[-1].round, accuracies=row.clamp(0, 1).double())


def joined(metrics: Sequence[Artifact]) -> ValidationHistory:
    """Several rounds' accuracies as one artifact of the last one's facts."""
    accuracies = torch.stack([one.tensors()["accuracy"].double() for one in metrics])
    return ValidationHistory(client=metrics[-1].client, round=metrics[-1].round, accuracies=accuracies)


def validation_subject(
    transcript: Transcript, method: Method, federation: Federation, defense: Defense, population: Population
) -> Subject[Craft] | None:
    """The accuracies of all times at which all the clients of the last time shared one, where its model is kept."""
    shared: dict[tuple[int, str], dict[str, Artifact]] = {}
    for record, artifact in transcript.of_kind(ValidationMetrics.kind):
        if artifact is not None:
            shared.setdefault((record.round, record.verb), {})[record.origin] = artifact
    if not shared:
        return None
    clients = tuple(list(shared.values())[-1])
    times = [time for time, by_client in shared.items() if by_client.keys() >= set(clients)]
    models: list[ModelState] = []
    for time in reversed(times):
        model = transcript.model_sent(*time) or next(iter(models), None)
        if model is None:
            return None
        models.insert(0, model)
    return Subject(
        craft=ValidationCraft(
            method, federation, defense, next(iter(population.clients.values())), times[-1][1], models
        ),
        level="client",
        wire={name: joined([shared[time][name] for time in times]) for name in clients},
        clients=clients,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.SEES_ALL_ROUNDS}),
        costly=True,
        name=ValidationMetrics.kind,
    )
