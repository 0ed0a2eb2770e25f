"""Style statistics: each of the inequivalent rules against a plain loop over numbers, and what AdaIN makes of them."""

import math
import statistics

import pytest
import torch
from torch import Tensor

from fdgpriv.artifacts import moments
from fdgpriv.artifacts.moments import (
    DASSL,
    PAPER,
    PAPER_EPS,
    PER_IMAGE_UNBIASED,
    RULES,
    adain,
    maps_of,
    pooled_style,
    styles_and_maps_of,
    styles_of,
)

TABLE = {  # by name: divide by HW - 1, added to the variance
    "per_image_unbiased": (True, 1e-5),
    "dassl": (True, 1e-6),
    "paper": (False, 0.0),
    "paper_eps": (False, 1e-6),
    "pooled_biased": (False, 0.0),
} | {
    f"finch_{partition}_{what}_{std}": (False, 0.0)
    for partition in ("first", "last")
    for what in ("maps", "styles")
    for std in ("mixture", "mean_of_std")
}


def maps(rng: torch.Generator, *shape: int) -> Tensor:
    """Features whose channels have means and spreads of their own."""
    scale = torch.rand(*shape[:2], 1, 1, generator=rng) + 0.5
    return torch.randn(*shape, generator=rng) * scale + 3 * torch.randn(*shape[:2], 1, 1, generator=rng)


@pytest.mark.parametrize("name", [name for name in TABLE if not name.startswith("finch_") or "maps" in name])
def test_a_rule_is_a_loop_over_images_and_channels(name: str, rng: torch.Generator) -> None:
    unbiased, eps = TABLE[name]
    features = maps(rng, 3, 4, 5, 2)
    mean, std = RULES[name](features)
    assert mean.shape == std.shape == (3, 4)
    for image in range(3):
        for channel in range(4):
            values = [float(v) for v in features[image, channel].flatten()]
            variance = statistics.variance(values) if unbiased else statistics.pvariance(values)
            assert float(mean[image, channel]) == pytest.approx(statistics.fmean(values), abs=1e-6)
            assert float(std[image, channel]) == pytest.approx(math.sqrt(variance + eps), rel=1e-5)


def test_every_rule_goes_by_its_own_name() -> None:
    assert {name: (rule.name, rule.unbiased, rule.eps) for name, rule in RULES.items()} == {
        name: (name, *settings) for name, settings in TABLE.items()
    }


def test_a_dead_channel_has_the_std_that_its_rule_says() -> None:
    dead = torch.zeros(1, 1, 3, 3)
    assert {rule.name: float(rule(dead)[1]) for rule in (PER_IMAGE_UNBIASED, DASSL, PAPER, PAPER_EPS)} == {
        "per_image_unbiased": pytest.approx(math.sqrt(1e-5)),
        "dassl": pytest.approx(1e-3),
        "paper": 0.0,
        "paper_eps": pytest.approx(1e-3),
    }
    for shape in ((4, 3), (3, 2, 2), (1, 2, 3, 2, 2)):
        with pytest.raises(ValueError, match="want features"):
            PAPER(torch.zeros(shape))


def test_the_pooled_style_is_a_loop_over_pixels(rng: torch.Generator) -> None:
    features = maps(rng, 3, 2, 4, 3)
    mean, std = pooled_style(features)
    assert mean.shape == std.shape == (2,)
    for channel in range(2):
        values = [float(v) for v in features[:, channel].flatten()]
        assert float(mean[channel]) == pytest.approx(statistics.fmean(values), abs=1e-6)
        assert float(std[channel]) == pytest.approx(math.sqrt(statistics.pvariance(values) + 1e-5), rel=1e-5)


def test_the_pooled_style_does_not_cancel() -> None:
    deviation = 0.0625 * torch.tensor([1.0, -1.0]).repeat(32).view(1, 1, 8, 8)  # exact in float32 beside 4096
    _, std = pooled_style(deviation + 4096)
    assert float(std) == pytest.approx(math.sqrt(0.0625**2 + 1e-5), rel=1e-5)


def test_pooled_and_unbiased_differ_by_the_root_of_hw(rng: torch.Generator) -> None:
    features = 100 * torch.randn(1, 3, 3, 3, generator=rng)  # eps is nothing beside this variance
    _, pooled = pooled_style(features)
    _, unbiased = PER_IMAGE_UNBIASED(features)
    torch.testing.assert_close(unbiased[0] / pooled, torch.full((3,), math.sqrt(9 / 8)), rtol=1e-5, atol=0)


