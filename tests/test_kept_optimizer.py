"""Clients whose optimiser keeps its state over rounds, against plain loops of SGD with momentum and of Adam."""

import math
from typing import Any

import pytest
import torch
from factories import federation, held, network, seeded, small
from torch import Tensor

from fdgpriv.federation.state import StateDecoder, StateEncoder

BUILD = network(1)
KEEPING = ("fedsr", "feddg_ga", "gperxan", "elcfs")


def client_of(name: str, **settings: Any) -> Any:
    """A client of 8 images in batches of 4, without weight decay."""
    method = small(name, **{"weight_decay": 0.0, "batch_size": 4, "lr": 0.01} | settings)
    return method.client(federation(2, build=BUILD), held("client-0", 8), seeded(1))


def sent_by(client: Any) -> Any:
    """What the server sends first."""
    method, world = client.method, federation(2, build=BUILD)
    server = method.server(world, seeded(0))
    ask = next(server)
    while ask.verb != "fit":
        ask = server.send({name: [] for name in ask.messages})
    return ask.messages["client-0"]


def moves(client: Any, slopes: list[float]) -> list[float]:
    """By round, how far a parameter moves from the received one; each round has a constant gradient."""
    message = sent_by(client)
    start = float(message[0].state["head.bias"][0])
    far = []
    for slope in slopes:
        client.loss = lambda batch, slope=slope: slope * sum(p.sum() for p in client.model.parameters())
        trained = client.fit(message)[0]
        far.append(start - float(trained.state["head.bias"][0]))
    return far


def test_five_steps_of_fedsr_reach_the_full_momentum() -> None:
    """By a new optimiser a round of five steps under a constant gradient moves 13.1 times lr; a kept one comes to 50."""
    far = moves(client_of("fedsr", local_steps=5, lr=1e-3), [1.0] * 12)
    speed, plain = 0.0, []
    for _ in range(12):
        moved = 0.0
        for _ in range(5):
            speed = 0.9 * speed + 1.0
            moved += speed
        plain.append(moved)
    assert [distance / 1e-3 for distance in far] == pytest.approx(plain, rel=1e-3)
    assert plain[0] == pytest.approx(13.1, abs=0.05)
    assert plain[-1] == pytest.approx(50, abs=0.2)


def sgd(slopes: list[float], steps: int, lr: float) -> list[float]:
    speed, plain = 0.0, []
    for slope in slopes:
        moved = 0.0
        for _ in range(steps):
            speed = 0.9 * speed + slope
            moved += lr * speed
        plain.append(moved)
    return plain


def adam(slopes: list[float], steps: int, lr: float) -> list[float]:
    mean = square = 0.0
    count, plain = 0, []
    for slope in slopes:
        moved = 0.0
        for _ in range(steps):
            count += 1
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
            moved += lr * (mean / (1 - 0.9**count)) / (math.sqrt(square / (1 - 0.999**count)) + 1e-8)
        plain.append(moved)
    return plain


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", KEEPING)
def test_rounds_continue_the_optimiser(name: str, optimizer: str) -> None:
    """Two steps a round, of slopes that change from round to round."""
    slopes = [1.0, -0.5, 0.25, -2.0]
    far = moves(client_of(name, optimizer=optimizer), slopes)
    plain = (sgd if optimizer == "sgd" else adam)(slopes, 2, 0.01)
    assert far == pytest.approx(plain, rel=1e-3)


def test_the_learning_rate_is_that_of_the_round() -> None:
    """FedDG-GA's falls to a tenth; its momentum does not."""
    client = client_of("feddg_ga", rounds=5, schedule="step_late")
    message, far = sent_by(client), []
    for round in (3, 4):
        client.loss = lambda batch: sum(p.sum() for p in client.model.parameters())
        (state, *_) = message
        state = type(state)(client=state.client, round=round, state=state.state)
        trained = client.fit([state])[0]
        far.append(float(state.state["head.bias"][0] - trained.state["head.bias"][0]))
    first, second = sgd([1.0, 1.0], 2, 0.01)
    assert far == pytest.approx([first, second / 10], rel=1e-3)


@pytest.mark.parametrize("name", ["fedavg", "fedgma", "fpl", "fedbn"])
def test_other_methods_start_at_rest_each_round(name: str) -> None:
    """Their papers or released codes make a new optimiser in each round, or name none."""
    far = moves(client_of(name), [1.0, 1.0, 1.0])
    assert far == pytest.approx(sgd([1.0], 2, 0.01) * 3, rel=1e-3)


@pytest.mark.parametrize("name", KEEPING)
def test_a_restored_client_moves_as_the_stored_one(name: str) -> None:
    """A checkpoint after two rounds, loaded into a client that has not trained."""
    slopes = [1.0, -0.5]
    client, fresh, restored = client_of(name), client_of(name), client_of(name)
    moves(client, slopes)
    encoder = StateEncoder()
    stored = encoder.encode(client)
    tensors: dict[str, Tensor] = {key: tensor.clone() for key, tensor in encoder.tensors.items()}
    StateDecoder(tensors, torch.device("cpu")).decode(stored, restored)
    (continued,), (again,), (alone,) = (moves(each, [0.25]) for each in (client, restored, fresh))
    assert again == continued
    assert abs(alone - continued) > 1e-4


@pytest.mark.parametrize("name", KEEPING)
def test_a_client_that_has_not_trained_has_no_state(name: str) -> None:
    """As those that adversaries simulate: stored and loaded as none."""
    client, other = client_of(name), client_of(name)
    assert client.optimizer is None
    encoder = StateEncoder()
    StateDecoder(encoder.tensors, torch.device("cpu")).decode(encoder.encode(client), other)
    assert other.optimizer is None


def test_restored_tensors_are_aligned_as_new_ones() -> None:
    """A file's are not, so that sums over them may differ in the last bits; their values and strides are kept."""
    stored = torch.arange(31, dtype=torch.float32)
    encoder = StateEncoder()
    reference = encoder.encode(stored[:30].view(5, 6).T)
    unaligned = {name: stored[1:].clone() for name in encoder.tensors}
    unaligned = {name: torch.cat([stored[:1], tensor])[1:].view(5, 6) for name, tensor in unaligned.items()}
    assert all(tensor.data_ptr() % 64 for tensor in unaligned.values())
    restored = StateDecoder(unaligned, torch.device("cpu")).decode(reference)
    assert restored.data_ptr() % 64 == 0
    assert restored.stride() == (1, 6)
    assert torch.equal(restored, stored[1:].view(5, 6).T)
