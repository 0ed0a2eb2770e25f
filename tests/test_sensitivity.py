"""ClientVectors of every kind: the stated sensitivity is never exceeded, noise has its spread, and what leaves is valid."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from factories import equal, refused, seeded
from factories_core import draft, style
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import clustered
from fdgpriv.artifacts.parameters import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    ModelState,
    ModelUpdate,
)
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.artifacts.statistics import ClientEmbedding, LabelMarginal, ModelEvaluation, SampleCount, ValidationMetrics
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleDraft
from fdgpriv.defense import Defense, defended
from fdgpriv.federation.upload import ExpectedArtifact, faults
from fdgpriv.method import Method
from fdgpriv.privacy.release import measure, privacies
from fdgpriv.privacy.vectors import KINDS, MODELS, STATISTICS, VectorContext, image_moments, onto_simplex, vectors_of
from fdgpriv.utils.finch import finch

NEIGHBOURS = 10_000  # per kind and norm, in `EXAMPLES` batches
EXAMPLES = 20
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
OWNER: dict[str, Any] = {"client": "photo", "round": 0}
SEEDS = st.integers(0, 2**31)


def network(seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    """A model's tensors: a layer, a BatchNorm with its counter, and a head with BatchNorm1d."""
    rng = seeded(seed)
    bn = {"weight": (3,), "running_mean": (3,), "running_var": (3,)}
    shapes = {
        "conv.weight": (3, 2),
        **{f"bn.{k}": v for k, v in bn.items()},
        "head.running_mean": (2,),
        "head.running_var": (2,),
    }
    state = {name: scale * torch.randn(shape, generator=rng) for name, shape in shapes.items()}
    state |= {name: tensor.abs() for name, tensor in state.items() if name.endswith("running_var")}
    return state | {"bn.num_batches_tracked": torch.tensor(7), "head.num_batches_tracked": torch.tensor(7)}


def part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix("head."): tensor for name, tensor in state.items() if name.startswith(prefix)}


RECEIVED = ModelState(**OWNER, state=network(99))


def made(kind: str, seed: int = 0, scale: float = 1.0) -> Artifact:
    """A random artifact of this kind, whose values are about `scale` where they have no range."""
    rng, state = seeded(seed), network(seed, scale)
    parameters = {name: t.abs() for name, t in state.items() if name.endswith("weight")}
    build: dict[str, Callable[[], Artifact]] = {
        "style_statistics": lambda: dataclasses.replace(style(round=seed), round=0).map(lambda t: t * scale),
        "amplitude_spectrum": lambda: AmplitudeSpectrum(
            **OWNER, amplitude=scale * torch.rand(3, 4, 4, generator=rng), granularity="client"
        ),
        "classifier_head": lambda: ClassifierHead(**OWNER, state=part(state, "head.")),
        "bn_statistics": lambda: BatchNormStatistics(
            **OWNER, state={name: t for name, t in state.items() if ".run" in name or "num" in name}
        ),
        "importance_weights": lambda: ImportanceWeights(**OWNER, state=parameters),
        "client_embedding": lambda: ClientEmbedding(**OWNER, vector=scale * torch.randn(3, generator=rng)),
        "class_prototypes": lambda: ClassPrototypes(**OWNER, features=scale * torch.randn(4, 3, generator=rng)),
        "label_marginal": lambda: LabelMarginal(**OWNER, share=torch.rand(4, generator=rng).softmax(0)),
        "validation_metrics": lambda: ValidationMetrics(**OWNER, accuracy=torch.rand((), generator=rng)),
        "model_evaluation": lambda: ModelEvaluation(
            **OWNER, value=1 + torch.rand((), generator=rng), metric="loss", trained=True
        ),
        "model_state": lambda: ModelState(**OWNER, state=state),
        "model_update": lambda: ModelUpdate(
            **OWNER, state={name: t for name, t in state.items() if t.is_floating_point()}
        ),
    }
    return build[kind]()


