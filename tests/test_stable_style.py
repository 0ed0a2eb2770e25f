"""StableFDG's style learning against plain loops: Steps 2 to 5 one by one, then in the order of a training forward."""

import math
from collections import Counter
from importlib import import_module
from itertools import permutations
from typing import Any

import factories
import pytest
import torch
from factories import SURE, seeded
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fdgpriv.artifacts.moments import DASSL, PAPER, PAPER_EPS
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.method import Method

steps: Any = import_module("fdgpriv.methods._stable_style")
forward: Any = import_module("fdgpriv.methods._stable_batch")


def maps(rng: torch.Generator, batch: int, channels: int, side: int = 4) -> Tensor:
    """Features with a style for each image and channel."""
    scale = torch.rand(batch, channels, 1, 1, generator=rng) + 0.5
    noise = torch.randn(batch, channels, side, side, generator=rng)
    return noise * scale + 3 * torch.randn(batch, channels, 1, 1, generator=rng)


def pattern(mean: Tensor, std: Tensor) -> Tensor:
    """Maps (B, C, 2, 2) of exactly these means and (biased) stds (B, C): half the pixels one std above, half below."""
    sign = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    return mean[..., None, None] + std[..., None, None] * sign


def style(mean: Tensor | float, std: Tensor | float, *variances: Tensor | float, c: int = 2) -> StyleStatistics:
    mean_var, std_var = variances or (0.0, 0.0)
    return factories.style(mean, std, mean_var, std_var, channels=c)


