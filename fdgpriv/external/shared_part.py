"""The part of a network that clients share, where they keep the rest: BatchNorm layers, a frozen base, personal layers."""

from collections.abc import Collection
from dataclasses import replace

from torch import nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.local_tensors import mark_local
from fdgpriv.artifacts.parameters import STATISTICS, ClassifierHead, ModelState, ModelUpdate
from fdgpriv.external.recorded_names import renamed
from fdgpriv.federation.transcript import Transcript

_SHOWN = 3  # tensors that a sentence names


def heads_as_models(transcript: Transcript, network: nn.Module) -> list[str]:
    """Replaces recorded heads by the part of the model that they are, if clients sent heads and no models.

    Returns: a sentence for the report if there are such heads.
    """
    sent = {record.kind for record in transcript.records if record.receiver == SERVER}
    if ClassifierHead.kind not in sent or sent & {ModelState.kind, ModelUpdate.kind}:
        return []
    has_model = {(record.receiver, record.round) for record in transcript.records if record.kind == ModelState.kind}
    parts: dict[int, ModelState] = {}
    for index, head in transcript.kept.items():
        record = transcript.records[index]
        if isinstance(head, ClassifierHead) and (record.receiver, record.round) not in has_model:
            if id(head) not in parts:
                names = renamed(head.state, network)
                state = {names[name]: tensor for name, tensor in head.state.items()}
                parts[id(head)] = ModelState(client=head.client, round=head.round, state=state)
            transcript.kept[index] = parts[id(head)]
            transcript.records[index] = replace(record, kind=ModelState.kind)
    return ["Clients sent heads alone: these are read as the part of the model that they are."]


def _counters(names: Collection[str]) -> set[str]:
    """BatchNorm's counters of batches, which trained models have also where the received ones have none."""
    return {name for name in names if name.rpartition(".")[2] == STATISTICS[2]}


def with_shared_part(transcript: Transcript, network: nn.Module) -> list[str]:
    """Restricts recorded models and updates to the tensors that all clients receive and send.

    The others are marked in the network as kept by clients: they have the values of `network`.

    Returns: a sentence for the report if there are others.
    """
    models = [
        (transcript.records[index], artifact)
        for index, artifact in transcript.kept.items()
        if isinstance(artifact, ModelState | ModelUpdate)
    ]
    received = [set(artifact.state) for record, artifact in models if record.sender == SERVER]
    sent = [set(artifact.state) for record, artifact in models if record.receiver == SERVER]
    if not received or not sent:
        return []
    shared = set.intersection(*received, *sent)
    tensors = network.state_dict()
    kept = [name for name in tensors if name not in shared]
    if not kept or not shared or any(not names - _counters(names) <= shared for names in sent):
        return []
    mark_local(network, kept)
    restricted: dict[int, ModelState | ModelUpdate] = {}
    for index, artifact in transcript.kept.items():
        if isinstance(artifact, ModelState | ModelUpdate) and not artifact.state.keys() <= shared:
            if id(artifact) not in restricted:
                state = {name: tensor for name, tensor in artifact.state.items() if name in shared}
                restricted[id(artifact)] = replace(artifact, state=state)
            transcript.kept[index] = restricted[id(artifact)]
    more = f" and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else ""
    return [
        f"Clients share {len(shared)} of the network's {len(tensors)} tensors, without {', '.join(kept[:_SHOWN])}{more}: "
        "simulated clients begin each round with those of the first model that was received, or of network=."
    ]
