"""FedGMA: the masked step by hand and against a loop over entries, and what the server needs for it."""

from importlib import import_module
from typing import Any

import pytest
import torch
from factories import federation, refused, seeded, small

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.defense import defended

module: Any = import_module("fdgpriv.methods.fedgma")


@pytest.mark.parametrize(
    ("updates", "threshold", "mask"),
    [((1.0, 2.0, 3.0), 0.4, 1.0), ((1.0, 2.0, -9.0), 0.4, 1 / 3), ((1.0, 2.0, -9.0), 0.3, 1.0), ((1.0, 0.0, -1.0), 0.1, 0.0),
     ((1.0, 2.0, 3.0, -9.0), 0.5, 1.0)],
)  # fmt: skip
def test_the_mask_of_three_updates(updates: tuple[float, ...], threshold: float, mask: float) -> None:
    computed = module.agreement_mask([torch.tensor([update]) for update in updates], threshold)
    torch.testing.assert_close(computed, torch.tensor([mask]))


def test_the_step_is_the_plain_loop() -> None:
    method, rng = small("fedgma", agreement=0.6, server_lr=0.5), seeded(3)
    server = method.server(federation(3), seeded(0))
    ask = next(server)
    assert ask.reduce is None
    sent, counts = ask.messages["client-0"][0].state, (10, 20, 70)
    states = [
        {
            name: t + torch.randn(t.shape, generator=rng).abs() if t.is_floating_point() else t + 3
            for name, t in sent.items()
        }
        for _ in counts
    ]
    for state in states[:2]:  # most signs differ in one of the three
        for tensor in state.values():
            if tensor.ndim > 1:
                tensor -= 0.8
    answers = {
        client: [
            ModelState(client=client, round=0, state=state),
            SampleCount(client=client, round=0, count=torch.tensor(count)),
        ]
        for client, state, count in zip(ask.messages, states, counts, strict=True)
    }
    merged = server.send(answers).messages["client-0"][0].state
    parameters = dict(method.model(federation(3), seeded(0)).named_parameters())
    masks = set()
    for name, tensor in sent.items():
        if not tensor.is_floating_point():
            continue
        for position, start in enumerate(tensor.flatten().tolist()):
            changes = [float(state[name].flatten()[position]) - start for state in states]
            mean = sum(count * change for count, change in zip(counts, changes, strict=True)) / 100
            agreed = abs(sum((change > 0) - (change < 0) for change in changes)) / 3
            if name in parameters:
                mask = 1.0 if agreed >= 0.6 else agreed
                masks.add(round(mask, 3))
                mean *= 0.5 * mask
            assert float(merged[name].flatten()[position]) == pytest.approx(start + mean, abs=1e-5)
    assert masks == {1.0, 0.333}


def test_sums_are_not_enough_for_the_server() -> None:
    with refused("secure_aggregation: .*fedgma"):
        defended(small("fedgma", weights="uniform"), "secure_aggregation")
