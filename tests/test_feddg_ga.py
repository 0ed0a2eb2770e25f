"""FedDG-GA: its weights by hand, what they are computed from, and what the evaluations reveal."""

import math
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
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.federation.upload import faults
from fdgpriv.method import Method

module: Any = import_module("fdgpriv.methods.feddg_ga")
BUILD = network(1)


def test_the_papers_rule_by_hand() -> None:
    """Gaps .4, -.1, .2 of three clients with equal weights, step .2: centred, not divided, so that a third moves by .2."""
    method = small("feddg_ga", step=0.2, rounds=10)
    gaps = {"a": 0.4, "b": -0.1, "c": 0.2}
    weights = method.adjusted(dict.fromkeys("abc", 1 / 3), gaps, 0)
    assert [round(weight, 3) for weight in weights.values()] == [0.508, 0.133, 0.358]
    mean = (0.4 - 0.1 + 0.2) / 3
    largest = mean + 0.1  # of 7/30, -8/30 and 1/30
    plain = [1 / 3 + 0.2 * (gap - mean) / largest for gap in gaps.values()]
    assert sum(plain) == pytest.approx(1.0)
    assert list(weights.values()) == pytest.approx(plain)


def test_the_released_rule_by_hand() -> None:
    """The same gaps: divided by the largest, .4, and by 3; the step of the first round is above the given one."""
    method = small("feddg_ga", step=0.2, rounds=10, code_compat=True)
    weights = method.adjusted(dict.fromkeys("abc", 1 / 3), {"a": 0.4, "b": -0.1, "c": 0.2}, 0)
    raw = [1 / 3 + 0.22 / 3 * share for share in (1.0, -0.25, 0.5)]
    assert list(weights.values()) == pytest.approx([weight / sum(raw) for weight in raw])


INF = math.inf


@pytest.mark.parametrize(
    ("weights", "changes", "step", "most", "expected"),
    [
        ((1 / 3, 1 / 3, 1 / 3), (2.0, -1.0, 0.0), 0.1, INF, (13 / 31.5, 8.5 / 31.5, 10 / 31.5)),  # .4333, .2833, .3333
        ((0.9, 0.05, 0.05), (-1.0, -4.0, 4.0), 0.2, INF, (0.85 / 1.1, 0.0, 0.25 / 1.1)),  # .05 - .2 is clipped to 0
        ((0.95, 0.05, 0.0), (2.0, -0.1, -1.9), 0.2, 1.0, (1 / 1.04, 0.04 / 1.04, 0.0)),  # .95 + .2 is clipped to 1
        ((0.95, 0.05, 0.0), (2.0, -0.1, -1.9), 0.2, INF, (1.15 / 1.19, 0.04 / 1.19, 0.0)),  # in the paper it is not
        ((0.5, 0.5), (0.0, 0.0), 0.3, INF, (0.5, 0.5)),
        ((0.3, 0.7), (0.5 - 0.3 - 0.2, 0.4 - 0.3 - 0.1), 0.3, INF, (0.3, 0.7)),  # 0 but for rounding
        ((0.1,) * 10, (-0.3,) * 10, 0.2, 1.0, (0.1,) * 10),  # all would be clipped to 0
        ((0.5, 0.5), (0.7,), 0.2, INF, (0.7 / 1.2, 0.5 / 1.2)),  # the second client took no part
    ],
)
def test_weights_are_moved_and_clipped(
    weights: tuple[float, ...], changes: tuple[float, ...], step: float, most: float, expected: tuple[float, ...]
) -> None:
    names = "abcdefghij"
    named = dict(zip(names, weights, strict=False))
    moved = module.moved(named, dict(zip(names, changes, strict=False)), step, most)
    assert list(moved.values()) == pytest.approx(list(expected))


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
@pytest.mark.parametrize("code_compat", [False, True])
def test_the_server_is_the_plain_loop(metric: str, code_compat: bool) -> None:
    method, rng = small("feddg_ga", rounds=4, metric=metric, step=0.6, code_compat=code_compat), seeded(3)
    server = method.server(federation(3, build=BUILD), seeded(0))
    ask, weights, last = next(server), [1 / 3] * 3, [0.0] * 3
    for round in range(3):
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
            step = 0.6 * (4 - (round - 1)) / 4
            if code_compat:
                step = 0.6 * (4 - (round - 2)) / 4 / 3
            else:
                gaps = [gap - sum(gaps) / 3 for gap in gaps]
            raw = [a + step * gap / max(map(abs, gaps)) for a, gap in zip(weights, gaps, strict=True)]
            clipped = [max(0.0, min(a, 1.0) if code_compat else a) for a in raw]
            weights = [a / sum(clipped) for a in clipped]
        last = values[:, 1].tolist()
        merged = ask.messages["client-0"][0].state["head.bias"]
        torch.testing.assert_close(merged, sum(a * bias for a, bias in zip(weights, biases, strict=True)))
    assert len(set(weights)) == 3


def test_the_mean_gap_is_of_clients_that_take_part() -> None:
    """Of three clients the first two: gaps .5 and .1 move their weights by the step up and down."""
    world = federation(3, build=BUILD)
    merge = small("feddg_ga", step=0.2, rounds=10).aggregation(world)
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
    released = small("feddg_ga", rounds=4, step=0.2, code_compat=True)
    assert [released.step_at(round) for round in range(5)] == pytest.approx([0.25, 0.2, 0.15, 0.1, 0.05])


def test_presets_move_weights_by_the_same_share() -> None:
    """`quick` has 6 clients and `default` 30, where the paper has 3."""
    for preset, clients in (("quick", 6), ("default", 30), ("paper", 3)):
        method = AuditConfig(methods=("feddg_ga",), preset=preset).checked().method("feddg_ga")
        assert method.step * clients == pytest.approx(0.6)  # type: ignore[attr-defined]
        assert not method.code_compat  # type: ignore[attr-defined]


def test_the_learning_rate_falls_after_four_fifths() -> None:
    method = Method.named("feddg_ga")()
    assert [round for round in range(40) if method.lr_at(round) < 5e-4] == list(range(32, 40))  # type: ignore[attr-defined]
    assert method.lr_at(31) == 10 * method.lr_at(32) == 1e-3  # type: ignore[attr-defined]


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
    only_the_server_sees(target, "sees every round")
    for name in target.clients:
        data = fitted.population.data(name)
        losses = target.simulator.of_each(data.held_out_images, data.held_out_labels)  # type: ignore[attr-defined]
        torch.testing.assert_close(losses.mean(0), target.wire[name].tensors()["values"].float())
