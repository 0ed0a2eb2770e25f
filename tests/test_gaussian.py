"""The Gaussian mechanism: what it clips, how much it adds, what it proves, and that less noise is caught."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from conftest import fit
from factories_core import draft
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.method import Method
from fdgpriv.privacy.accounting import noise_multiplier
from fdgpriv.privacy.measured import Bound
from fdgpriv.privacy.release import Measurement, measure, privacies
from fdgpriv.privacy.vectors import image_moments
from fdgpriv.results.run import Privacy

# z of one release at delta = 1e-5, by epsilon
CALIBRATED = {9.997: 0.5, 4.377: 1.0, 1.993: 2.0, 0.926: 4.0, 0.434: 8.0}


def gaussian(**settings: object) -> Defense:
    return Defense.named("gaussian").configured(settings)


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
    return gaussian(bug="half-noise", **settings)


# Noise


def test_r_releases_need_root_r_times_the_noise() -> None:
    """mu_R = sqrt(R) / z."""
    for epsilon, z in CALIBRATED.items():
        assert gaussian(epsilon=epsilon).multiplier == pytest.approx(z, rel=1.5e-3)  # type: ignore[attr-defined]
    for releases in (1, 4, 9, 50):
        found = gaussian(epsilon=4.377, releases=releases).multiplier  # type: ignore[attr-defined]
        assert found == pytest.approx(math.sqrt(releases), rel=1.5e-3)


@pytest.mark.parametrize(
    ("n", "unit", "releases"), [(1, "image", 1), (5, "image", 4), (40, "client", 1), (5, "client", 4)]
)
def test_released_means_have_the_stated_spread(n: int, unit: str, releases: int) -> None:
    """N(mean of clipped moments, (z 2C / n)^2) for the unit image, (z 2C)^2 for the unit client; each drawn afresh."""
    defense = gaussian(epsilon=4.377, clip=1.5, unit=unit, releases=releases)
    made, rng = draft(n, scale=0.1), torch.Generator().manual_seed(0)  # far below the clip: the mean is the plain one
    drawn = torch.stack([defense.protect(made, rng).mean for _ in range(800)]).double().numpy()
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
    moments = image_moments(made, 2.0)
    drawn = defense.release(moments, 20_000, torch.Generator().manual_seed(1))  # type: ignore[attr-defined]
    assert drawn.shape == (20_000, 12)
    assert torch.allclose(drawn.std(0), torch.full((12,), 2 * 0.5 / 50), rtol=0.03)
    assert torch.allclose(drawn.mean(0), moments.mean(0), atol=4 * 0.02 / 20_000**0.5)


# Clipping

VECTORS = st.integers(0, 2**31)


def released(defense: Defense, made: StyleDraft) -> Tensor:
    """The noiseless release (4C,)."""
    found: Tensor = defense.center(image_moments(made, defense.scale))  # type: ignore[attr-defined]
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
    made, other = draft(n, round=seed, scale=size), draft(1, round=seed + 1, scale=size)
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
def test_a_client_moves_a_release_by_at_most_2c(n: int, m: int, clip: float, size: float, seed: int) -> None:
    defense = silent(clip=clip, unit="client")
    moved = released(defense, draft(n, round=seed, scale=size))
    moved -= released(defense, draft(m, round=seed + 1, scale=size))
    assert float(moved.norm()) <= 2 * clip * (1 + 1e-4)
    assert defense.sensitivity(n) == pytest.approx(2 * clip)  # type: ignore[attr-defined]


def test_a_finished_style_is_protected_as_a_client() -> None:
    """What one image can move is no longer to be seen in an average."""
    defense, style = gaussian(epsilon=4.377, clip=0.5), draft(40, scale=0.1).finish()
    drawn = torch.stack([shared(defense, style, seed).mean for seed in range(1000)])
    assert torch.allclose(drawn.std(0), torch.full((3,), 2 * 0.5), rtol=0.1)
    far = shared(silent(clip=0.5), draft(40, scale=100).finish())
    moments = [far.mean, far.std]
    assert float(torch.cat(moments).norm()) <= 0.5 * (1 + 1e-5)


# What is rebuilt


@pytest.mark.parametrize("unit", ["image", "client"])
def test_without_noise_the_style_is_rebuilt(unit: str) -> None:
    for n in (1, 2, 30):
        for variances in (True, False):
            made = draft(n, variances=variances)
            plain = made.finish()
            for outgoing in (made, plain):
                found = shared(silent(clip=1e6, unit=unit), outgoing)
                for name, tensor in plain.tensors().items():
                    assert torch.allclose(found.tensors()[name], tensor, atol=1e-5), name
    made = draft(100)
    found, plain = shared(gaussian(epsilon=1e8, clip=20), made), made.finish()  # so is it nearly with a huge epsilon
    for name, tensor in plain.tensors().items():
        assert torch.allclose(found.tensors()[name], tensor, atol=1e-3), name


def test_without_noise_the_pooled_std_is_rebuilt(rng: torch.Generator) -> None:
    """CCST's style: what numpy says of all pixels of all images, not the mean of the images' own stds."""
    features = torch.rand(7, 5, 6, 6, generator=rng) * torch.arange(1, 8)[:, None, None, None]
    mean, std = RULES["pooled_biased"](features)
    made = draft(mean=mean, std=std, variances=False, rule="pooled_biased")
    found = shared(silent(clip=1e6), made)
    pixels = features.permute(1, 0, 2, 3).flatten(1).double().numpy()
    np.testing.assert_allclose(found.mean.numpy(), pixels.mean(1), rtol=1e-5)
    np.testing.assert_allclose(found.std.numpy(), pixels.std(1), rtol=1e-4)
    assert np.abs(std.mean(0).numpy() / pixels.std(1) - 1).max() > 0.1  # the mean of stds is another number


@given(st.integers(1, 10), st.floats(0.05, 50), st.floats(0.1, 10), VECTORS, st.booleans())
def test_stds_and_variances_are_never_negative(
    n: int, epsilon: float, clip: float, seed: int, from_draft: bool
) -> None:
    made = draft(n, round=seed)
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


# What is proved


def test_it_is_bound_to_the_method_s_releases() -> None:
    method = Method.parse("stablefdg:rounds=7")
    bound = gaussian(epsilon=2).bound_to(method.disclosure())
    assert bound.releases == 7  # type: ignore[attr-defined]
    assert bound.multiplier == gaussian(epsilon=2, releases=7).multiplier  # type: ignore[attr-defined]


def test_the_unit_is_the_image_if_vectors_are_its_own() -> None:
    """BatchNorm in training mode normalises an image by its batch, and clusters have equal weight: both need clients."""
    units = {
        "stablefdg": "client",  # styles with batch statistics
        "stablefdg:style_mode=eval": "image",
        "stablefdg:buffers=freeze": "image",
        "ccst": "image",
        "ccst:style=single": "image",
        "ccst:style_of=amplitude": "client",  # what arrives is the average
        "ccst:style=single,style_of=amplitude": "image",
        "pardon": "client",
        "pardon:local_clustering=false": "image",
        "lsi": "client",
        "hfedf:embedding=autoencoder": "client",
    }
    for spec, unit in units.items():
        sharing = Method.parse(spec).disclosure()
        assert vars(gaussian().bound_to(sharing))["unit"] == unit, spec
        if unit == "client":
            with pytest.raises(ValueError, match=r"^gaussian\.unit: want client for .*; got image$"):
                gaussian(unit="image").bound_to(sharing)


def test_the_budget_counts_every_covered_kind() -> None:
    """mu^2 adds: equal multipliers over the sum of releases."""
    releases = {
        ("lsi:rounds=3", "styles"): 1 + 3,  # head, importances
        ("lsi:rounds=3,recalibrate_bn=true", "styles"): 1 + 3 + 3,
        ("lsi:rounds=3", "all"): 1 + 3 + 3 + 3,  # and models, accuracies
        ("stablefdg:rounds=3", "all"): 3 + 3,
        ("ccst:rounds=3,selection=last", "all"): 1 + 3,
        ("hfedf:rounds=3", "all"): 3,
    }
    for (spec, on), count in releases.items():
        bound = gaussian(on=on, epsilon=3.0).bound_to(Method.parse(spec).disclosure())
        assert vars(bound)["releases"] == count, spec
        assert bound.multiplier == pytest.approx(noise_multiplier(3.0, 1e-5, count))  # type: ignore[attr-defined]


def test_where_nothing_is_covered_it_is_refused() -> None:
    for method in ("fedavg", "pfedhn", "stablefdg:received=0"):
        with pytest.raises(ValueError, match="which shares no statistics; gaussian:on=all covers its models"):
            gaussian().bound_to(Method.parse(method).disclosure())


@pytest.mark.parametrize("unit", ["image", "client"])
def test_the_guarantee_names_what_it_covers(unit: str) -> None:
    proved = gaussian(epsilon=2.5, delta=1e-6, releases=11, unit=unit).guarantee()
    assert (proved.epsilon, proved.delta) == (2.5, 1e-6)
    assert proved.protects == ("style_statistics",)
    said = proved.statement
    for word in ("(2.5, 1e-06)-DP", "11 releases", "replacing", "model states", "no finite epsilon"):
        assert word in said
    assert ("replacing one image of this client" in said) == (unit == "image")
    assert ("replacing all images of this client" in said) == (unit == "client")


# What is measured


def privacy(defense: Defense, dim: int, draws: int, seed: int) -> Privacy:
    (found,) = privacies([measure(defense, dim, draws, seed)])
    return found


@pytest.mark.parametrize(("unit", "releases", "epsilon"), [("image", 1, 1.0), ("image", 5, 4.0), ("client", 5, 1.0)])
def test_the_worlds_are_neighbours(unit: str, releases: int, epsilon: float) -> None:
    """The scores of all releases together differ by mu of the claim: the worst case, and no more."""
    defense = gaussian(epsilon=epsilon, unit=unit, releases=releases)
    worlds = defense.worlds(6, 20_000, torch.Generator().manual_seed(2))
    assert worlds is not None
    inside, outside = worlds
    assert inside.shape == outside.shape == (20_000,)
    mu = float(inside.mean() - outside.mean()) / float(outside.std())
    expected = 1 / gaussian(epsilon=epsilon, releases=1).multiplier  # type: ignore[attr-defined]
    assert mu == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize(("epsilon", "seed"), [(1.0, 0), (1.0, 1), (8.0, 2), (8.0, 3)])
def test_correct_noise_is_consistent_with_what_is_proved(epsilon: float, seed: int) -> None:
    found = privacy(gaussian(epsilon=epsilon, releases=3), 8, 20_000, seed)
    assert found.verdict == "consistent"
    assert found.epsilon_proved == epsilon
    assert found.epsilon_measured.clopper_pearson is not None
    assert found.ceiling is not None
    assert 0 <= found.epsilon_measured.clopper_pearson <= min(epsilon, found.ceiling)


def test_the_measured_epsilon_is_near_the_true_one() -> None:
    """z = 1 (epsilon 4.38) shows 1.83 by counting and 3.88 by the Gaussian bound at 10,000 draws."""
    runs = [privacy(gaussian(epsilon=4.377), 4, 10_000, seed).epsilon_measured for seed in range(20)]
    assert np.mean([run.clopper_pearson for run in runs]) == pytest.approx(1.83, abs=0.3)  # spread of one run: 0.37
    assert np.mean([run.gdp for run in runs]) == pytest.approx(3.88, abs=0.2)


@pytest.mark.parametrize("unit", ["image", "client"])
def test_half_the_noise_is_a_violation(unit: str) -> None:
    """Claimed 1, true 2.15: by counting with certainty at 100,000 draws."""
    found = privacy(half(epsilon=1.0, unit=unit), 2, 100_000, 0)
    assert found.verdict == "violation"
    assert found.epsilon_measured.clopper_pearson is not None
    assert found.epsilon_measured.clopper_pearson > 1.0


def test_half_the_noise_shows_in_the_gaussian_bound() -> None:
    assert (privacy(half(epsilon=4.0), 4, 10_000, 0).epsilon_measured.gdp or 0) > 4.0


def test_composition_that_is_forgotten_is_a_violation() -> None:
    """StableFDG re-sends its style every round; noise for one release does not do for eight."""
    part = Defense.named("gaussian")

    @dataclasses.dataclass(frozen=True)
    class Forgetful(part):  # type: ignore[misc, valid-type]
        @property
        def multiplier(self) -> float:
            return float(gaussian(epsilon=self.epsilon).multiplier)  # type: ignore[attr-defined]

    found = privacy(Forgetful(epsilon=1.0, releases=8), 2, 100_000, 0)
    assert found.verdict == "violation"


def test_violations_are_corrected_together() -> None:
    """Level 0.05 after Holm; what proves nothing is not among them."""

    def claim(p: float) -> Measurement:
        return Measurement(Guarantee(1.0, 1e-5, "said"), Bound(0.5, 0.05), Bound(0.6, 0.05), 4.0, p=p)

    assert privacy(Defense.parse("none"), 8, 1000, 0).verdict == "no_guarantee"
    nothing = Measurement(Guarantee(None, None, "no finite epsilon"))
    assert [found.verdict for found in privacies([claim(0.03), nothing])] == ["violation", "no_guarantee"]
    assert [found.verdict for found in privacies([claim(0.03)] * 3)] == ["consistent"] * 3
    together = privacies([claim(0.5), claim(0.001), nothing, claim(0.03)])
    assert [found.verdict for found in together] == ["consistent", "violation", "no_guarantee", "consistent"]
