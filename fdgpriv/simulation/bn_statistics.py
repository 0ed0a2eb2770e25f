"""Artifact kind: BatchNorm statistics that clients recompute with the averaged model (LSI with ``recalibrate_bn``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.moments import Moments
from fdgpriv.artifacts.parameters import STATISTICS, BatchNormStatistics, ModelState, running
from fdgpriv.models.cpu_io import with_cpu_io
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import (
    ClientSample,
    ClientSimulator,
    DefendedSimulator,
    InRound,
    Simulator,
    answered,
)
from fdgpriv.threat import Capability
from fdgpriv.utils.seeds import generator

_EPS = 1e-5  # added to variances, as in BatchNorm
_MEAN, _VAR, _COUNTER = STATISTICS


@dataclass(frozen=True, eq=False)
class StatisticsSimulator(ClientSimulator, DefendedSimulator):
    """The answer of the method's client to the server's request.

    The client passes its images through the received model once, in batches that are normalised by their statistics; it
    shares the means over batches of their means and unbiased variances, and the number of batches. Nothing is trained:
    the artifact of few images equals that of a client with these images, up to the order of its batches.

    Attributes:
        first: The model that all clients received in the first recorded round, if that is another round.
    """

    first: ModelState | None = None

    kind = BatchNormStatistics.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        return [answered(self.client(sample, rng), self.verb, sample.received_model, BatchNormStatistics)]

    def in_first_round(self) -> InRound | None:
        return None if self.first is None else InRound(self, self.first)

    def network(self) -> nn.Module:
        """A new copy of the initial network, which takes images from the CPU and returns its output there."""
        model = self.method.model(self.federation, generator(self.federation.seed, 4))
        return with_cpu_io(model.to(self.federation.device))

    def batches(self, n: int) -> int:
        """The number of batches of n images."""
        method: Any = self.method
        return max(1, n // int(method.batch_size))

    def seen(self, artifact: Artifact) -> int:
        """The number of batches: the median of the artifact's counters, since the head skips batches of one image."""
        counters = [tensor for name, tensor in artifact.tensors().items() if name.endswith(_COUNTER)]
        return int(torch.stack(counters).median())

    def row(self, moments: Mapping[str, Moments], received_model: ModelState) -> Tensor:
        """(..., D): differences of means and standard deviations from the received ones, layer by layer.

        They are in units of the received standard deviations; 0 for a layer that processed nothing.

        Args:
            moments: By layer, means and variances (..., C).
            received_model: The received model.
        """
        parts = []
        for name, (mean, variance) in moments.items():
            spread = (received_model.state[f"{name}.{_VAR}"] + _EPS).sqrt()
            parts += [
                (mean - received_model.state[f"{name}.{_MEAN}"]) / spread,
                (variance.clamp_min(0) + _EPS).sqrt() / spread - 1,
            ]
        return torch.cat(parts, dim=-1)

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        assert received_model is not None
        return self.row(running(artifact.tensors()), received_model)

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """Means, standard deviations and counters, concatenated."""
        tensors = artifact.tensors()
        return torch.cat(
            [(t.clamp_min(0).sqrt() if n.endswith(_VAR) else t.float()).flatten() for n, t in tensors.items()]
        )

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        assert received_model is not None
        state, begin = {}, 0
        for name, received in received_model.state.items():
            if name.rpartition(".")[2] not in STATISTICS:
                continue
            part = row[begin : begin + received.numel()].view_as(received)
            begin += received.numel()
            if name.endswith(_VAR):
                part = part.clamp_min(0).square()
            state[name] = part if received.is_floating_point() else part.round().clamp_min(0).to(received.dtype)
        return BatchNormStatistics(client=SERVER, round=received_model.round, state=state)


def statistics_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The statistics of the last round for which these and the received models are recorded, and of earlier ones."""
    transcript = run.transcript
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
    models = {round: run.received_models(transcript.models_sent(round, verb)) for round in sorted(rounds)}
    started = transcript.model_sent(first, verb) if first != last else None
    simulator = StatisticsSimulator(run.method, run.federation, run.defense, run.client_template, verb, started)
    return ArtifactSeries(
        simulator=simulator,
        level="client",
        wire=shared[last],
        clients=tuple(shared[last]),
        received_model=models[last],
        number=last,
        history=tuple(EarlierRound(round, simulator, shared[round], models[round]) for round in models if round < last),
        earlier=shared[first] if first != last else {},
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_BN}),
        expensive=True,
    )
