"""StableFDG's feature highlighter against its HW x HW definition, who asks whom, and what it must not depend on."""

import warnings
from collections import Counter
from importlib import import_module
from typing import Any

import pytest
import torch
from factories import SURE, count, network, seeded
from scipy import stats
from torch import Tensor

from fdgpriv.models.backbone import Backbone

module: Any = import_module("fdgpriv.methods._highlighter")
partners: Any = import_module("fdgpriv.methods._stable_batch").partners

ASKING = ("mix", "cross", "self")
PARTNER = torch.tensor([3, 0, 1, 2, 3])


def highlighter(
    kind: str = "mix", qk_norm: bool = True, channels: int = 6, dim: int = 4, released: bool = False
) -> Any:
    """In float64, its weights from a fixed seed and large enough that attention is not flat."""
    made = module.Highlighter(channels, dim, kind, qk_norm, released).double()
    rng = seeded(7)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
    return made


def maps(seed: int = 0, batch: int = 5, channels: int = 6, height: int = 3, width: int = 4) -> Tensor:
    return torch.randn(batch, channels, height, width, generator=seeded(seed), dtype=torch.float64)


def plain_scores(made: Any, z: Tensor, partner: Tensor | None, kind: str, qk_norm: bool) -> Tensor:
    """Eq. 6 and 8 image by image: the whole similarity matrix, its mean over the queries, softmax over the keys."""
    theta_q, theta_k = (layer.weight.detach()[:, :, 0, 0] for layer in (made.query, made.key))
    scores = []
    for i in range(len(z)):
        j = i if partner is None else int(partner[i])
        own, other = z[i].reshape(z.shape[1], -1), z[j].reshape(z.shape[1], -1)
        asked_own, asked_other, key = theta_q @ own, theta_q @ other, theta_k @ own
        if qk_norm:
            asked_own, asked_other, key = (m / m.square().sum(0).sqrt() for m in (asked_own, asked_other, key))
        query = {"mix": (asked_other + asked_own) / 2, "cross": asked_other, "self": asked_own}[kind]
        similarity = query.T @ key
        assert similarity.shape == (z[i][0].numel(), z[i][0].numel())
        mean = similarity.mean(0)
        scores.append(mean.exp() / mean.exp().sum())
    return torch.stack(scores)


@pytest.mark.parametrize("asked", [None, PARTNER], ids=["inference", "training"])
@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("kind", ASKING)
def test_attention_is_a_mean_row_of_similarities(kind: str, qk_norm: bool, asked: Tensor | None) -> None:
    made, z = highlighter(kind, qk_norm), maps()
    expected = plain_scores(made, z, asked, kind, qk_norm)
    found = made.scores(z, asked).detach()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    attended = torch.zeros(5, 6, dtype=torch.float64)
    for h in range(3):
        for w in range(4):
            attended += expected[:, h * 4 + w, None] * z[:, :, h, w]
    torch.testing.assert_close(made(z, asked).detach(), attended, rtol=0, atol=1e-6)


def test_convolutional_attention_is_a_distribution() -> None:
    scores = highlighter("conv").scores(maps(), PARTNER).detach()
    assert scores.shape == (5, 12)
    assert float(scores.min()) >= 0
    torch.testing.assert_close(scores.sum(1), torch.ones(5, dtype=torch.float64))
    assert float(scores.std(1).min()) > 1e-4  # and not a flat one


def test_convolutional_attention_asks_no_partner() -> None:
    made, z = highlighter("conv"), maps()
    assert torch.equal(made.scores(z, PARTNER), made.scores(z, None))


@pytest.mark.parametrize("kind", ASKING)
def test_queries_and_keys_learn_from_positions(kind: str) -> None:
    for width, learns in ((4, True), (1, False)):
        made = highlighter(kind)
        z = maps(height=1, width=width)
        attended = made(z, PARTNER)
        attended.square().sum().backward()
        moved = [float(layer.weight.grad.abs().max()) > 1e-9 for layer in (made.query, made.key)]
        assert moved == [learns, learns]
        if not learns:
            assert torch.equal(made.scores(z, PARTNER), torch.ones(5, 1, dtype=torch.float64))
            torch.testing.assert_close(attended.detach(), z.mean((2, 3)))