def protecting(name: str, kind: str, **given: object) -> Any:
    """The defense as bound to a method that shares this kind once."""
    return Defense.named(name).configured({"covers": (kind,), **given})


# ClientVectors


@EACH_KIND
def test_a_vector_is_written_back_as_its_artifact(kind: str) -> None:
    artifact = made(kind)
    vectors = vectors_of(artifact, VectorContext(RECEIVED))
    assert vectors is not None
    back = vectors.rebuild(vectors.rows[0])
    assert type(back) is type(artifact)
    assert back.facts() == artifact.facts()
    for name, tensor in artifact.tensors().items():
        torch.testing.assert_close(back.tensors()[name], tensor, atol=1e-5, rtol=1e-5)


def test_models_are_changes_and_counters_stay() -> None:
    state = ModelState(**OWNER, state=RECEIVED.state | {"bn.num_batches_tracked": torch.tensor(12)})
    vectors = vectors_of(state, VectorContext(RECEIVED))
    assert vectors is not None
    assert not vectors.rows.any()
    moved = vectors.rebuild(torch.ones_like(vectors.rows[0])).tensors()
    assert int(moved["bn.num_batches_tracked"]) == 12
    torch.testing.assert_close(moved["conv.weight"], RECEIVED.state["conv.weight"] + 1)
    head = ClassifierHead(**OWNER, state=part(RECEIVED.state, "head."))
    of_head = vectors_of(head, VectorContext(RECEIVED))
    assert of_head is not None
    assert not of_head.rows.any()
    assert of_head.rows.shape == (1, 4)


def test_counts_pass_every_defense() -> None:
    count = SampleCount(**OWNER, count=torch.tensor(17))
    assert vectors_of(count, VectorContext()) is None
    for name in ("gaussian", "laplace", "client_dp", "clip", "quantize", "sparsify"):
        assert Defense.parse(name).shared(count, seeded(0)) is count


def test_spectra_of_images_are_within_the_default_norm(rng: torch.Generator) -> None:
    """Parseval: sqrt(3) for the image of ones, less for every other."""
    for images in (torch.ones(1, 3, 8, 8), torch.rand(50, 3, 8, 8, generator=rng).round()):
        for amplitude in torch.fft.fft2(images).abs():
            vectors = vectors_of(AmplitudeSpectrum(**OWNER, amplitude=amplitude, granularity="image"), VectorContext())
            assert vectors is not None
            assert float(vectors.rows.norm()) <= vectors.kind.bound(2, None) * (1 + 1e-5)


@given(st.integers(1, 6), SEEDS)
def test_the_projection_onto_the_simplex_is_nearest(k: int, seed: int) -> None:
    """No random point of the simplex is nearer."""
    vector = 2 * torch.randn(k, generator=seeded(seed))
    nearest = onto_simplex(vector)
    assert float(nearest.sum()) == pytest.approx(1, abs=1e-5)
    assert bool((nearest >= 0).all())
    others = -torch.rand(200, k, generator=seeded(seed + 1)).log()
    others /= others.sum(1, keepdim=True)
    assert float((nearest - vector).norm()) <= float((others - vector).norm(dim=1).min()) + 1e-5


# Sensitivity


def rows_of(kind: str, count: int, scale: float, rng: torch.Generator) -> Tensor:
    """`count` random vectors of this kind, some of them along one axis, where norms are extreme."""
    if kind == "label_marginal":
        return (scale * torch.randn(count, 4, generator=rng)).softmax(1)
    if kind == "validation_metrics":
        return torch.rand(count, 1, generator=rng).round(decimals=1)
    rows = scale * torch.randn(count, 6, generator=rng)
    rows[::3, 1:] = 0
    return rows


