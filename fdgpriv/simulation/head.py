"""Artifact kind: the classifier head that a client shares after local training (LSI's stage 1)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, DefendedSimulator, Simulator, answered
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class HeadSimulator(ClientSimulator, DefendedSimulator):
    """The head of a model that the method's own client trains locally, by the server's own request."""

    kind = ClassifierHead.kind

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        head, _ = self.trained(sample, rng)
        return [head]

    def trained(self, sample: ClientSample, rng: torch.Generator) -> tuple[ClassifierHead, Any]:
        """The undefended head that a client with these images trains, and its model in evaluation mode."""
        client = self.client(sample, rng)
        head = answered(client, self.verb, sample.received_model, ClassifierHead)
        return head, client.model.eval()

    def synthesised(self, head: ClassifierHead, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Latents (N, p) and their classes (N,) that the method's server synthesises from this head; on the CPU."""
        method: Any = self.method
        single = replace(self.federation, clients=(head.client,))
        synthetic, _, _ = method.synthesised(single, {head.client: [head]}, rng)
        return synthetic.latents.cpu(), synthetic.labels.cpu()

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """Differences of its statistics and its layer from the received head, concatenated."""
        assert received_model is not None
        tensors = artifact.tensors()
        return torch.cat(
            [
                (tensors[name].float() - start.float()).flatten()
                for name, start in _head(tensors, received_model).items()
            ]
        )

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> Artifact:
        assert received_model is not None
        state, begin = {}, 0
        names = [name.removeprefix(HEAD) for name in received_model.state if name.startswith(HEAD)]
        for name, start in _head(dict.fromkeys(names, row), received_model).items():
            change = row[begin : begin + start.numel()].view_as(start)
            begin += start.numel()
            state[name] = start + (change if start.is_floating_point() else change.round().to(start.dtype))
            if name.endswith("running_var"):
                state[name] = state[name].clamp_min(1e-5)
        return ClassifierHead(client=SERVER, round=0, state=state)


HEAD = "head."  # prefix of the names of a head's tensors in its model


def _head(named: Mapping[str, Tensor], received_model: ModelState) -> dict[str, Tensor]:
    """The tensors of these names in the received model."""
    return {name: received_model.state[HEAD + name] for name in named}


def head_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The heads that clients shared by themselves, where the models they started from are recorded."""
    heads = run.transcript.of_kind(ClassifierHead.kind)
    shared = {r.origin: (r.verb, a) for r, a in heads if a is not None and r.receiver == SERVER}
    if not shared or not run.first_models:
        return None
    verb = next(verb for verb, _ in shared.values())
    return ArtifactSeries(
        simulator=HeadSimulator(run.method, run.federation, run.defense, run.client_template, verb),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        received_model=run.first_models,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
    )
