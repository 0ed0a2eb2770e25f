"""Artifacts: checked at the door, frozen, weighed to the byte, and rebuilt from their parts."""

from dataclasses import FrozenInstanceError, replace

import factories_core
import numpy as np
import pytest
import torch
from factories_core import draft, sample_count
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import LEVELS, SERVER, Artifact
from fdgpriv.artifacts.parameters import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    ModelState,
    RepresentationTranslator,
    TensorState,
)
from fdgpriv.artifacts.statistics import LabelMarginal, ModelEvaluation, SampleCount, ValidationMetrics
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics


def style(variances: bool = True) -> StyleStatistics:
    """Its numbers count from 0."""
    mean, std, mean_var, std_var = torch.arange(12.0).view(4, 3)
    given = {"mean": mean, "std": std} | ({"mean_var": mean_var, "std_var": std_var} if variances else {})
    return factories_core.style(variances=variances, **given)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))


def state() -> ModelState:
    return ModelState.of(network(), "photo", 1)


def interpolated() -> InterpolationStyle:
    return InterpolationStyle(
        client="photo", round=0, mean=torch.rand(4), std=torch.rand(4), at="stage3", rule="pooled_biased"
    )


PARTS_OF_A_MODEL = (ClassifierHead, RepresentationTranslator, ImportanceWeights, BatchNormStatistics)


EACH = pytest.mark.parametrize(
    "artifact",
    [
        *(style(), style(variances=False), state(), sample_count(), interpolated()),
        LabelMarginal(client="photo", round=0, share=torch.tensor([0.25, 0.75])),
        ValidationMetrics(client="photo", round=3, accuracy=torch.tensor(0.5, dtype=torch.float64)),
        ModelEvaluation(client="photo", round=3, value=torch.tensor(1.5), metric="loss", trained=False),
        *(kind.of(network(), "photo", 1) for kind in PARTS_OF_A_MODEL),
    ],
    ids=lambda a: str(a.kind),
)


def test_every_kind_is_known_by_its_name() -> None:
    for kind in (StyleStatistics, ModelState, SampleCount, InterpolationStyle):
        assert Artifact.kinds[kind.kind] is kind
    assert all(kind == part.kind for kind, part in Artifact.kinds.items())
    assert not isinstance(draft(), Artifact)


@EACH
def test_it_is_frozen_and_built_again_with_changes(artifact: Artifact) -> None:
    with pytest.raises(FrozenInstanceError):
        artifact.client = "mallory"  # type: ignore[misc]
    assert artifact.nbytes == sum(np.asarray(tensor).nbytes for tensor in artifact.tensors().values())
    again = type(artifact).build(artifact.tensors(), artifact.facts())
    changed, renamed = artifact.map(lambda tensor: tensor + 1), artifact.seen_as("peer")
    assert again.facts() == changed.facts() == {**renamed.facts(), "client": "photo"} == artifact.facts()
    assert renamed.client == "peer"
    for other, more in ((again, 0), (changed, 1), (renamed, 0)):
        assert type(other) is type(artifact)
        assert list(other.tensors()) == list(artifact.tensors())
        assert all(torch.equal(other.tensors()[name], t + more) for name, t in artifact.tensors().items())


@EACH
def test_other_facts_are_refused(artifact: Artifact) -> None:
    facts = artifact.facts()
    missing = {name: fact for name, fact in facts.items() if name != "round"}
    for wrong in (missing, {**facts, "extra": 1}, {**facts, "client": 5}, {**facts, "round": "two"}):
        with pytest.raises(ValueError, match=r"want .*got"):
            type(artifact).build(artifact.tensors(), wrong)
    assert artifact.not_finite() is None
    for name, tensor in artifact.tensors().items():
        for bad in (float("nan"), float("inf"), -float("inf")):
            if tensor.is_floating_point() and tensor.numel():
                broken = tensor.clone()
                broken.view(-1)[-1] = bad
                assert type(artifact).build({**artifact.tensors(), name: broken}, facts).not_finite() == name


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mean": torch.zeros(3, 1), "std": torch.zeros(3, 1)}, r"\(3, 1\)"),
        ({"std": torch.zeros(4)}, r"\(3,\), \(4,\)"),
        ({"mean_var": torch.zeros(0)}, r"\(0,\), \(3,\)"),
        ({"mean_var": torch.zeros(2), "std_var": torch.zeros(2)}, r"\(2,\), \(2,\)"),
        ({"granularity": "country"}, "'country'"),
    ],
)
def test_a_style_s_shapes_are_checked_at_the_door(changes: dict[str, Tensor | str], told: str) -> None:
    with pytest.raises(ValueError, match=f"want .*got .*{told}"):
        replace(style(), **changes)  # type: ignore[arg-type]


