"""JiGen: the orders of the tiles, the puzzles pixel by pixel, and the loss against a plain loop."""

from importlib import import_module
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from factories import SURE, crossed, federation, held, network, refused, run, seeded, small
from scipy import stats
from torch import Tensor

from fdgpriv.attack import Attack
from fdgpriv.federation.local_training import Batch

jigsaw: Any = import_module("fdgpriv.methods._jigsaw")


def test_orders_are_permutations_far_apart() -> None:
    """A random order has 8 of 9 tiles out of place on average, and the least of 465 pairs of them far fewer than 7."""
    orders = jigsaw.orders(31).tolist()
    assert orders[0] == list(range(9))
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert min(sum(a != b for a, b in zip(*pair, strict=True)) for pair in combinations(orders, 2)) == 7
    assert orders == jigsaw.orders.__wrapped__(31).tolist()
    assert orders[:5] == jigsaw.orders(5).tolist()


def test_the_next_order_is_the_farthest_one() -> None:
    chosen = jigsaw.orders(6).tolist()
    for count in range(1, 6):
        distance = min(sum(a != b for a, b in zip(chosen[count], before, strict=True)) for before in chosen[:count])
        sample = list(permutations(range(9)))[::997]
        best = max(
            min(sum(a != b for a, b in zip(o, before, strict=True)) for before in chosen[:count]) for o in sample
        )
        assert distance >= best


@pytest.mark.parametrize("side", [3, 6, 8, 11])
def test_tiles_move_as_their_order_says(side: int, rng: torch.Generator) -> None:
    images, order = torch.rand(4, 3, side, side, generator=rng), jigsaw.orders(31)[[0, 3, 17, 30]]
    puzzles, tile = jigsaw.shuffled(images, order), side // 3
    expected = images.clone()
    for b in range(4):
        for place in range(9):
            row, column = divmod(place, 3)
            from_row, from_column = divmod(int(order[b, place]), 3)
            for y in range(tile):
                for x in range(tile):
                    source = images[b, :, from_row * tile + y, from_column * tile + x]
                    expected[b, :, row * tile + y, column * tile + x] = source
    assert torch.equal(puzzles, expected)
    assert torch.equal(puzzles[0], images[0])


def test_the_loss_is_the_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    method, data, seen = small("jigen", bias_whole_image=0.5, jigsaw_weight=0.7), held("client-0", 8), list[Tensor]()
    model = method.model(federation(2, build=network(1, 2)), seeded(0)).eval()
    shuffled = jigsaw.shuffled

    def noted(images: Tensor, order: Tensor) -> Tensor:
        seen.append(order)
        return shuffled(images, order)  # type: ignore[no-any-return]

    monkeypatch.setattr(f"{type(method).__module__}.shuffled", noted)
    loss = method.loss(model, Batch(torch.arange(8), data.images, data.labels), seeded(3))
    number = [jigsaw.orders(31).tolist().index(order) for order in seen[0].tolist()]
    assert 0 < number.count(0) < 8
    classification, puzzle = [], []
    for b in range(8):
        features = model.backbone(shuffled(data.images[b : b + 1], seen[0][b : b + 1])).mean((2, 3))[0]
        puzzle.append(-(model.jigsaw.weight @ features + model.jigsaw.bias).log_softmax(0)[number[b]])
        if number[b] == 0:
            logits = model.head.weight @ features + model.head.bias
            classification.append(-logits.log_softmax(0)[data.labels[b]])
    expected = sum(classification) / len(classification) + 0.7 * sum(puzzle) / 8
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("bias", [0.0, 0.9, 1.0])
def test_images_stay_in_order_with_this_probability(bias: float, monkeypatch: pytest.MonkeyPatch) -> None:
    method, data, seen = small("jigen", bias_whole_image=bias), held("client-0", 8), list[Tensor]()
    model = method.model(federation(2, build=network(1)), seeded(0))
    monkeypatch.setattr(f"{type(method).__module__}.shuffled", lambda images, order: (seen.append(order), images)[1])
    generator = seeded(5)
    for _ in range(100):
        assert bool(method.loss(model, Batch(torch.arange(8), data.images, data.labels), generator).isfinite())
    numbers = [jigsaw.orders(31).tolist().index(order) for order in torch.cat(seen).tolist()]
    assert stats.binomtest(numbers.count(0), 800, bias).pvalue > SURE
    others = [numbers.count(number) for number in range(1, 31)]
    assert not sum(others) or stats.chisquare(others).pvalue > SURE


def test_both_heads_are_shared() -> None:
    ran = run(small("jigen"), 5, 7)
    for state in crossed(ran.transcript, "model_state"):
        assert (state.state["jigsaw.weight"].shape, state.state["jigsaw.bias"].shape) == ((31, 4), (31,))
    first, *_, last = crossed(ran.transcript, "model_state")
    assert not torch.equal(first.state["jigsaw.weight"], last.state["jigsaw.weight"])


@pytest.mark.parametrize("unrolled", [0, 2])
def test_gradients_are_inverted_without_the_second_head(unrolled: int) -> None:
    """Adversaries simulate cross-entropy, on which the second head does not depend."""
    model = small("jigen").model(federation(2, build=network(1, 2)), seeded(0)).eval()
    data, attack = held("client-0", 4), Attack.parse(f"gradient_inversion:unrolled={unrolled}")
    names = [name for name, _ in model.named_parameters()]
    by_name = dict(zip(names, attack._change(model, names, data.images, data.labels), strict=True))
    assert all(bool(by_name[name].any()) != name.startswith("jigsaw") for name in by_name if name.endswith("weight"))


def test_images_too_small_to_cut_are_refused() -> None:
    with refused("jigen: want images of at least 3 px to cut into tiles, got 2"):
        small("jigen").model(federation(2, side=2), seeded(0))