def test_unbiased_adain_misses_its_target_by_hand(rng: torch.Generator) -> None:
    features = torch.randn(2, 3, 6, 6, generator=rng)
    target_mean, target_std = torch.randn(2, 3, generator=rng), torch.rand(2, 3, generator=rng) + 0.5
    mean, std = PAPER(made := adain(features, target_mean, target_std, PER_IMAGE_UNBIASED))
    own = features.flatten(2).std(2)
    reached = target_std * own / (own.square() + 1e-5).sqrt()
    torch.testing.assert_close(mean, target_mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(made.flatten(2).std(2), reached, rtol=0, atol=2e-6)
    torch.testing.assert_close(std / reached, torch.full((2, 3), math.sqrt(35 / 36)), rtol=0, atol=1e-5)
    assert math.sqrt(35 / 36) == pytest.approx(0.9860, abs=5e-5)


def test_adain_is_a_loop_over_images_and_channels(rng: torch.Generator) -> None:
    features = maps(rng, 3, 2, 4, 4)
    mean, std = torch.randn(3, 2, generator=rng), torch.rand(3, 2, generator=rng)
    made = adain(features, mean, std)
    for image in range(3):
        for channel in range(2):
            own = features[image, channel]
            spread = math.sqrt(statistics.pvariance([float(v) for v in own.flatten()]) + 1e-6)
            expected = float(std[image, channel]) * (own - own.mean()) / spread + float(mean[image, channel])
            torch.testing.assert_close(made[image, channel], expected, rtol=0, atol=1e-5)


def test_adain_to_its_own_style_changes_nothing(rng: torch.Generator) -> None:
    features, mean, std = maps(rng, 4, 3, 5, 5), torch.randn(3, generator=rng), torch.rand(3, generator=rng)
    for rule in RULES.values():
        torch.testing.assert_close(adain(features, *rule(features), rule), features, rtol=0, atol=1e-5)
    made = adain(features, mean, std)
    assert torch.equal(made, adain(features, mean.expand(4, 3), std.expand(4, 3)))
    torch.testing.assert_close(
        adain(features, 0 * mean, -std), -adain(features, 0 * mean, std)
    )  # linear in std < 0 too


def test_adain_leaves_a_dead_channel_finite() -> None:
    dead = torch.full((1, 1, 3, 3), 2.0)
    one = torch.ones(1, 1)
    torch.testing.assert_close(adain(dead, 5 * one, 7 * one), torch.full((1, 1, 3, 3), 5.0), rtol=0, atol=1e-2)
    assert not bool(torch.isfinite(adain(dead, 5 * one, 7 * one, PAPER)).all())


def test_maps_are_those_of_one_pass(rng: torch.Generator) -> None:
    images = torch.rand(5, 3, 8, 8, generator=rng)

    def features(some: torch.Tensor) -> torch.Tensor:
        return torch.cat([some, some.square()], dim=1)

    for name in ("finch_last_maps_mixture", "finch_last_styles_mixture", "paper_eps"):
        rule = RULES[name]
        mean, std, maps = styles_and_maps_of(images, features, rule)
        assert torch.equal(maps_of(images, features, rule), maps)
        assert all(torch.equal(a, b) for a, b in zip(styles_of(images, features, rule), (mean, std), strict=True))
        assert maps.shape[1] == (5 if "maps" in name else 0)


@pytest.mark.parametrize(("side", "most"), [(8, 256), (32, 256), (96, 28), (224, 5), (512, 1), (2048, 1)])
def test_images_are_encoded_in_parts(side: int, most: int) -> None:
    assert moments.at_once(side, side) == most
    count = min(most + 3, 300)
    images = torch.rand(count, 3, 1, 1, generator=torch.Generator().manual_seed(side)).expand(-1, -1, side, side)
    sizes: list[int] = []

    def features(part: Tensor) -> Tensor:
        """Two channels of 2 x 2 pixels, from the first pixel."""
        sizes.append(len(part))
        base = part[:, :2, :1, :1]
        return torch.cat([torch.cat([base, 2 * base], 2), torch.cat([3 * base, base], 2)], 3)

    for rule in (moments.POOLED, moments.clustered(True, True, True)):
        sizes.clear()
        mean, std, maps = moments.styles_and_maps_of(images, features, rule)
        again = moments.styles_of(images, features, rule)
        assert max(sizes) == min(most, count)
        assert sum(sizes) == 2 * count
        whole = features(images)
        for found, expected in zip((mean, std, *again), (*rule(whole), *rule(whole)), strict=True):
            torch.testing.assert_close(found, expected)
        assert len(maps) == count
        maps, rows = maps.double(), rule.maps(whole).double()
        torch.testing.assert_close(maps @ maps.T, rows @ rows.T, rtol=1e-4, atol=1e-4)