def plain_adain(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Image by image and channel by channel, as the formula stands."""
    made = torch.empty_like(features)
    for b in range(features.shape[0]):
        for c in range(features.shape[1]):
            own = features[b, c]
            spread = ((own - own.mean()).square().mean() + 1e-6).sqrt()
            made[b, c] = std[b, c] * (own - own.mean()) / spread + mean[b, c]
    return made


def plain_explore(features: Tensor, center: Tensor, alpha: float) -> Tensor:
    """Eq. 4-5 as they stand."""
    mean, std = PAPER_EPS(features)
    center_mean, center_std = (sum(part) / len(center) for part in PAPER_EPS(center))
    return plain_adain(features, mean + alpha * (mean - center_mean), std + alpha * (std - center_std))


# Step 2: who keeps its style


def plain_seeding(points: Tensor, k: int) -> dict[tuple[int, ...], float]:
    """The probability of every ordered choice of k seeds, from the definition of k-means++."""
    found = {}
    for order in permutations(range(len(points)), k):
        probability = 1 / len(points)
        for step in range(1, k):
            weight = [
                min(float((points[i] - points[j]).square().sum()) for j in order[:step]) for i in range(len(points))
            ]
            if sum(weight) == 0:
                weight = [float(i not in order[:step]) for i in range(len(points))]
            probability *= weight[order[step]] / sum(weight)
        found[order] = probability
    return found


@pytest.mark.parametrize(
    "points",
    [[[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], [[0.0], [0.0], [0.0], [5.0]], [[1.0], [1.0], [1.0], [1.0]]],
    ids=["apart", "two_places", "one_place"],
)
def test_seeds_are_drawn_as_k_means_plus_plus_defines(points: list[list[float]], rng: torch.Generator) -> None:
    where, draws = torch.tensor(points), 1500
    expected = {order: p for order, p in plain_seeding(where, 3).items() if p > 0}
    seen = Counter(tuple(steps.kmeans_plus_plus(where, 3, rng).tolist()) for _ in range(draws))
    assert set(seen) <= set(expected)
    assert sum(expected.values()) == pytest.approx(1)
    frequencies = [seen[order] for order in expected]
    assert stats.chisquare(frequencies, [draws * p for p in expected.values()]).pvalue > SURE


@given(st.integers(1, 8), st.data())
def test_seeds_are_distinct_points(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    places = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    chosen = steps.kmeans_plus_plus(torch.tensor(places, dtype=torch.float32)[:, None], k, seeded(n))
    assert len(set(chosen.tolist())) == len(chosen) == k
    assert set(chosen.tolist()) <= set(range(n))


def test_more_seeds_than_points_are_refused(rng: torch.Generator) -> None:
    with pytest.raises(ValueError, match="want"):
        steps.kmeans_plus_plus(torch.zeros(3, 1), 4, rng)


# Step 2: the shift


def test_a_shift_keeps_half_and_moves_the_others(rng: torch.Generator) -> None:
    features, kept = maps(rng, 6, 3), torch.tensor([4, 0, 3])
    mean, std = torch.randn(6, 3, generator=rng), torch.rand(6, 3, generator=rng)
    shifted = steps.shift(features, kept, mean, std)
    assert torch.equal(shifted[kept], features[kept])
    moved = torch.tensor([1, 2, 5])
    torch.testing.assert_close(shifted[moved], plain_adain(features, mean, std)[moved], rtol=0, atol=1e-5)
    new_mean, new_std = PAPER(shifted[moved])
    torch.testing.assert_close(new_mean, mean[moved], rtol=0, atol=1e-5)
    torch.testing.assert_close(new_std, std[moved], rtol=0, atol=1e-5)


def test_a_shift_leaves_dead_channels_finite() -> None:
    dead, nobody = torch.zeros(2, 2, 3, 3), torch.empty(0, dtype=torch.int64)
    shifted = steps.shift(dead, nobody, torch.full((2, 2), 4.0), torch.ones(2, 2))
    torch.testing.assert_close(shifted, torch.full_like(dead, 4.0))


def test_a_shift_detaches_its_normaliser(rng: torch.Generator) -> None:
    features, weight = maps(rng, 2, 2).requires_grad_(), torch.randn(2, 2, 4, 4, generator=rng)
    mean, std = torch.randn(2, 2, generator=rng), torch.rand(2, 2, generator=rng)
    (steps.shift(features, torch.tensor([1]), mean, std) * weight).sum().backward()
    scale = (std / PAPER_EPS(features.detach())[1])[..., None, None]
    torch.testing.assert_close(features.grad[0], (weight * scale)[0])
    torch.testing.assert_close(features.grad[1], weight[1])


# Step 3: water-filling


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(0, 30))
def test_water_filling_is_the_greedy_loop(held: list[int], size: int) -> None:
    counts = Counter(held)
    for _ in range(size):
        counts[min(counts, key=lambda label: counts[label])] += 1
    labels = torch.tensor(held)
    index = steps.water_fill(labels, size, 5, seeded(size))
    assert len(index) == size
    filled = Counter(held) + Counter(labels[index].tolist())
    assert sorted(filled.values()) == sorted(counts.values())
    assert set(filled) == set(held)


def test_rare_classes_are_drawn_from_equally() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    seen = Counter(int(steps.water_fill(labels, 1, 3, seeded(i))) for i in range(1200))
    assert stats.chisquare([seen[i] for i in range(6)]).pvalue > SURE


# Step 4: exploration


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_exploration_is_eq_4_and_5(alpha: float, rng: torch.Generator) -> None:
    features, center = maps(rng, 4, 3), maps(rng, 5, 3)
    torch.testing.assert_close(
        steps.explore(features, center, alpha), plain_explore(features, center, alpha), rtol=0, atol=2e-5
    )


def test_clamping_cuts_only_below_zero() -> None:
    mean, std = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 4.0]])
    features, center = pattern(mean, std), pattern(mean, torch.tensor([[3.0, 3.0]]))
    free, cut = (steps.explore(features, center, 3.0, clamp) for clamp in (False, True))
    torch.testing.assert_close(free[:, 0], 1 - 5 * (features[:, 0] - 1), rtol=0, atol=1e-4)  # 1 + 3 (1 - 3) = -5
    torch.testing.assert_close(cut[:, 0], torch.ones(1, 2, 2), rtol=0, atol=1e-5)
    assert torch.equal(free[:, 1], cut[:, 1])


def test_exploration_detaches_the_new_style(rng: torch.Generator) -> None:
    features, center = maps(rng, 3, 2).requires_grad_(), maps(rng, 4, 2).requires_grad_()
    weight = torch.randn(3, 2, 4, 4, generator=rng)
    (steps.explore(features, center, 3.0) * weight).sum().backward()
    plain = features.detach().clone().requires_grad_()
    mean, std = PAPER_EPS(plain.detach())
    center_mean, center_std = (part.mean(0) for part in PAPER_EPS(center.detach()))
    made = plain_adain(plain, mean + 3 * (mean - center_mean), std + 3 * (std - center_std))
    (made * weight).sum().backward()
    assert center.grad is None
    torch.testing.assert_close(features.grad, plain.grad, rtol=1e-4, atol=1e-4)


# Step 5: mixing


def test_mixing_is_the_loop(rng: torch.Generator) -> None:
    features, partner = maps(rng, 4, 3), torch.tensor([2, 1, 3, 0])
    weight = torch.tensor([0.0, 1.0, 0.25, 0.6])
    mean, std = PAPER_EPS(features)
    own = weight[:, None]
    expected = plain_adain(features, own * mean + (1 - own) * mean[partner], own * std + (1 - own) * std[partner])
    torch.testing.assert_close(steps.mix(features, partner, weight), expected, rtol=0, atol=1e-5)


def test_mixing_detaches_the_mixed_style(rng: torch.Generator) -> None:
    features, partner = maps(rng, 3, 2).requires_grad_(), torch.tensor([1, 2, 0])
    weight, own = torch.randn(3, 2, 4, 4, generator=rng), torch.tensor([0.3, 0.6, 0.9])[:, None]
    (steps.mix(features, partner, own[:, 0]) * weight).sum().backward()
    plain = features.detach().clone().requires_grad_()
    mean, std = PAPER_EPS(plain.detach())
    made = plain_adain(plain, own * mean + (1 - own) * mean[partner], own * std + (1 - own) * std[partner])
    (made * weight).sum().backward()
    torch.testing.assert_close(features.grad, plain.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_beta_has_its_distribution(alpha: float, rng: torch.Generator) -> None:
    n = 40_000
    drawn = steps.beta(alpha, n, rng).double()
    assert drawn.shape == (n,)
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1
    law = stats.beta(alpha, alpha)
    variance = 1 / (4 * (2 * alpha + 1))
    fourth = float(law.moment(4) - 2 * law.moment(3) + 1.5 * law.moment(2) - 0.5 * law.moment(1) + 1 / 16)
    assert float(drawn.mean()) == pytest.approx(0.5, abs=4 * math.sqrt(variance / n))
    assert float((drawn - 0.5).square().mean()) == pytest.approx(
        variance, abs=4 * math.sqrt((fourth - variance**2) / n)
    )
    at = torch.cat(
        [torch.logspace(-9, -1, 60).double(), torch.linspace(0.1, 1 - 1e-5, 200).double()]
    )  # float32 ends at 1
    below = (drawn[:, None] <= at).double().mean(0)
    assert float((below - torch.from_numpy(law.cdf(at.numpy()))).abs().max()) < 1.95 / math.sqrt(n)  # KS at 0.001


# One forward: the settings, and what runs under them


def settings(**changes: Any) -> Any:
    """Everything on, and always."""
    return Method.named("stablefdg")(**({"p": 1.0} | changes))


def batch(
    labels: Tensor, how: Any, seed: int = 0, styles: Any = (), own: Any = None, extras: int = 0, first_id: int = 100
) -> Any:
    return forward.StyledBatch(
        how, 3, labels, torch.arange(len(labels)) + first_id, styles, own, seeded(seed), extras=extras
    )


@pytest.fixture
def unmixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixing keeps every sample's own style, so that only what comes before it shows."""
    monkeypatch.setattr(forward, "beta", lambda alpha, size, rng: torch.ones(size))


def kept_rows(before: Tensor, after: Tensor) -> list[int]:
    return [i for i in range(len(before)) if torch.equal(before[i], after[i])]


@pytest.mark.parametrize("kmeans", [True, False])
@pytest.mark.parametrize("size", [1, 8, 9])
def test_half_of_the_batch_keeps_its_style(size: int, kmeans: bool, rng: torch.Generator) -> None:
    features = maps(rng, size, 2)
    how = settings(explore_layers=(), shift_select="kmeans++" if kmeans else "random")
    shifted = batch(torch.zeros(size, dtype=torch.int64), how, styles=[style(4.0, 2.0)]).after()["layer1"](features)
    kept = kept_rows(features, shifted)
    assert len(kept) == size // 2
    mean, std = PAPER(shifted[[i for i in range(size) if i not in kept]])
    torch.testing.assert_close(mean, torch.full_like(mean, 4.0), rtol=0, atol=1e-5)
    torch.testing.assert_close(std, torch.full_like(std, 2.0), rtol=0, atol=1e-5)


def test_seeding_keeps_outlying_styles(rng: torch.Generator) -> None:
    mean = torch.tensor([0.0, 900.0, 0.0, 0.0, -900.0, 0.0, 0.0, 0.0])[:, None].expand(8, 2)
    features = maps(rng, 8, 2) * 0.01 + mean[..., None, None]
    labels = torch.zeros(8, dtype=torch.int64)
    kept: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for kmeans, count in kept.items():
        for seed in range(200):
            made = batch(
                labels,
                settings(explore_layers=(), shift_select="kmeans++" if kmeans else "random"),
                seed,
                [style(1.0, 1.0)],
            )
            count.update(kept_rows(features, made.after()["layer1"](features)))
    assert kept[True][1] == kept[True][4] == 200
    assert all(stats.binomtest(kept[False][i], 200, 0.5).pvalue > SURE for i in range(8))


def drawn_styles(how: Any, styles: Any, own: Any = None, size: int = 3000) -> tuple[Tensor, Tensor, Any]:
    """Means and stds (size / 2, C) of the samples that a forward shifts, and its generator's state afterwards."""
    features = pattern(torch.randn(size, 2, generator=seeded(1)), torch.ones(size, 2))
    made = batch(torch.zeros(size, dtype=torch.int64), how, 5, styles, own)
    shifted = made.after()["layer1"](features)
    moved = torch.tensor(sorted(set(range(size)) - set(kept_rows(features, shifted))))
    return *PAPER(shifted[moved]), made.rng.get_state()


def test_new_styles_are_normal_around_the_received() -> None:
    given_ = style(
        torch.tensor([3.0, -2.0]), torch.tensor([9.0, 8.0]), torch.tensor([4.0, 0.25]), torch.tensor([1.0, 0.04])
    )
    mean, std, _ = drawn_styles(settings(explore_layers=(), shift_select="random"), [given_])
    noise = torch.cat(
        [(mean - given_.mean) / given_.mean_var.sqrt(), (std - given_.std) / given_.std_var.sqrt()], dim=1
    )
    assert all(stats.kstest(column.numpy(), "norm").pvalue > SURE for column in noise.T)
    together = torch.corrcoef(noise.T) - torch.eye(4)
    assert float(together.abs().max()) < 4 / math.sqrt(len(noise))


def test_a_drawn_std_below_zero_is_cut_at_zero() -> None:
    _, std, _ = drawn_styles(settings(explore_layers=(), shift_select="random"), [style(0.0, 1.0, 0.0, 4.0)])
    share = float((std < 1e-6).double().mean())
    assert share == pytest.approx(float(stats.norm.cdf(-0.5)), abs=0.04)
    assert float(std.max()) > 3


def test_the_literal_shift_scales_the_same_noise() -> None:
    given_, own = style(1.0, 60.0, torch.tensor([4.0, 9.0]), 0.25), style(0.0, 1.0, torch.tensor([0.01, 16.0]), 0.36)
    how = {
        literal: settings(explore_layers=(), shift_select="random", literal_shift=literal) for literal in (False, True)
    }
    mean, std, state = drawn_styles(how[False], [given_], own)
    literal_mean, literal_std, literal_state = drawn_styles(how[True], [given_], own)
    factor = (own.mean_var * given_.mean_var).sqrt()  # own std x other's variance, over the other's std
    torch.testing.assert_close(literal_mean - 1, (mean - 1) * factor, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(literal_std - 60, (std - 60) * math.sqrt(0.36 * 0.25), rtol=1e-4, atol=1e-3)
    assert torch.equal(state, literal_state)


def test_received_styles_are_drawn_uniformly() -> None:
    mean, std, _ = drawn_styles(
        settings(explore_layers=(), shift_select="random"), [style(10.0 * i, 1.0 + i) for i in range(3)]
    )
    which = (mean[:, 0] / 10).round()
    torch.testing.assert_close(mean, 10 * which[:, None].expand(-1, 2), rtol=0, atol=1e-4)
    torch.testing.assert_close(std, 1 + which[:, None].expand(-1, 2), rtol=0, atol=1e-4)
    assert stats.chisquare(which.long().bincount(minlength=3).numpy()).pvalue > SURE


def test_nothing_is_shifted_without_styles(rng: torch.Generator) -> None:
    features = maps(rng, 4, 2)
    shifted = batch(torch.zeros(4, dtype=torch.int64), settings(explore_layers=())).after()["layer1"](features)
    assert torch.equal(shifted, features)


def test_styles_are_shifted_at_the_named_layer_only(rng: torch.Generator) -> None:
    features = maps(rng, 4, 2)
    made = batch(
        torch.zeros(4, dtype=torch.int64), settings(style_layer="layer2", explore_layers=()), styles=[style(4.0, 2.0)]
    )
    assert set(made.after()) == {"layer2"}
    assert len(kept_rows(features, made.after()["layer2"](features))) == 2


LABELS = torch.tensor([0, 0, 0, 1, 1, 2])


@pytest.mark.usefixtures("unmixed")
def test_the_first_layer_appends_and_all_explore(rng: torch.Generator) -> None:
    made = batch(LABELS, settings())
    features = maps(rng, 6, 2)
    first = made.after()["layer1"](features)
    assert len(first) == len(made.labels) == len(made.ids) == 12
    assert torch.equal(made.labels[:6], LABELS)
    assert made.labels[6:].bincount().tolist() == [1, 2, 3]
    assert torch.equal(LABELS[made.ids - 100], made.labels)
    torch.testing.assert_close(first[:6], features, rtol=0, atol=1e-5)
    copies = features[made.ids[6:] - 100]
    torch.testing.assert_close(first[6:], plain_explore(copies, features, 3.0), rtol=1e-4, atol=1e-4)
    labels = made.labels.clone()
    for layer in ("layer2", "layer3"):
        features = maps(rng, 12, 2)
        later = made.after()[layer](features)
        assert torch.equal(made.labels, labels)
        torch.testing.assert_close(later[:6], features[:6], rtol=0, atol=1e-5)
        torch.testing.assert_close(later[6:], plain_explore(features[6:], features[:6], 3.0), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("unmixed")
def test_the_released_code_explores_once(rng: torch.Generator) -> None:
    made, features = batch(LABELS, settings(code_compat=True)), maps(rng, 6, 2)
    first = made.after()["layer1"](features)
    copies = features[made.ids[6:] - 100]
    torch.testing.assert_close(first[6:], plain_explore(copies, features, 3.0), rtol=1e-4, atol=1e-4)
    features = maps(rng, 12, 2)
    torch.testing.assert_close(made.after()["layer2"](features), features, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("unmixed")
def test_the_center_moves_only_what_was_appended(rng: torch.Generator) -> None:
    features = maps(rng, 6, 2)
    plain, concat = batch(LABELS, settings()), batch(LABELS, settings(center="concat"))
    by_batch, by_all = (made.after()["layer1"](features) for made in (plain, concat))
    assert torch.equal(plain.ids, concat.ids)
    assert torch.equal(plain.rng.get_state(), concat.rng.get_state())
    assert torch.equal(by_batch[:6], by_all[:6])
    copies = features[concat.ids[6:] - 100]
    whole = torch.cat([features, copies])
    torch.testing.assert_close(by_all[6:], plain_explore(copies, whole, 3.0), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(by_batch[6:], by_all[6:], atol=1e-2)


@pytest.mark.usefixtures("unmixed")
def test_clamping_in_a_forward_cuts_negative_stds() -> None:
    by_class = torch.tensor([5.0, 1.0, 2.8])  # the mean is 3.3: 1 goes below 0, 2.8 comes out at 1.3
    std = by_class[LABELS][:, None].expand(6, 2)
    features = pattern(torch.zeros(6, 2), std)
    free, cut = batch(LABELS, settings()), batch(LABELS, settings(clamp_sigma=True))
    loose, clamped = (made.after()["layer1"](features)[6:] for made in (free, cut))
    assert torch.equal(free.rng.get_state(), cut.rng.get_state())
    negative = features[free.ids[6:] - 100].amax((1, 2, 3)) < 2
    assert int(negative.sum()) == 2  # one, two and three of the three classes are appended
    assert torch.equal(loose[~negative], clamped[~negative])
    torch.testing.assert_close(clamped[negative], torch.zeros_like(clamped[negative]), rtol=0, atol=1e-5)
    assert bool((PAPER(loose[negative])[1] > 1).all())
    for made in (free, cut):
        total, count = made.log["negative_std_share"]
        assert total / count == pytest.approx(float(negative.float().mean()))


def test_oversampling_by_none_only_mixes(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    features = maps(rng, 6, 2)
    mixed = batch(LABELS, settings(oversample_size=0)).after()["layer1"](features)
    assert len(kept_rows(features, mixed)) < 6
    assert not torch.allclose(mixed, features, atol=1e-2)
    assert bool((PAPER(mixed)[0].amax(0) <= PAPER(features)[0].amax(0) + 1e-4).all())  # mixing never leaves the hull
    monkeypatch.setattr(forward, "beta", lambda alpha, size, rng: torch.ones(size))
    made = batch(LABELS, settings(oversample_size=0))
    torch.testing.assert_close(made.after()["layer1"](features), features, rtol=0, atol=1e-5)
    assert torch.equal(made.labels, LABELS)


def test_random_and_balanced_oversampling(rng: torch.Generator) -> None:
    labels = torch.tensor([0] * 9 + [1] * 2 + [2])
    appended: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    features = maps(rng, 12, 1, side=2)
    for balanced, count in appended.items():
        for seed in range(100):
            made = batch(labels, settings(oversample="balanced" if balanced else "random"), seed)
            made.after()["layer1"](features)
            count.update(made.ids[12:].tolist())
    assert stats.chisquare([appended[False][100 + i] for i in range(12)]).pvalue > SURE
    by_class = [sum(appended[True][100 + i] for i in range(12) if labels[i] == label) for label in range(3)]
    assert by_class == [0, pytest.approx(550, abs=50), pytest.approx(650, abs=50)]  # 5 or 6 and 6 or 7 of 12 each time
    assert sum(by_class) == 1200


def test_rows_are_mixed_with_any_row(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def none_of_its_own(alpha: float, size: int, rng: torch.Generator) -> Tensor:
        asked.append((alpha, size))
        return torch.zeros(size)

    monkeypatch.setattr(forward, "beta", none_of_its_own)
    kinds: Counter[tuple[int, int]] = Counter()
    for seed in range(30):
        features = maps(rng, 6, 2)
        made = batch(LABELS, settings(exploration=0.0, mixing=0.7), seed)
        mean, _ = PAPER(made.after()["layer1"](features))
        before, _ = PAPER(features[made.ids - 100])
        distance = torch.cdist(mean, before)
        assert float(distance.amin(1).max()) < 1e-4  # each row has some row's whole style
        kinds.update(zip(made.ids[:6].tolist(), (distance.argmin(1)[:6] % 6).tolist(), strict=True))
    assert asked == [(0.7, 12)] * 30
    assert len(kinds) > 20  # of 36 pairs of images


def test_the_mixing_weight_is_one_number_per_sample(rng: torch.Generator) -> None:
    mean = torch.tensor([0.0, 1.0]).repeat(20)[:, None].expand(40, 3)
    made = batch(torch.zeros(40, dtype=torch.int64), settings(oversample_size=0, mixing=1.0))
    mixed, _ = PAPER(made.after()["layer1"](pattern(mean, torch.ones(40, 3))))
    torch.testing.assert_close(mixed, mixed[:, :1].expand(-1, 3), rtol=0, atol=1e-5)
    assert len({round(float(v), 4) for v in mixed[:, 0]} - {0.0, 1.0}) > 10


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_layers_are_active_with_probability_p(p: float, rng: torch.Generator) -> None:
    how = settings(p=p, explore_layers=("layer2", "layer3", "layer4"), oversample_size=2)
    seen: Counter[tuple[bool, ...]] = Counter()
    runs, features = 400 if 0 < p < 1 else 20, maps(rng, 8, 1, side=2)
    for seed in range(runs):
        made = batch(LABELS, how, seed, [style(9.0, 1.0, c=1)])
        pattern_ = []
        for layer in ("layer1", "layer2", "layer3", "layer4"):
            rows = features[: len(made.labels)]
            after = made.after()[layer](rows)
            pattern_.append(len(after) > len(rows) or not torch.equal(after, rows))
        seen[tuple(pattern_)] += 1
    chances = {
        on: math.prod(p if bit else 1 - p for bit in on)
        for on in (tuple(bool(i >> bit & 1) for bit in range(4)) for i in range(16))
    }
    possible = [on for on, chance in chances.items() if chance > 0]
    assert set(seen) <= set(possible)
    if len(possible) > 1:
        assert stats.chisquare([seen[on] for on in possible], [runs * chances[on] for on in possible]).pvalue > SURE
        off = sum(count for on, count in seen.items() if not any(on[1:]))
        assert stats.binomtest(off, runs, (1 - p) ** 3).pvalue > SURE


@pytest.mark.usefixtures("unmixed")
def test_shifting_comes_before_exploring(rng: torch.Generator) -> None:
    features = maps(rng, 6, 2)
    made = batch(LABELS, settings(exploration=0.0), styles=[style(40.0, 2.0)])
    mean, _ = PAPER(made.after()["layer1"](features))
    shifted = (mean - 40).abs().amax(1) < 1e-3
    assert int(shifted[:6].sum()) == 3
    assert torch.equal(shifted[6:], shifted[:6][made.ids[6:] - 100])  # copies are of the shifted batch


@pytest.mark.parametrize("released", [False, True])
def test_extras_pass_through_untouched(released: bool, rng: torch.Generator) -> None:
    labels = torch.arange(20) % 3
    made = batch(labels, settings(code_compat=released), styles=[style(4.0, 2.0)], extras=2)
    rows = 20
    for layer in ("layer1", "layer2", "layer3"):
        features = maps(rng, rows + 2, 2)
        after = made.after()[layer](features)
        rows = 40
        assert len(after) == 42
        assert torch.equal(after[-2:], features[-2:])
    assert len(made.labels) == len(made.ids) == 40


def test_without_layers_there_is_no_style_learning(rng: torch.Generator) -> None:
    made, features = batch(LABELS, settings(explore_layers=())), maps(rng, 6, 2)
    assert all(torch.equal(act(features), features) for act in made.after().values())
    assert len(made.labels) == 6


# As released


def plain_released(
    features: Tensor, first: int, alpha: float, partner: Tensor, weight: Tensor, center: int | None = None
) -> Tensor:
    """Steps 4 and 5 as one affine map of each channel, channel by channel: unbiased variances, signed stds."""
    rows, channels = features.shape[:2]
    mean = [[float(features[b, c].mean()) for c in range(channels)] for b in range(rows)]
    std = [[math.sqrt(float(features[b, c].var()) + 1e-6) for c in range(channels)] for b in range(rows)]
    new_mean, new_std = [list(row) for row in mean], [list(row) for row in std]
    around = first if center is None else center
    for b in range(first, rows):
        for c in range(channels):
            new_mean[b][c] += alpha * (mean[b][c] - sum(row[c] for row in mean[:around]) / around)
            new_std[b][c] += alpha * (std[b][c] - sum(row[c] for row in std[:around]) / around)
    made = torch.empty_like(features)
    for b in range(rows):
        j, own = int(partner[b]), float(weight[b])
        for c in range(channels):
            to_std = own * new_std[b][c] + (1 - own) * new_std[j][c]
            to_mean = own * new_mean[b][c] + (1 - own) * new_mean[j][c]
            made[b, c] = to_std * (features[b, c] - mean[b][c]) / std[b][c] + to_mean
    return made


def test_the_released_code_mixes_signed_stds() -> None:
    std = torch.tensor([5.0, 1.0, 3.0, 1.0, 3.0])  # rows 3 and 4 are appended: 1 + 3 (1 - 3) = -5, and 3
    features = pattern(torch.zeros(5, 1), std[:, None])
    partner, weight = torch.tensor([3, 0, 1, 4, 3]), torch.full((5,), 0.25)
    released = steps.explore_and_mix(features, 2, 3, 3.0, partner, weight)[:, 0, 0, 0]
    explored = torch.cat([features[:3], steps.explore(features[3:], features[:3], 3.0)])
    text = steps.mix(explored, partner, weight)[:, 0, 0, 0]
    expected = [
        (0.25 * 5 + 0.75 * -5, 0.25 * 5 + 0.75 * 5),
        (0.25 * 1 + 0.75 * 5, 0.25 * 1 + 0.75 * 5),
        (0.25 * 3 + 0.75 * 1, 0.25 * 3 + 0.75 * 1),
        (0.25 * -5 + 0.75 * 3, -(0.25 * 5 + 0.75 * 3)),  # AdaIN turned the channel upside down, its std is 5
        (0.25 * 3 + 0.75 * -5, 0.25 * 3 + 0.75 * 5),
    ]
    torch.testing.assert_close(torch.stack([released, text], dim=1), torch.tensor(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("center_concat", [False, True])
def test_the_released_steps_are_one_adain(center_concat: bool, rng: torch.Generator) -> None:
    features = maps(rng, 7, 3)
    partner, weight = torch.randperm(7, generator=rng), torch.rand(7, generator=rng)
    center = 7 if center_concat else 4
    made = steps.explore_and_mix(features, 3, center, 3.0, partner, weight)
    expected = plain_released(features, 4, 3.0, partner, weight, center)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    only_mixed = steps.explore_and_mix(features, 0, 7, 3.0, partner, weight)
    torch.testing.assert_close(only_mixed, plain_released(features, 7, 3.0, partner, weight), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(made, only_mixed, atol=1e-2)


def test_a_released_forward_explores_and_mixes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "beta", lambda alpha, size, rng: torch.full((size,), 0.25))
    rng, features = seeded(3), maps(seeded(4), 6, 2)
    made = batch(LABELS, settings(code_compat=True), seed=3)
    first = made.after()["layer1"](features)
    torch.rand((), generator=rng)  # whether the layer is active
    water = steps.water_fill(LABELS, 6, 3, rng)
    partner = torch.randperm(12, generator=rng)
    rows = torch.cat([features, features[water]])
    torch.testing.assert_close(
        first, plain_released(rows, 6, 3.0, partner, torch.full((12,), 0.25)), rtol=1e-4, atol=1e-4
    )
    total, times = made.log["negative_std_share"]
    assert times == 1
    assert total == pytest.approx(float((4 * DASSL(rows[6:])[1] < 3 * DASSL(features)[1].mean(0)).float().mean()))
    later = made.after()["layer2"](rows)
    assert made.log["negative_std_share"] == (total, 1)
    assert later.shape == rows.shape


def test_the_released_partner_is_the_next_row() -> None:
    labels = torch.tensor([2, 0, 2, 1, 0, 2])
    assert forward.next_of_class(labels).tolist() == [2, 4, 5, 3, 1, 0]
    assert forward.next_of_class(labels[:0]).tolist() == []


def test_the_released_shift_writes_cluster_centres(rng: torch.Generator) -> None:
    kind = torch.arange(20) % 4  # four styles far apart, five samples each
    mean = (100.0 * kind)[:, None] + 0.1 * torch.rand(20, 2, generator=rng)
    std = 1 + kind[:, None] + 0.1 * torch.rand(20, 2, generator=rng)
    how = settings(explore_layers=(), code_compat=True)
    made = batch(torch.zeros(20, dtype=torch.int64), how, styles=[style(-70.0, 3.0)])
    unbiased = math.sqrt(3 / 4)  # the pattern has four pixels
    new_mean, new_std = DASSL(made.after()["layer1"](pattern(mean, std * unbiased)))
    torch.testing.assert_close(new_mean[4:], torch.full((16, 2), -70.0), rtol=0, atol=1e-4)
    torch.testing.assert_close(new_std[4:], torch.full((16, 2), 3.0), rtol=0, atol=1e-4)
    order = new_mean[:4, 0].argsort()
    for cluster, row in enumerate(order.tolist()):
        torch.testing.assert_close(new_mean[row], mean[kind == cluster].mean(0), rtol=0, atol=1e-3)
        torch.testing.assert_close(new_std[row], std[kind == cluster].mean(0), rtol=0, atol=1e-3)


def test_the_released_shift_fails_below_17_samples(rng: torch.Generator) -> None:
    made = batch(
        torch.zeros(16, dtype=torch.int64), settings(explore_layers=(), code_compat=True), styles=[style(4.0, 2.0)]
    )
    with pytest.raises(ValueError, match="more than 16 samples"):
        made.after()["layer1"](maps(rng, 16, 2))