@EACH_KIND
@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=SEEDS, clip=st.floats(0.1, 20), scale=st.floats(0.01, 1e3))
def test_a_client_moves_no_more_than_the_sensitivity(kind: str, seed: int, clip: float, scale: float) -> None:
    """Neighbours are opposite where a kind has no range: the farthest that two vectors can be apart."""
    sign = 1 if KINDS[kind].diameter is not None else -1
    for name in ("gaussian", "laplace"):
        defense, rng = protecting(name, kind, unit="client", clip=clip), seeded(seed)
        pair = [rows_of(kind, NEIGHBOURS // EXAMPLES, scale, rng) for _ in range(2)]
        first, second = (KINDS[kind].clipped(rows, defense.norm, clip) for rows in pair)
        moved = (first - sign * second).norm(p=defense.norm, dim=1)
        assert float(moved.max()) <= defense.sensitivity(1, kind) * (1 + 1e-5)


@pytest.mark.parametrize("kind", ["style_statistics", "label_marginal", "validation_metrics"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 30), clip=st.floats(0.1, 20), scale=st.floats(0.01, 1e3))
def test_an_image_moves_no_more_than_the_sensitivity(kind: str, seed: int, n: int, clip: float, scale: float) -> None:
    """Images' own label shares are one-hot, and their accuracies are 0 or 1."""
    count, rng = NEIGHBOURS // EXAMPLES, seeded(seed)
    if kind == "label_marginal":
        images = torch.eye(4)[torch.randint(4, (count * (n + 1),), generator=rng)]
    elif kind == "validation_metrics":
        images = torch.randint(2, (count * (n + 1), 1), generator=rng).float()
    else:
        images = rows_of(kind, count * (n + 1), scale, rng)
    for norm in (1, 2):
        rows = KINDS[kind].clipped(images, norm, clip).double().view(count, n + 1, -1)  # type: ignore[arg-type]
        moved = (rows[:, :n].mean(1) - rows[:, 1:].mean(1)).norm(p=norm, dim=1)  # the first for the last
        assert float(moved.max()) <= KINDS[kind].sensitivity(norm, clip, n) * (1 + 1e-5)  # type: ignore[arg-type]


@EACH_KIND
def test_the_sensitivity_is_reached(kind: str) -> None:
    """By opposite vectors at the bound; by two labels, and by all right or all wrong."""
    ends = {"label_marginal": torch.eye(4)[:2], "validation_metrics": torch.tensor([[0.0], [1.0]])}
    rows = ends.get(kind, torch.tensor([[1e4, 0], [-1e4, 0]]))
    for norm in (1, 2):
        first, second = KINDS[kind].clipped(rows, norm, None)  # type: ignore[arg-type]
        stated = KINDS[kind].sensitivity(norm, None)  # type: ignore[arg-type]
        assert float((first - second).norm(p=norm)) == pytest.approx(stated, rel=1e-4)


def planar(moved: float) -> StyleDraft:
    """The 100 images of AUDIT 5.1, whose (mean, std) are unit vectors; the one at 180 degrees is at `moved`."""
    angles = [0.0, *itertools.accumulate(0.5 * 0.98**j for j in range(97)), moved, 180.1]
    radians = torch.tensor(angles, dtype=torch.float64) * math.pi / 180
    points = torch.stack([radians.cos(), radians.sin()], dim=1)
    return draft(
        mean=points[:, :1], std=points[:, 1:], variances=False, rule=clustered(False, True, mixture=False).name
    )


def test_an_image_moves_a_clustered_style_by_0_968_c() -> None:
    """98 + 2 images become 53 + 47, clusters of equal weight: 48 times 2C/n. The rule for clients covers it."""
    angles = list(itertools.accumulate(0.5 * 0.98**j for j in range(97)))
    first, second = (
        clusters_mean(planar(angle), [98, 2] if angle == 180.0 else [53, 47]) for angle in (180.0, angles[49] + 0.01)
    )
    moved = float((first - second).norm())
    assert moved == pytest.approx(0.968, abs=0.002)
    assert moved / KINDS["style_statistics"].sensitivity(2, 1.0, 100) == pytest.approx(48.4, abs=0.2)
    assert moved <= KINDS["style_statistics"].sensitivity(2, 1.0)


def clusters_mean(made: StyleDraft, sizes: list[int]) -> Tensor:
    """The equal-weight mean of the mean vectors of FINCH's coarsest clusters, whose sizes are checked."""
    points = torch.cat([made.mean, made.std], dim=1)
    labels = finch(points)[-1]
    assert sorted(labels.bincount().tolist(), reverse=True) == sizes
    return torch.stack([points[labels == k].mean(0) for k in labels.unique()]).mean(0)


# Noise


def released(defense: Any, artifact: Artifact | StyleDraft, draws: int) -> Tensor:
    """ClientVectors (draws, D) before they become artifacts, by the defense's own steps."""
    vectors = vectors_of(artifact, defense.frame(RECEIVED))
    assert vectors is not None
    kind = vectors.kind.artifact.kind
    found: Tensor = defense.release(vectors.rows, draws, seeded(3), kind, vectors.images)
    return found


@EACH_KIND
def test_noise_has_the_stated_mean_and_spread(kind: str) -> None:
    for name, spread in (("gaussian", 1.0), ("laplace", math.sqrt(2))):
        defense, artifact = protecting(name, kind, unit="client", epsilon=2.0, releases=3), made(kind)
        drawn = released(defense, artifact, 20_000)
        stated = defense.multiplier * KINDS[kind].sensitivity(defense.norm, None) * spread
        torch.testing.assert_close(drawn.std(0), torch.full(drawn.shape[1:], stated), rtol=0.05, atol=0)
        center = defense.center(vectors_of(artifact, defense.frame(RECEIVED)).rows, kind)  # type: ignore[union-attr]
        assert float((drawn.mean(0) - center).abs().max()) < 5 * stated / math.sqrt(len(drawn))


@pytest.mark.parametrize("kind", MODELS)
def test_client_dp_clips_the_change_and_adds_noise_of_2c(kind: str) -> None:
    defense = protecting("client_dp", kind, clip=0.5, releases=4)
    drawn = released(defense, made(kind, scale=100.0), 20_000)
    torch.testing.assert_close(
        drawn.std(0), torch.full(drawn.shape[1:], 2 * 0.5 * defense.multiplier), rtol=0.05, atol=0
    )
    assert float(defense.center(100 * torch.ones(1, 8), kind).norm()) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_an_injected_bug_changes_the_shared_noise(name: str) -> None:
    def spread(bug: str | None) -> Tensor:
        defense = protecting(name, "client_embedding", unit="client", bug=bug, clip=1.0)
        vectors = [defense.shared(made("client_embedding"), seeded(i)).vector for i in range(100)]
        return torch.stack(vectors).std(0)

    for bug in ("half-noise", "wrong-sensitivity"):
        torch.testing.assert_close(spread(bug), 0.5 * spread(None), rtol=1e-3, atol=0)
    clusters = planar(180.0)
    right, by_n = (protecting(name, "style_statistics", unit="client", bug=b) for b in (None, "wrong-sensitivity"))
    assert by_n.deviation(100) == pytest.approx(right.deviation(100) / 100)
    spreads = [
        float(torch.stack([d.shared(clusters, seeded(i)).mean for i in range(100)]).std()) for d in (right, by_n)
    ]
    assert spreads[1] == pytest.approx(spreads[0] / 100, rel=0.05)


def test_noise_in_single_precision_violates_its_epsilon() -> None:
    """The low bits of a float32 sum tell which center was noised (Mironov 2012); summed in double, they do not."""
    part = Defense.named("laplace")

    @dataclasses.dataclass(frozen=True)
    class Single(part):  # type: ignore[misc, valid-type]
        def release(self, rows: Tensor, draws: int, rng: torch.Generator, kind: str, images: Any = None) -> Tensor:
            center, spread = self.center(rows, kind), self.deviation(len(rows), kind)
            signs = torch.randint(2, (draws, len(center)), generator=rng) * 2.0 - 1
            found: Tensor = center + spread * signs * torch.empty(draws, len(center)).exponential_(generator=rng)
            return found

        def score(self, releases: Tensor, centers: tuple[Tensor, Tensor]) -> Tensor:
            first, second = ((releases.float() - center.float()).abs().sum(1) for center in centers)
            return (second - first).double()

    (leaking,) = privacies([measure(Single(unit="client"), 2, 100_000, 0)])
    (sound,) = privacies([measure(part(unit="client"), 2, 100_000, 0)])
    assert (leaking.verdict, sound.verdict) == ("violation", "consistent")


# What leaves is valid, and only what is covered is changed


NOISY = ("gaussian:epsilon=0.5,on=all", "laplace:epsilon=0.5,on=all", "client_dp:epsilon=0.5")
PROVING_NOTHING = ("clip:clip=0.1", "quantize:bits=2", "quantize:bits=3,stochastic=true", "sparsify")


@EACH_KIND
def test_what_leaves_is_accepted_by_the_server(kind: str) -> None:
    for spec in (*NOISY, *PROVING_NOTHING):
        part, given = Defense.described(spec)
        for seed in range(5):
            artifact = made(kind, seed, scale=3.0)
            safe = part.configured({**given, "covers": (kind,)}).shared(artifact, seeded(seed), RECEIVED)
            wanted = [ExpectedArtifact(artifact, signed=kind != "importance_weights")]
            assert list(faults([safe], "photo", 0, wanted)) == [], spec
            assert safe.not_finite() is None, spec
            # shares and accuracies are within every clip, and one number is the largest
            if spec in NOISY or (KINDS[kind].diameter is None and artifact.nbytes > 4):
                assert not equal(safe.tensors(), artifact.tensors()), spec


def test_importances_are_negative_where_the_method_says_so() -> None:
    for spec, signed in (("lsi", False), ("lsi:importance_sign=signed", True)):
        bound = Defense.parse("gaussian").bound_to(Method.parse(spec).disclosure())
        safe = bound.shared(made("importance_weights"), seeded(0))
        assert any(bool((tensor < 0).any()) for tensor in safe.tensors().values()) == signed


SHARING = (
    "stablefdg",
    "pardon",
    "ccst",
    "lsi:inversion_labels=marginal,recalibrate_bn=true",
    "hfedf:embedding=autoencoder",
)


@pytest.mark.parametrize("spec", SHARING)
def test_the_kinds_of_the_guarantee_are_those_noised(spec: str) -> None:
    sharing = Method.parse(spec).disclosure()
    for name in ("gaussian", "gaussian:on=all", "laplace", "client_dp"):
        bound = Defense.parse(name).bound_to(sharing)
        for kind in set(sharing.uploads) - {SampleCount.kind}:
            artifact = made(kind)
            noised = bound.shared(artifact, seeded(0), RECEIVED) is not artifact
            assert noised == (kind in bound.guarantee().protects), (name, kind)
        claimed = MODELS if name == "client_dp" else (*KINDS,) if "all" in name else STATISTICS
        assert set(bound.guarantee().protects) == set(sharing.uploads) & set(claimed), name


# Defenses that prove nothing


def test_clipped_images_can_be_noised_one_by_one() -> None:
    for rule, variances in (("paper_eps", True), ("paper_eps", False), ("pooled_biased", False)):
        outgoing = draft(20, scale=50.0, rule=rule, variances=variances)
        clipped: Any = Defense.parse("clip:clip=2").protect(outgoing, seeded(0))
        assert isinstance(clipped, StyleDraft)
        assert float(image_moments(clipped, 2.0).norm(dim=1).max()) <= 2 * (1 + 1e-4)
        both = Defense.parse("clip:clip=2+gaussian:clip=2,epsilon=1e6")
        mean = both.shared(outgoing, seeded(0)).tensors()["mean"]
        torch.testing.assert_close(mean, clipped.finish().mean, atol=0.05, rtol=0)


@given(st.integers(1, 12), st.booleans(), SEEDS)
def test_quantised_numbers_are_levels_within_a_step(bits: int, chance: bool, seed: int) -> None:
    vector = made("client_embedding", seed)
    defense = protecting("quantize", "client_embedding", bits=bits, reach=2.0, stochastic=chance)
    found, step = defense.shared(vector, seeded(seed)).vector, 4.0 / (2**bits - 1)
    level = (found.double() + 2) / step
    torch.testing.assert_close(level, level.round(), atol=1e-3, rtol=0)
    off = (found - vector.tensors()["vector"].clamp(-2, 2)).abs()
    assert float(off.max()) <= step * (1 if chance else 0.5) + 1e-5


def test_stochastic_rounding_is_unbiased() -> None:
    defense = protecting("quantize", "client_embedding", bits=2, reach=2.0, stochastic=True)
    vector = ClientEmbedding(**OWNER, vector=torch.tensor([0.3, -1.1, 1.9]))
    mean = torch.stack([defense.shared(vector, seeded(i)).vector for i in range(4000)]).mean(0)
    torch.testing.assert_close(mean, vector.vector, atol=0.04, rtol=0)


def test_sparsify_keeps_the_largest_changes() -> None:
    state = made("model_state", 5)
    safe = protecting("sparsify", "model_state", share=0.25).shared(state, seeded(0), RECEIVED)
    changes = {name: state.tensors()[name] - t for name, t in RECEIVED.state.items() if t.is_floating_point()}
    every = torch.cat([t.flatten().abs() for t in changes.values()])
    kept = torch.cat([(safe.tensors()[name] != RECEIVED.state[name]).flatten() for name in changes])
    assert int(kept.sum()) == round(0.25 * len(every))
    assert float(every[kept].min()) >= float(every[~kept].max())


# Refusals, each in one line


def test_noise_whose_spread_is_no_number_is_refused() -> None:
    """What the type of a single field forbids is refused for all parts (test_fields.py)."""
    for spec in ("gaussian:clip=1e300", "laplace:epsilon=1e-300"):
        with refused(f"{spec.split(':')[0]}.*want a budget and a clip for which the spread of the noise"):
            Defense.parse(spec)
    for spec in ("gaussian:sigma=3", "laplace:delta=0.1", "client_dp:unit=image"):
        with refused("want a field of .*; got '(sigma|delta|unit)'"):
            Defense.parse(spec)


NOT_APPLICABLE = (
    ("fedavg", "clip", "clip: not applicable to fedavg, which shares no statistics; clip:on=all covers its models"),
    ("hfedf", "quantize", "quantize: not applicable to hfedf"),
    ("fedavg", "sparsify", "sparsify: not applicable to fedavg"),
    ("ccst:style=single", "gaussian:on=all", "gaussian.unit: want image where ccst shares style statistics of single"),
    ("lsi", "laplace:unit=image", "laplace.unit: want client for lsi, whose classifier head, importance weights one"),
)


def test_a_defense_that_is_not_applicable_says_so() -> None:
    for method, spec, reason in NOT_APPLICABLE:
        with refused(re.escape(reason)):
            defended(Method.parse(method), spec)


def test_a_delta_of_one_image_in_n_is_refused() -> None:
    bound = Defense.parse("gaussian:delta=0.01").bound_to(Method.parse("ccst").disclosure())
    bound.check_sizes({"a": 30, "b": 99})
    with refused(r"gaussian\.delta: want less than 1/n for every client, got 0\.01 and 100 images"):
        bound.check_sizes({"a": 30, "b": 100})
    assert "fewer than 100 images" in bound.guarantee().statement
    dataclasses.replace(bound, covers=()).check_sizes({"b": 1000})
