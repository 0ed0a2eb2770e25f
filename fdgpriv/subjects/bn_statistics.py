"""BatchNorm statistics that clients take anew under the averaged model, as a subject (LSI with ``recalibrate_bn``)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, STATISTICS, Artifact, ModelState
from fdgpriv.federation import Federation, LocalData, generator
from fdgpriv.partition import Population
from fdgpriv.roles import Defense, Method
from fdgpriv.states import BatchNormStatistics, running
from fdgpriv.style import Moments
from fdgpriv.threat import Capability
from fdgpriv.transcript import Transcript

from .answer import answered
from .subject import Craft, Holding, Subject, like_any
from .training import for_everybody

_EPS = 1e-5  # a variance, as in BatchNorm itself
_MEAN, _VAR, _COUNTER = STATISTICS


@dataclass(frozen=True, eq=False)
class StatisticsCraft(Craft):
    """What the method's own client answers, asked as the server asked, under the model that the server sent then.

    It passes its images through that model once, in batches, each normalised by its own statistics; what it shares are
    means over batches of their means and unbiased variances, and how many batches there were. Nothing is trained, so
    that of few images an artifact is what a client with these images would share, to the order of its batches.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its place in the federation.
        verb: By which statistics are asked for.
    """

    method: Method
    federation: Federation
    defense: Defense
    like: LocalData
    verb: str

    kind = BatchNormStatistics.kind

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> Artifact:
        assert held.sent is not None
        data = replace(self.like, images=held.images[index], labels=held.labels[index])
        client = self.method.client(self.federation, data, rng)
        made = answered(client, self.verb, held.sent, BatchNormStatistics)
        return self.defense.protect(made, rng) if defended else made

    def network(self) -> nn.Module:
        """The network whose statistics these are, as it starts; another one each time."""
        return self.method.model(self.federation, generator(self.federation.seed, 4)).to(self.federation.device)

    def batches(self, n: int) -> int:
        """How many batches n images make."""
        method: Any = self.method
        return max(1, n // int(method.batch_size))

    def seen(self, artifact: Artifact) -> int:
        """How many batches the artifact's counters tell, by the middle one: a batch of one passes by the head's."""
        counters = [tensor for name, tensor in artifact.tensors().items() if name.endswith(_COUNTER)]
        return int(torch.stack(counters).median())

    def row(self, moments: Mapping[str, Moments], sent: ModelState) -> Tensor:
        """(..., D): by layer, means and variances (..., C) as differences from the sent ones' means and deviations.

        Both are in units of the sent deviations; a layer that saw nothing kept what was sent, which is 0.
        """
        parts = []
        for name, (mean, variance) in moments.items():
            spread = (sent.state[f"{name}.{_VAR}"] + _EPS).sqrt()
            parts += [
                (mean - sent.state[f"{name}.{_MEAN}"]) / spread,
                (variance.clamp_min(0) + _EPS).sqrt() / spread - 1,
            ]
        return torch.cat(parts, dim=-1)

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        assert sent is not None
        return self.row(running(artifact.tensors()), sent)

    def flat(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """Means, standard deviations and counters."""
        own = artifact.tensors()
        return torch.cat([(t.clamp_min(0).sqrt() if n.endswith(_VAR) else t.float()).flatten() for n, t in own.items()])

    def unflat(self, row: Tensor, sent: ModelState | None) -> Artifact:
        assert sent is not None
        state, begin = {}, 0
        for name, like in sent.state.items():
            if name.rpartition(".")[2] not in STATISTICS:
                continue
            part = row[begin : begin + like.numel()].view_as(like)
            begin += like.numel()
            if name.endswith(_VAR):
                part = part.clamp_min(0).square()
            state[name] = part if like.is_floating_point() else part.round().clamp_min(0).to(like.dtype)
        return BatchNormStatistics(client=SERVER, round=sent.round, state=state)


def statistics_subject(
    transcript: Transcript, method: Method, federation: Federation, defense: Defense, population: Population
) -> Subject[Craft] | None:
    """The statistics that clients shared in the last round of which they are kept with the model they were taken under."""
    shared: dict[int, dict[str, Artifact]] = {}
    verb = ""
    for record, artifact in transcript.of_kind(BatchNormStatistics.kind):
        if artifact is not None:
            shared.setdefault(record.round, {})[record.origin] = artifact
            verb = record.verb
    rounds = [r for r, by_client in shared.items() if by_client.keys() <= transcript.models_sent(r, verb).keys()]
    if not rounds:
        return None
    last, first = max(rounds), min(rounds)
    empty = like_any(population.clients)
    return Subject(
        craft=StatisticsCraft(method, federation, defense, empty, verb),
        level="client",
        wire=shared[last],
        clients=tuple(shared[last]),
        sent=for_everybody(transcript.models_sent(last, verb), population),
        earlier=shared[first] if first != last else {},
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_BN}),
        costly=True,
    )
