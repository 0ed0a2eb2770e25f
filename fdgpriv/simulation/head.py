"""Artifact kind: the classifier head that a client shares after local training (LSI's stage 1)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, DefendedSimulator, Simulator, answered, client_template
from fdgpriv.threat import Capability


@dataclass(frozen=True, eq=False)
class HeadSimulator(DefendedSimulator):
    """The head of a model that the method's own client trains locally, by the server's own request.

    Attributes:
        method, federation, defense: As trained.
        like: One client's data, for its augmentation and its position in the federation.
        verb: The request for heads.
    """

    method: FederatedMethod
    federation: Federation
    defense: Defense
    like: ClientData
    verb: str

    kind = ClassifierHead.kind

    def answer(self, party: ClientImages, index: Tensor, rng: torch.Generator, granularity: str) -> Message:
        head, _ = self.trained(party, index, rng)
        return [head]

    def trained(self, party: ClientImages, index: Tensor, rng: torch.Generator) -> tuple[ClassifierHead, Any]:
        """The undefended head that a client with the images at `index` (m,) trains, and its model in evaluation mode."""
        assert party.received_model is not None
        data = replace(self.like, pixels=party.images[index], labels=party.labels[index])
        client: Any = self.method.client(self.federation, data, rng)
        head = answered(client, self.verb, party.received_model, ClassifierHead)
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


def head_series(
    transcript: Transcript,
    method: FederatedMethod,
    federation: Federation,
    defense: Defense,
    clients: Mapping[str, ClientData],
    received_model: Mapping[str, ModelState],
) -> ArtifactSeries[Simulator] | None:
    """The heads that clients shared, where the models they started from are recorded.

    Args:
        transcript, method, federation, defense: As trained.
        clients: The data of each.
        received_model: By client or shadow client, the model it started from; empty where none is recorded.
    """
    shared = {r.origin: (r.verb, a) for r, a in transcript.of_kind(ClassifierHead.kind) if a is not None}
    if not shared or not received_model:
        return None
    empty = client_template(clients)
    verb = next(verb for verb, _ in shared.values())
    return ArtifactSeries(
        simulator=HeadSimulator(method, federation, defense, empty, verb),
        level="client",
        wire={name: artifact for name, (_, artifact) in shared.items()},
        clients=tuple(shared),
        received_model=received_model,
        needs=frozenset({Capability.SEES_INDIVIDUAL_ARTIFACT, Capability.HAS_UPDATES}),
        expensive=True,
    )