def test_shapes_of_counts_accuracies_and_marginals() -> None:
    for count in (torch.zeros(2, dtype=torch.int64), torch.tensor(1.5)):
        with pytest.raises(ValueError, match="want"):
            SampleCount(client="photo", round=0, count=count)
    for share in (torch.zeros(2, 2), torch.zeros(2, dtype=torch.float64)):
        with pytest.raises(ValueError, match="want share"):
            LabelMarginal(client="photo", round=0, share=share)
    for accuracy in (torch.tensor(1), torch.zeros(1, dtype=torch.float64)):
        with pytest.raises(ValueError, match="want accuracy"):
            ValidationMetrics(client="photo", round=0, accuracy=accuracy)
    with pytest.raises(ValueError, match=r"want mean and std of one shape \(C,\), got \(4,\), \(3,\)"):
        replace(interpolated(), std=torch.ones(3))


@pytest.mark.parametrize("kind", [ModelState, *PARTS_OF_A_MODEL])
def test_a_state_is_a_copy_and_loaded_whole(kind: type[TensorState]) -> None:
    model, again = network(), network()
    shared = kind.of(model, "photo", 0)
    assert isinstance(shared, ModelState) == (kind is ModelState)
    before = {name: tensor.clone() for name, tensor in shared.state.items()}
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.add_(1)
    shared.load_into(again)
    loaded = again.state_dict()
    assert all(torch.equal(shared.state[name], t) and torch.equal(loaded[name], t) for name, t in before.items())
    with pytest.raises(ValueError, match=f"this {kind.kind} belongs to another network") as caught:
        shared.load_into(nn.Conv2d(3, 4, 1))
    assert "\n" not in str(caught.value)


def test_levels_of_styles_and_models() -> None:
    assert [replace(style(), granularity=level).level for level in LEVELS] == list(LEVELS)
    assert style().layer == "layer1"
    assert state().level == "client"
    assert state().layer is None
    assert state().seen_as(SERVER).level == "group"
    made = replace(interpolated(), client=SERVER)
    assert (made.level, made.layer, made.nbytes) == ("group", "stage3", 32)


def test_a_style_s_vector_holds_each_moment() -> None:
    assert style().vector().tolist() == list(range(12))
    assert style(variances=False).vector().tolist() == list(range(6))


def test_a_model_state_has_batchnorm_statistics() -> None:
    model = network()
    model(torch.arange(96.0).view(2, 3, 4, 4))
    found = ModelState.of(model, "photo", 0).bn_statistics()
    assert list(found) == ["1"]
    assert set(found["1"]) == {"running_mean", "running_var", "num_batches_tracked"}
    assert int(found["1"]["num_batches_tracked"]) == 1
    assert torch.equal(found["1"]["running_mean"], model.state_dict()["1.running_mean"])


def test_a_draft_is_finished_as_plain_averages() -> None:
    made = draft(round=4, at="layer2")
    mean, std = made.mean.double().numpy(), made.std.double().numpy()
    shared = made.finish()
    np.testing.assert_allclose(shared.mean, mean.sum(0) / 5, atol=1e-6)
    np.testing.assert_allclose(shared.std, std.sum(0) / 5, atol=1e-6)
    np.testing.assert_allclose(shared.mean_var, ((mean - mean.mean(0)) ** 2).sum(0) / 5, atol=1e-6)
    np.testing.assert_allclose(shared.std_var, ((std - std.mean(0)) ** 2).sum(0) / 5, atol=1e-6)
    assert shared.facts() == {
        "client": "photo",
        "round": 4,
        "granularity": "client",
        "at": "layer2",
        "rule": "paper_eps",
    }
    plain = draft(variances=False).finish()
    assert plain.mean_var.shape == plain.std_var.shape == (0,)
    assert plain.nbytes == 2 * 3 * 4


def test_one_image_has_a_finite_style() -> None:
    """`torch.var` over one image gives NaN in the released code."""
    shared = draft(1).finish()
    assert shared.not_finite() is None
    assert shared.mean_var.tolist() == [0, 0, 0]
