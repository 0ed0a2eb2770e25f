"""Federated averaging by sample counts: the rounds and the client's answer that FedAvg and its descendants share."""

import torch
from torch import nn

from fdgpriv.artifact import SERVER, Message, ModelState, SampleCount
from fdgpriv.federation import Federation, LocalData
from fdgpriv.roles import Answers, Ask, Server

from ._federation import FederatedSGD, Loss, load_average, model_state, shared_state, train


def averaging(model: nn.Module, federation: Federation, settings: FederatedSGD, rng: torch.Generator) -> Server:
    """T rounds: sampled clients ``fit`` the global model, and it becomes their mean, weighted where they share counts."""
    for round in range(settings.rounds):
        clients = federation.sample(settings.participants, rng)
        state = shared_state(model, SERVER, round, settings)
        answers = yield Ask("fit", {client: [state] for client in clients}, reduce="mean")
        load_average(model, list(model_state(answers).values()), sample_counts(answers))
    return model


def sample_counts(answers: Answers) -> list[float] | None:
    """n_k of each answer, in order; None where no client shared it."""
    return [float(a.count) for message in answers.values() for a in message if isinstance(a, SampleCount)] or None


def fitted(
    model: nn.Module,
    loss: Loss,
    message: Message,
    data: LocalData,
    settings: FederatedSGD,
    rng: torch.Generator,
    device: torch.device,
    counted: bool = True,
) -> Message:
    """A client's answer to ``fit``: the model it was sent after E local epochs on `loss`, and n_k where `counted`."""
    (state,) = (artifact for artifact in message if isinstance(artifact, ModelState))
    state.load_into(model)
    train(model, loss, data, settings, state.round, rng, device)
    answer: Message = [shared_state(model, data.client, state.round, settings)]
    if counted:
        answer.append(SampleCount(client=data.client, round=state.round, count=torch.tensor(len(data))))
    return answer
