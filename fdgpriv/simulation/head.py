"""Artifact kind: the classifier head that a client shares after local training.

The client shares it alone (LSI's stage 1), or in its model, and the server relays it to other clients (COPA).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.federation.federation import Federation
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.relays import reaches_all, receiver_of, relayed_to
from fdgpriv.simulation.simulator import ClientSample, ClientSimulator, DefendedSimulator, Simulator, answered
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.threat import Capability


class HeadSimulator(Simulator):
    """Simulates heads; vectors are their differences from the received head.

    Attributes:
        federation: As trained.
    """

    kind = ClassifierHead.kind
    federation: Federation

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


@dataclass(frozen=True, eq=False)
class SentHeadSimulator(HeadSimulator, ClientSimulator, DefendedSimulator):
    """The head that the method's client trains and sends alone, by the server's request."""

    def answer(self, sample: ClientSample, rng: torch.Generator) -> Message:
        head, _ = self.trained(sample, rng)
        return [head]

    def trained(self, sample: ClientSample, rng: torch.Generator) -> tuple[ClassifierHead, Any]:
        """The undefended head that a client with these images trains, and its model in evaluation mode."""
        client = self.client(sample, rng)
        head = answered(client, self.verb, sample.received_model, ClassifierHead)
        return head, client.model.eval()

    def synthesised(self, head: ClassifierHead, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Latents (N, p) and their classes (N,) that the method's server synthesises from this head, on the CPU."""
        method: Any = self.method
        single = replace(self.federation, clients=(head.client,))
        synthetic, _, _ = method.synthesised(single, {head.client: [head]}, rng)
        return synthetic.latents.cpu(), synthetic.labels.cpu()


@dataclass(frozen=True, eq=False)
class RelayedHeadSimulator(HeadSimulator):
    """The head of a client's model, as the server relays it.

    Attributes:
        federation: As trained.
        models: Simulates the models.
    """

    federation: Federation
    models: TrainingSimulator

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> Artifact:
        shared = self.models.simulate(sample, rng)
        return replace(
            head_of(self.models.after(shared, sample.received_model)), client=shared.client, round=shared.round
        )


HEAD = "head."  # prefix of the names of a head's tensors in its model


def head_of(model: ModelState) -> ClassifierHead:
    """The head in a model, as an artifact of the same sender and round."""
    state = {name.removeprefix(HEAD): tensor for name, tensor in model.state.items() if name.startswith(HEAD)}
    return ClassifierHead(client=model.client, round=model.round, state=state)


def _head(named: Mapping[str, Tensor], received_model: ModelState) -> dict[str, Tensor]:
    """The tensors of these names in the received model."""
    return {name: received_model.state[HEAD + name] for name in named}


def head_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The heads that clients shared alone; None if the models that they received are not recorded."""
    heads = run.transcript.of_kind(ClassifierHead.kind)
    shared = {r.origin: (r.verb, a) for r, a in heads if a is not None and r.receiver == SERVER}
    if not shared or not run.first_models:
        return None
    verb = next(verb for verb, _ in shared.values())
    return ArtifactSeries(
        simulator=SentHeadSimulator(run.method, run.federation, run.defense, run.client_template, verb),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        received_model=run.first_models,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
    )


def relayed_head_series(
    run: RecordedRun, trained: ArtifactSeries[Simulator] | None
) -> ArtifactSeries[Simulator] | None:
    """The heads of clients' models that the server relayed, in the last round with relayed heads.

    The server reads them in the models. Other clients and third parties know the model from which a client trained as the
    server does: the part that it was sent, and its other part as it was last shared.

    Args:
        run: The recorded run.
        trained: The series of the run's models; None if no models are recorded.
    """
    heads: dict[int, dict[str, Artifact]] = {}
    partial = set[int]()
    for record, artifact in run.transcript.of_kind(ClassifierHead.kind, small=True):
        if record.relayed and artifact is not None:
            heads.setdefault(artifact.round, {})[record.origin] = artifact
            if artifact.tensors().keys() < record.shapes.keys():
                partial.add(artifact.round)
    if trained is None or not heads:
        return None
    last = EarlierRound(trained.number, trained.simulator, trained.wire, trained.received_model)
    rounds = [
        EarlierRound(
            earlier.number,
            RelayedHeadSimulator(run.federation, earlier.simulator),
            heads[earlier.number],
            earlier.received_model,
            earlier.whole and earlier.number not in partial,
        )
        for earlier in (*trained.history, last)
        if earlier.number in heads and isinstance(earlier.simulator, TrainingSimulator)
    ]
    if not rounds or not rounds[-1].whole:
        return None
    *history, observed = rounds
    receivers = relayed_to(run.transcript, ClassifierHead.kind)
    return ArtifactSeries(
        simulator=observed.simulator,
        level="client",
        wire=observed.wire,
        clients=tuple(observed.wire),
        received_model=observed.received_model,
        receiver=receiver_of(receivers, list(observed.wire)),
        receivers={name: frozenset(clients) for name, clients in receivers.items()},
        number=observed.number,
        history=tuple(history),
        expensive=True,
        trained=True,
        kept=True,
        reaches_all=reaches_all(run.transcript, ClassifierHead.kind),
        part_of=trained.called,
    )
