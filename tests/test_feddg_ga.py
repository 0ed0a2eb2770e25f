"""FedDG-GA: its weights by hand, what they are computed from, and what the evaluations reveal."""

from importlib import import_module
from typing import Any

import pytest
import torch
from conftest import fit, shortened
from factories import (
    crossed,
    equal,
    federation,
    held,
    network,
    only_the_server_sees,
    refused,
    run,
    run_on,
    seeded,
    small,
)

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import ModelEvaluation
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.federation.upload import faults

module: Any = import_module("fdgpriv.methods.feddg_ga")
BUILD = network(1)


@pytest.mark.parametrize(
    ("weights", "changes", "step", "expected"),
    [
        (
            (1 / 3, 1 / 3, 1 / 3),
            (2.0, -1.0, 0.0),
            0.3,
            (13 / 31.5, 8.5 / 31.5, 10 / 31.5),
        ),  # .4333, .2833, .3333 of 1.05
        ((0.9, 0.05, 0.05), (-1.0, -4.0, 4.0), 0.6, (0.85 / 1.1, 0.0, 0.25 / 1.1)),  # .05 - .2 is clipped to 0
        ((0.95, 0.05, 0.0), (2.0, -0.1, -1.9), 0.6, (1 / 1.04, 0.04 / 1.04, 0.0)),  # .95 + .2 is clipped to 1
        ((0.5, 0.5), (0.0, 0.0), 0.6, (0.5, 0.5)),
        ((0.5, 0.5), (0.7,), 0.4, (0.7 / 1.2, 0.5 / 1.2)),  # the second client took no part
    ],
)
def test_weights_follow_the_gaps(
    weights: tuple[float, ...], changes: tuple[float, ...], step: float, expected: tuple[float, ...]
) -> None:
    named = dict(zip("abc", weights, strict=False))
    adjusted = module.adjusted(named, dict(zip("abc", changes, strict=False)), step)
    assert list(adjusted.values()) == pytest.approx(list(expected))


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
@pytest.mark.parametrize("centred", [False, True])
def test_the_server_is_the_plain_loop(metric: str, centred: bool) -> None:
    method, rng = small("feddg_ga", rounds=3, metric=metric, step=0.6, centred=centred), seeded(3)
    server = method.server(federation(3, build=BUILD), seeded(0))
    ask, weights, last = next(server), [1 / 3] * 3, [0.0] * 3
    for round in range(2):
        assert ask.reduce is None
        sent = ask.messages["client-0"][0]
        biases, values = torch.randn(3, 3, generator=rng), torch.rand(3, 2, generator=rng)
        answers = {
            f"client-{i}": [
                ModelState(client=f"client-{i}", round=round, state={**sent.state, "head.bias": biases[i]}),
                *(
                    ModelEvaluation(
                        client=f"client-{i}", round=round, value=values[i, t], metric=metric, trained=bool(t)
                    )
                    for t in (0, 1)
                ),
            ]
            for i in range(3)
        }
        ask = server.send(answers)
        if round:
            gaps = [(1 if metric == "loss" else -1) * (float(values[i, 0]) - last[i]) for i in range(3)]
            if centred:
                gaps = [gap - sum(gaps) / 3 for gap in gaps]
            raw = [a + 0.6 / 3 * gap / max(map(abs, gaps)) for a, gap in zip(weights, gaps, strict=True)]
            clipped = [min(1.0, max(0.0, a)) for a in raw]
            weights = [a / sum(clipped) for a in clipped]
        last = values[:, 1].tolist()
        merged = ask.messages["client-0"][0].state["head.bias"]
        torch.testing.assert_close(merged, sum(a * bias for a, bias in zip(weights, biases, strict=True)))
    assert len(set(weights)) == 3


def test_the_mean_gap_is_of_clients_that_take_part() -> None:
    """Of three clients the first two: gaps .5 and .1 move their weights by a third of the step up and down."""
    world = federation(3, build=BUILD)
    merge = small("feddg_ga", step=0.6, rounds=10, centred=True).aggregation(world)
    merge.last = dict.fromkeys(world.clients, 1.0)
    model = small("feddg_ga").model(world, seeded(0))
    answers = {
        client: [
            ModelState(client=client, round=1, state=dict(model.state_dict())),
            ModelEvaluation(client=client, round=1, value=torch.tensor(value), metric="loss", trained=False),
        ]
        for client, value in (("client-0", 1.5), ("client-1", 1.1))
    }
    merge.merge(model, answers, 1)
    assert list(merge.client_weights.values()) == pytest.approx([1 / 3 + 0.2, 1 / 3 - 0.2, 1 / 3])


