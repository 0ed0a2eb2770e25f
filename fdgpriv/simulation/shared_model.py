"""Artifact kind: the global model that the server sends to all clients."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.held_out import held_out_split
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Diverged, Wire
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.head import head_of
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.relays import opposite_clients
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator

GLOBAL_MODEL = "global_model"


@dataclass(frozen=True, eq=False)
class SharedModelSimulator(TrainingSimulator):
    """Continues the global model's training on one client's images, or trains another global model from the start."""

    def trained_from_start(self, parties: Sequence[tuple[Tensor, Tensor]], rng: torch.Generator) -> list[ModelState]:
        """The last global model of another federation, trained from the start with this one's method and defense.

        If that training diverges, the last model before. One client runs at a time, on one thread.

        Args:
            parties: By client, images (n, 3, H, W) and labels (n,), n at least 2; the usual share is held out.
            rng: For all random draws.

        Returns: one model; for a personalised method, one for each client.
        """
        data = {f"client-{i:02d}": self._client(f"client-{i:02d}", *party, rng) for i, party in enumerate(parties)}
        seed = int(torch.randint(2**62, (), generator=rng))
        federation = replace(self.federation, clients=tuple(data), seed=seed)
        wire = Wire({name: len(client) for name, client in data.items()}, self.defense)
        with suppress(Diverged):
            LocalEngine(1).run(self.method.for_clients(len(data)), federation, data, wire)
        round, sent = last_sent(wire.transcript)
        models = held(self.method, wire.transcript, round, sent)
        return list({id(model): model for model in models.values()}.values())

    def _client(self, name: str, images: Tensor, labels: Tensor, rng: torch.Generator) -> ClientData:
        """The client with these images, a share of which it holds out."""
        held_out, training = held_out_split(len(labels), self.federation.held_out, rng)
        client = replace(self.client_template, client=name, pixels=images[training], labels=labels[training])
        return replace(client, held_out_pixels=images[held_out], held_out_labels=labels[held_out])


def shared_model_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The last model that the server sent after any training; for a personalised method, the model of another client.

    Where the server sends a part, and relays the clients' heads, it is the model that every client builds of both.

    For a personalised method, the series has the clients whose counterpart was sent a model in that round. The artifact of
    few images is that model after further training by one client with these images, with the learning rate of the first
    round.
    """
    if run.method.disclosure().training is None:
        return None
    clients = tuple(run.population.clients)
    round, sent = last_sent(run.transcript)
    if round < 1 or len(clients) < 2:
        return None
    receivers = opposite_clients(clients)
    personal = getattr(run.method, "personal", False)

    def of_clients(models: Mapping[str, ModelState]) -> dict[str, ModelState]:
        """By client, the model that an adversary sees; for a personalised method, that of its counterpart."""
        if not personal:
            return dict.fromkeys(clients, next(iter(models.values())))
        return {name: models[receivers[name]] for name in clients if receivers[name] in models}

    models = held(run.method, run.transcript, round, sent)
    shared = of_clients(models) if models else {}
    if not shared:
        return None
    simulator = shared_model_simulator(run)
    history = []
    for earlier in range(1, round):  # the model of round 0 is not trained
        models = held(run.method, run.transcript, earlier, run.transcript.models_sent(earlier))
        if models and (client_models := of_clients(models)).keys() == shared.keys():
            history.append(EarlierRound(earlier, simulator, client_models, client_models))
    series = model_of_several(GLOBAL_MODEL, simulator, shared)
    return replace(series, receiver=receivers, number=round, history=tuple(history))


def shared_model_simulator(run: RecordedRun) -> SharedModelSimulator:
    """Continues the training of a model of several clients with the learning rate of the first round."""
    return SharedModelSimulator(ModelState.kind, run.method, run.federation, run.defense, run.client_template, round=0)


def model_of_several(
    name: str, simulator: SharedModelSimulator, models: Mapping[str, ModelState]
) -> ArtifactSeries[Simulator]:
    """The series of this name for models of several clients; `models` has, by client, the model that an adversary sees."""
    return ArtifactSeries(
        simulator=simulator,
        level="group",
        wire=models,
        clients=tuple(models),
        received_model=models,
        expensive=True,
        name=name,
    )


def last_sent(transcript: Transcript) -> tuple[int, Mapping[str, ModelState]]:
    """The last round with a recorded model of the server (-1: none), and the model that each client received in it."""
    sent = [r for r, model in transcript.of_kind(ModelState.kind) if r.origin == SERVER and model is not None]
    return (sent[-1].round, transcript.models_sent(sent[-1].round, sent[-1].verb)) if sent else (-1, {})


def held(
    method: FederatedMethod, transcript: Transcript, round: int, sent: Mapping[str, ModelState]
) -> Mapping[str, ModelState]:
    """By client, the global model that it holds when a round begins: the one sent, or the one built of what was sent.

    Args:
        method: As trained.
        transcript: Its transfers.
        round: The round.
        sent: By client, the recorded model that the server sent in this round.

    Returns: empty where the heads that a model is built of are not recorded.
    """
    build = method.disclosure().global_model
    if build is None:
        return sent
    heads = _latest_heads(transcript, round)
    models = {id(model): build(model, heads) for model in sent.values()} if heads else {}
    return {client: models[id(model)] for client, model in sent.items() if models}


def _latest_heads(transcript: Transcript, round: int) -> list[ClassifierHead]:
    """Each client's latest head as a round begins: as it is relayed then, or, where it is the receiver's own, as shared."""
    heads: dict[str, ClassifierHead] = {}
    for record, artifact in transcript.of_kind(ModelState.kind):
        if isinstance(artifact, ModelState) and record.receiver == SERVER and record.round < round:
            heads[record.origin] = head_of(artifact)
    for record, artifact in transcript.of_kind(ClassifierHead.kind):
        if isinstance(artifact, ClassifierHead) and record.relayed and record.round == round:
            heads[record.origin] = artifact
    return list(heads.values())