# Sizes


@pytest.mark.parametrize(
    ("kind", "released", "size"), [("mix", False, 30_720), ("mix", True, 46_172), ("conv", False, 30_720)]
)
def test_the_highlighter_s_number_of_parameters(kind: str, released: bool, size: int) -> None:
    assert count(module.Highlighter(512, 30, kind, True, released)) == size


def small_backbone(stride: int = 2) -> Backbone:
    return network(1, stride)(seeded(3))


def classifier(kind: str = "mix", size: int = 8, stride: int = 2, **options: Any) -> Any:
    return module.HighlightedClassifier(small_backbone(stride), 7, size, seeded(0), kind=kind, dim=4, **options)


def test_attention_doubles_the_head() -> None:
    on, off = classifier(), classifier("off")
    assert on.head.weight.shape == (7, 8)
    assert off.head.weight.shape == (7, 4)
    assert off.highlighter is None
    assert count(on) - count(off) == 2 * 4 * 4 + 7 * 4


@pytest.mark.parametrize("kind", [*ASKING, "conv", "off"])
def test_the_head_reads_mean_and_attended_feature(kind: str) -> None:
    made, z = classifier(kind).eval(), maps(channels=4).float()
    seen = [z.mean((2, 3))] if kind == "off" else [z.mean((2, 3)), made.highlighter(z, PARTNER)]
    expected = torch.stack([torch.stack([(row * w).sum() for w in made.head.weight]) for row in torch.cat(seen, 1)])
    torch.testing.assert_close(made.classify(z, PARTNER), expected + made.head.bias, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [*ASKING, "conv", "off"])
def test_in_evaluation_no_sample_looks_at_another(kind: str) -> None:
    made, images = classifier(kind).eval(), torch.rand(6, 3, 8, 8, generator=seeded(1))
    together = made(images)
    alone = torch.cat([made(images[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(made(images.flip(0)), together.flip(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [*ASKING, "conv"])
def test_one_position_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"attention.*more than one position"):
        classifier(kind, stride=8)
    assert classifier("off", stride=8) is not None


def test_fewer_than_4_by_4_positions_are_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(size=8)
    with pytest.warns(UserWarning, match="2 x 2"):
        classifier(size=4)


def test_checking_the_positions_leaves_no_trace() -> None:
    made, plain = classifier(), small_backbone()
    assert made.training
    assert all(torch.equal(made.backbone.state_dict()[name], value) for name, value in plain.state_dict().items())


def test_the_initialisation_is_the_generator_s() -> None:
    states = []
    for outside in (0, 1):
        torch.manual_seed(outside)
        states.append(classifier().state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


# Partners


def test_partners_are_drawn_uniformly_in_the_class() -> None:
    labels, ids = torch.tensor([0, 1, 0, 0, 1, 0]), torch.tensor([10, 11, 12, 13, 14, 15])
    seen = Counter((i, j) for seed in range(900) for i, j in enumerate(partners(labels, ids, seeded(seed)).tolist()))
    assert {pair for pair in seen if pair[0] in (1, 4)} == {(1, 4), (4, 1)}
    for i in (0, 2, 3, 5):
        others = [j for j in (0, 2, 3, 5) if j != i]
        assert stats.chisquare([seen[i, j] for j in others]).pvalue > SURE
        assert sum(seen[i, j] for j in others) == 900


def test_a_copy_is_a_partner_only_without_others() -> None:
    labels = torch.tensor([0, 0, 1, 2, 0, 0, 1])
    ids = torch.tensor([10, 11, 12, 13, 10, 11, 12])  # rows 4 to 6 are copies of rows 0, 1, 2
    seen: dict[int, set[int]] = {i: set() for i in range(7)}
    for seed in range(100):
        for i, j in enumerate(partners(labels, ids, seeded(seed)).tolist()):
            seen[i].add(j)
    assert seen == {0: {1, 5}, 4: {1, 5}, 1: {0, 4}, 5: {0, 4}, 2: {6}, 6: {2}, 3: {3}}