def test_clients_without_weight_are_averaged_equally() -> None:
    """A client that alone takes part is averaged also after its weight fell to 0."""
    world = federation(2, build=BUILD)
    merge = small("feddg_ga", participants=1).aggregation(world)
    merge.client_weights = {"client-0": 0.0, "client-1": 1.0}
    model = small("feddg_ga").model(world, seeded(0))
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    merge.merge(model, {"client-0": [ModelState(client="client-0", round=0, state=state)]}, 0)
    assert equal(model.state_dict(), state)


def test_the_step_decreases_to_nothing() -> None:
    method = small("feddg_ga", rounds=4, step=0.2)
    assert [method.step_at(round) for round in range(5)] == pytest.approx([0.2, 0.15, 0.1, 0.05, 0.0])


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_two_evaluations_cross_in_each_round(metric: str) -> None:
    method = small("feddg_ga", metric=metric)
    ran = run(method, 5, 7, build=BUILD)
    shared = crossed(ran.transcript, ModelEvaluation)
    assert len(shared) == 2 * 2 * 2
    assert not [record for record in ran.transcript.records if record.kind == "sample_count"]
    states = {(a.client, a.round): a for a in crossed(ran.transcript, ModelState)}
    for evaluation in shared:
        data = held(evaluation.client, {"client-0": 5, "client-1": 7}[evaluation.client])
        model = method.model(federation(2, build=BUILD), seeded(0))
        states[evaluation.client if evaluation.trained else SERVER, evaluation.round].load_into(model)
        with torch.no_grad():
            logits = model.eval()(data.held_out_images)
        losses = -logits.log_softmax(1)[torch.arange(2), data.held_out_labels]
        hits = (logits.argmax(1) == data.held_out_labels).float()
        torch.testing.assert_close(evaluation.value, (losses if metric == "loss" else hits).mean())


def test_false_evaluations_are_refused() -> None:
    method = small("feddg_ga")
    wanted = method.expected_fit(method.model(federation(2, build=BUILD), seeded(0)), 0)
    honest = method.client(federation(2, build=BUILD), held("client-0", 6), seeded(1)).fit(
        next(method.server(federation(2, build=BUILD), seeded(0))).messages["client-0"]
    )
    assert not list(faults(honest, "client-0", 0, wanted))
    state, before, after = honest
    negative = ModelEvaluation(client="client-0", round=0, value=torch.tensor(-1.0), metric="loss", trained=True)
    for answer, told in (
        ([state, before], "want 1 model_evaluation, got 0"),
        ([state, before, before], "want 1 model_evaluation, got 2"),
        ([state, before, negative], "model_evaluation: want value at least 0, got -1"),
    ):
        assert next(faults(answer, "client-0", 0, wanted)) == told
    assert after.trained
    with refused("want held-out images of every client"):
        run_on(method, federation(1, build=BUILD), {"client-0": held("client-0", 6, out=0)})


def test_sums_are_not_enough_for_the_server() -> None:
    with refused("secure_aggregation: not applicable to feddg_ga"):
        defended(small("feddg_ga"), "secure_aggregation")
    with refused("shuffle: not applicable to feddg_ga, whose server needs to know whose model_evaluation it receives"):
        defended(small("feddg_ga"), "shuffle")


def test_losses_are_means_over_held_out_images(digits: Dataset) -> None:
    fitted = fit(shortened(digits, 48), clients=3, method="feddg_ga", settings={"rounds": "2"}, keep="all")
    target = fitted.evaluator().series("model_evaluation")
    only_the_server_sees(target, "sees_all_rounds")
    for name in target.clients:
        data = fitted.population.data(name)
        losses = target.simulator.of_each(data.held_out_images, data.held_out_labels)  # type: ignore[attr-defined]
        torch.testing.assert_close(losses.mean(0), target.wire[name].tensors()["values"].float())
