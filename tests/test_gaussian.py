"""The Gaussian mechanism: what it clips, how much it adds, what it proves, and that less noise is caught."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from conftest import fit
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fdgpriv.artifact import SERVER, Artifact, StyleDraft, StyleStatistics
from fdgpriv.federation import Dataset
from fdgpriv.finding import Privacy
from fdgpriv.privacy.measured import Bound
from fdgpriv.privacy.release import Measurement, measure, privacies
from fdgpriv.roles import Defense, Guarantee, Method
from fdgpriv.style import RULES

# z of one release at delta = 1e-5, by epsilon: AUDIT 5.1
CALIBRATED = {9.997: 0.5, 4.377: 1.0, 1.993: 2.0, 0.926: 4.0, 0.434: 8.0}


def gaussian(**settings: object) -> Defense:
    return Defense.named("gaussian").configured(settings)


def draft(n: int, channels: int = 3, scale: float = 1.0, seed: int = 0, variances: bool = True) -> StyleDraft:
    rng = torch.Generator().manual_seed(seed)
    return StyleDraft(
        client="photo",
        round=1,
        mean=scale * torch.randn(n, channels, generator=rng),
        std=scale * torch.rand(n, channels, generator=rng),
        variances=variances,
        behind="client",
        at="layer1",
        rule="paper_eps",
    )


def shared(defense: Defense, outgoing: StyleDraft | StyleStatistics, seed: int = 0) -> StyleStatistics:
    found = defense.protect(outgoing, torch.Generator().manual_seed(seed))
    assert isinstance(found, StyleStatistics)
    return found


def silent(**settings: object) -> Defense:
    """The same mechanism without its noise, to see what is noised."""
    part = Defense.named("gaussian")

    @dataclasses.dataclass(frozen=True)
    class Silent(part):  # type: ignore[misc, valid-type]
        @property
        def multiplier(self) -> float:
            return 0.0

    return Silent(**settings)


def half(**settings: object) -> Defense:
    """The mistake of taking C for 2C: half the noise that was calibrated."""
    part = Defense.named("gaussian")

    @dataclasses.dataclass(frozen=True)
    class Half(part):  # type: ignore[misc, valid-type]
        def sensitivity(self, n: int) -> float:
            return float(super().sensitivity(n)) / 2

    return Half(**settings)


# Noise


@pytest.mark.parametrize(("epsilon", "z"), CALIBRATED.items())
def test_one_release_is_calibrated_exactly(epsilon: float, z: float) -> None:
    assert gaussian(epsilon=epsilon).multiplier == pytest.approx(z, rel=1.5e-3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("releases", [1, 4, 9, 50])
def test_r_releases_need_root_r_times_the_noise(releases: int) -> None:
    """mu_R = sqrt(R) / z."""
    found = gaussian(epsilon=4.377, releases=releases).multiplier  # type: ignore[attr-defined]
    assert found == pytest.approx(math.sqrt(releases), rel=1.5e-3)


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("unit", ["image", "client"])
@pytest.mark.parametrize("releases", [1, 4])
def test_the_released_means_have_the_mean_and_spread_of_the_formula(n: int, unit: str, releases: int) -> None:
    """N(mean of clipped moments, (z 2C / n)^2) for the unit image, (z 2C)^2 for the unit client."""
    defense = gaussian(epsilon=4.377, clip=1.5, unit=unit, releases=releases)
    made = draft(n, scale=0.1)  # far below the clip, so that the mean is the plain one
    drawn = torch.stack([shared(defense, made, seed).mean for seed in range(800)]).double().numpy()
    sensitivity = 2 * 1.5 / n if unit == "image" else 2 * 1.5
    expected = math.sqrt(releases) * sensitivity
    standard = (drawn - made.mean.mean(0).numpy()) / expected
    assert abs(standard.mean()) < 4 / math.sqrt(standard.size)
    assert abs(standard.std() - 1) < 0.06  # 4 standard errors
    assert stats.kstest(standard.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(drawn.T)[np.triu_indices(3, 1)]).max() < 0.15  # channels are noised independently


def test_squared_moments_are_noised_like_the_others() -> None:
    """All four moments are entries of one vector, the squares in units of `scale`."""
    defense = gaussian(epsilon=4.377, clip=0.5, scale=2.0)
    made = draft(50, scale=0.05)
    moments = defense.moments(made.mean, made.std, True)  # type: ignore[attr-defined]
    drawn = defense.release(moments, 20_000, torch.Generator().manual_seed(1))  # type: ignore[attr-defined]
    assert drawn.shape == (20_000, 12)
    assert torch.allclose(drawn.std(0), torch.full((12,), 2 * 0.5 / 50), rtol=0.03)
    assert torch.allclose(drawn.mean(0), moments.mean(0), atol=4 * 0.02 / 20_000**0.5)


def test_each_release_is_noised_afresh(rng: torch.Generator) -> None:
    defense, made = gaussian(), draft(5)
    first, second = (defense.protect(made, rng) for _ in range(2))
    assert isinstance(first, StyleStatistics)
    assert isinstance(second, StyleStatistics)
    assert not torch.equal(first.mean, second.mean)


# Clipping

VECTORS = st.integers(0, 2**31)


def released(defense: Defense, made: StyleDraft) -> Tensor:
    """The noiseless release (4C,)."""
    moments = defense.moments(made.mean, made.std, made.variances)  # type: ignore[attr-defined]
    found: Tensor = defense.center(moments)  # type: ignore[attr-defined]
    return found


@given(
    n=st.integers(1, 30),
    which=st.integers(0, 29),
    clip=st.floats(0.1, 20),
    scale=st.floats(0.5, 8),
    size=st.floats(0.01, 1e4),
    seed=VECTORS,
    variances=st.booleans(),
)
def test_one_image_moves_the_mean_by_at_most_2c_over_n(
    n: int, which: int, clip: float, scale: float, size: float, seed: int, variances: bool
) -> None:
    made, other = draft(n, seed=seed, scale=size), draft(1, seed=seed + 1, scale=size)
    mean, std = made.mean.clone(), made.std.clone()
    mean[which % n], std[which % n] = -other.mean[0], other.std[0]
    neighbour = dataclasses.replace(made, mean=mean, std=std)
    defense = silent(clip=clip, scale=scale)
    moved = released(defense, dataclasses.replace(made, variances=variances)) - released(
        defense, dataclasses.replace(neighbour, variances=variances)
    )
    assert float(moved.norm()) <= 2 * clip / n * (1 + 1e-4)
    assert defense.sensitivity(n) == pytest.approx(2 * clip / n)  # type: ignore[attr-defined]


def test_the_bound_is_reached() -> None:
    defense = silent(clip=0.5)
    made = draft(10, scale=0.0)
    ends = []
    for sign in (1, -1):
        mean = made.mean.clone()
        mean[0] = sign * 1e6
        ends.append(released(defense, dataclasses.replace(made, mean=mean, variances=False)))
    assert float((ends[0] - ends[1]).norm()) == pytest.approx(2 * 0.5 / 10, rel=1e-4)


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.1, 20), st.floats(0.01, 1e4), VECTORS)
def test_a_whole_client_moves_a_client_level_release_by_at_most_2c(
    n: int, m: int, clip: float, size: float, seed: int
) -> None:
    defense = silent(clip=clip, unit="client")
    moved = released(defense, draft(n, seed=seed, scale=size)) - released(defense, draft(m, seed=seed + 1, scale=size))
    assert float(moved.norm()) <= 2 * clip * (1 + 1e-4)
    assert defense.sensitivity(n) == pytest.approx(2 * clip)  # type: ignore[attr-defined]


def test_a_finished_style_is_protected_as_a_whole_client() -> None:
    """What one image can move is no longer to be seen in an average."""
    defense, style = gaussian(epsilon=4.377, clip=0.5), draft(40, scale=0.1).finish()
    drawn = torch.stack([shared(defense, style, seed).mean for seed in range(1000)])
    assert torch.allclose(drawn.std(0), torch.full((3,), 2 * 0.5), rtol=0.1)
    far = shared(silent(clip=0.5), draft(40, scale=100).finish())
    moments = [far.mean, far.std]
    assert float(torch.cat(moments).norm()) <= 0.5 * (1 + 1e-5)


# What is rebuilt


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("unit", ["image", "client"])
@pytest.mark.parametrize("variances", [True, False])
def test_without_noise_and_clipping_the_style_is_rebuilt_exactly(n: int, unit: str, variances: bool) -> None:
    made = draft(n, variances=variances)
    found, plain = shared(silent(clip=1e6, unit=unit), made), made.finish()
    for name, tensor in plain.tensors().items():
        assert torch.allclose(found.tensors()[name], tensor, atol=1e-5), name
    again = shared(silent(clip=1e6, unit=unit), plain)
    for name, tensor in plain.tensors().items():
        assert torch.allclose(again.tensors()[name], tensor, atol=1e-5), name


def test_without_noise_the_std_over_all_pixels_is_rebuilt_from_second_moments(rng: torch.Generator) -> None:
    """CCST's style: what numpy says of all pixels of all images, not the mean of the images' own stds."""
    features = torch.rand(7, 5, 6, 6, generator=rng) * torch.arange(1, 8)[:, None, None, None]
    mean, std = RULES["pooled_biased"](features)
    made = StyleDraft(
        client="c", round=0, mean=mean, std=std, variances=False, behind="client", at="layer1", rule="pooled_biased"
    )
    found = shared(silent(clip=1e6), made)
    pixels = features.permute(1, 0, 2, 3).flatten(1).double().numpy()
    np.testing.assert_allclose(found.mean.numpy(), pixels.mean(1), rtol=1e-5)
    np.testing.assert_allclose(found.std.numpy(), pixels.std(1), rtol=1e-4)
    assert np.abs(std.mean(0).numpy() / pixels.std(1) - 1).max() > 0.1  # the mean of stds is another number


def test_a_huge_epsilon_gives_nearly_the_plain_style() -> None:
    made = draft(100)
    found, plain = shared(gaussian(epsilon=1e8, clip=20), made), made.finish()
    for name, tensor in plain.tensors().items():
        assert torch.allclose(found.tensors()[name], tensor, atol=1e-3), name


@settings(max_examples=40)
@given(st.integers(1, 10), st.floats(0.05, 50), st.floats(0.1, 10), VECTORS, st.booleans())
def test_stds_and_variances_are_never_negative(
    n: int, epsilon: float, clip: float, seed: int, from_draft: bool
) -> None:
    made = draft(n, seed=seed)
    found = shared(gaussian(epsilon=epsilon, clip=clip), made if from_draft else made.finish(), seed)
    for tensor in (found.std, found.mean_var, found.std_var):
        assert bool((tensor >= 0).all())
    assert found.not_finite() is None


def test_other_kinds_pass_as_they_are(tiny: Dataset) -> None:
    transcript = fit(tiny, clients=3, defense="gaussian:epsilon=1").transcript
    plain = fit(tiny, clients=3).transcript
    first = {r.receiver: a for r, a in transcript.of_kind("model_state") if r.sender == SERVER}
    again = {r.receiver: a for r, a in plain.of_kind("model_state") if r.sender == SERVER}
    for client, state in first.items():
        other = again[client]
        assert state is not None
        assert other is not None
        assert all(torch.equal(other.tensors()[name], tensor) for name, tensor in state.tensors().items())


def test_the_method_is_sent_the_defended_style_bit_for_bit(tiny: Dataset) -> None:
    transcript = fit(tiny, clients=3, settings={"rounds": "2"}, defense="gaussian:epsilon=1").transcript
    let_out: dict[tuple[str, int], Artifact | None] = {}
    passed: dict[tuple[str, int], Artifact | None] = {}
    for record, artifact in transcript.of_kind("style_statistics"):
        (passed if record.relayed else let_out)[record.origin, record.round] = artifact
    assert len(let_out) == len(passed) == 6
    for key, style in passed.items():
        mine = let_out[key]
        assert style is not None
        assert mine is not None
        assert all(torch.equal(mine.tensors()[name], tensor) for name, tensor in style.tensors().items())


# What is proved


def test_it_is_bound_to_as_many_releases_as_the_method_makes() -> None:
    method = Method.parse("stablefdg:rounds=7")
    bound = gaussian(epsilon=2).bound_to(method)
    assert bound.releases == 7  # type: ignore[attr-defined]
    assert bound.multiplier == gaussian(epsilon=2, releases=7).multiplier  # type: ignore[attr-defined]
    silent_method = Method.parse("stablefdg:rounds=7,received=0")
    assert gaussian(epsilon=2).bound_to(silent_method).releases == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("unit", ["image", "client"])
def test_the_guarantee_names_budget_releases_unit_and_what_it_does_not_cover(unit: str) -> None:
    proved = gaussian(epsilon=2.5, delta=1e-6, releases=11, unit=unit).guarantee()
    assert (proved.epsilon, proved.delta) == (2.5, 1e-6)
    assert proved.protects == ("style_statistics",)
    said = proved.statement
    for word in ("(2.5, 1e-06)-DP", "11 releases", "replaced", "model states", "no finite epsilon"):
        assert word in said
    assert ("one of a client's n images" in said) == (unit == "image")
    assert ("all of a client's images" in said) == (unit == "client")


# What is measured


def privacy(defense: Defense, dim: int, draws: int, seed: int) -> Privacy:
    (found,) = privacies([measure(defense, dim, draws, seed)])
    return found


@pytest.mark.parametrize("unit", ["image", "client"])
@pytest.mark.parametrize("releases", [1, 5])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_worlds_are_neighbours_at_the_full_sensitivity(unit: str, releases: int, epsilon: float) -> None:
    """The scores of all releases together differ by mu of the claim: the worst case, and no more."""
    defense = gaussian(epsilon=epsilon, unit=unit, releases=releases)
    worlds = defense.worlds(6, 20_000, torch.Generator().manual_seed(2))
    assert worlds is not None
    inside, outside = worlds
    assert inside.shape == outside.shape == (20_000,)
    mu = float(inside.mean() - outside.mean()) / float(outside.std())
    expected = 1 / gaussian(epsilon=epsilon, releases=1).multiplier  # type: ignore[attr-defined]
    assert mu == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("seed", range(4))
def test_correct_noise_is_consistent_with_what_is_proved(epsilon: float, seed: int) -> None:
    found = privacy(gaussian(epsilon=epsilon, releases=3), 8, 20_000, seed)
    assert found.verdict == "consistent"
    assert found.epsilon_proved == epsilon
    assert found.epsilon_measured.clopper_pearson is not None
    assert found.ceiling is not None
    assert 0 <= found.epsilon_measured.clopper_pearson <= min(epsilon, found.ceiling)


def test_what_is_measured_is_not_far_below_what_is_true() -> None:
    """AUDIT 5.8: z = 1 (epsilon 4.38) shows 1.83 by counting and 3.88 by the Gaussian bound at 10,000 draws."""
    runs = [privacy(gaussian(epsilon=4.377), 4, 10_000, seed).epsilon_measured for seed in range(20)]
    assert np.mean([run.clopper_pearson for run in runs]) == pytest.approx(1.83, abs=0.3)  # spread of one run: 0.37
    assert np.mean([run.gdp for run in runs]) == pytest.approx(3.88, abs=0.2)


@pytest.mark.parametrize("unit", ["image", "client"])
def test_half_the_noise_is_a_violation(unit: str) -> None:
    """AUDIT 5.8: claimed 1, true 2.15: by counting with certainty at 100,000 draws."""
    found = privacy(half(epsilon=1.0, unit=unit), 2, 100_000, 0)
    assert found.verdict == "violation"
    assert found.epsilon_measured.clopper_pearson is not None
    assert found.epsilon_measured.clopper_pearson > 1.0


def test_half_the_noise_shows_in_the_gaussian_bound_with_fewer_draws() -> None:
    found = privacy(half(epsilon=4.0), 4, 10_000, 0).epsilon_measured
    assert found.gdp is not None
    assert found.gdp > 4.0


def test_composition_that_is_forgotten_is_a_violation() -> None:
    """AUDIT 7: StableFDG re-sends its style every round; noise for one release does not do for eight."""
    part = Defense.named("gaussian")

    @dataclasses.dataclass(frozen=True)
    class Forgetful(part):  # type: ignore[misc, valid-type]
        @property
        def multiplier(self) -> float:
            return float(gaussian(epsilon=self.epsilon).multiplier)  # type: ignore[attr-defined]

    found = privacy(Forgetful(epsilon=1.0, releases=8), 2, 100_000, 0)
    assert found.verdict == "violation"


def test_no_defense_proves_nothing_and_nothing_is_measured() -> None:
    found = privacy(Defense.parse("none"), 8, 1000, 0)
    assert (found.epsilon_proved, found.delta, found.verdict) == (None, None, "no_guarantee")


def test_violations_of_a_report_are_corrected_together() -> None:
    """AUDIT 3, family 2: level 0.05 after Holm; what proves nothing is not among them."""

    def claim(p: float) -> Measurement:
        return Measurement(Guarantee(1.0, 1e-5, "said"), Bound(0.5, 0.05), Bound(0.6, 0.05), 4.0, p)

    nothing = Measurement(Guarantee(None, None, "no finite epsilon"))
    assert [found.verdict for found in privacies([claim(0.03), nothing])] == ["violation", "no_guarantee"]
    assert [found.verdict for found in privacies([claim(0.03)] * 3)] == ["consistent"] * 3
    together = privacies([claim(0.5), claim(0.001), nothing, claim(0.03)])
    assert [found.verdict for found in together] == ["consistent", "violation", "no_guarantee", "consistent"]
