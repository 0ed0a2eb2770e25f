"""Artifacts: checked at the door, frozen, weighed to the byte, and rebuilt from their parts."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fdgpriv.artifact import LEVELS, SERVER, Artifact, ModelState, SampleCount, StyleDraft, StyleStatistics, TensorState
from fdgpriv.kinds import InterpolationStyle, ValidationMetrics
from fdgpriv.states import (
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    LabelMarginal,
    RepresentationTranslator,
)


def style(channels: int = 3, variances: bool = True) -> StyleStatistics:
    some = torch.arange(4 * channels, dtype=torch.float32).view(4, channels)
    mean_var, std_var = (some[2], some[3]) if variances else (torch.empty(0), torch.empty(0))
    return StyleStatistics(
        client="photo",
        round=2,
        mean=some[0],
        std=some[1],
        mean_var=mean_var,
        std_var=std_var,
        behind="client",
        at="layer1",
        rule="paper",
    )


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))


def state() -> ModelState:
    return ModelState.of(network(), "photo", 1)


def count() -> SampleCount:
    return SampleCount(client="photo", round=0, count=torch.tensor(17))


def interpolated() -> InterpolationStyle:
    mean, std = torch.rand(2, 4)
    return InterpolationStyle(client="photo", round=0, mean=mean, std=std, at="stage3", rule="pooled_biased")


def marginal() -> LabelMarginal:
    return LabelMarginal(client="photo", round=0, share=torch.tensor([0.25, 0.75]))


def metrics() -> ValidationMetrics:
    return ValidationMetrics(client="photo", round=3, accuracy=torch.tensor(0.5, dtype=torch.float64))


PARTS_OF_A_MODEL = (ClassifierHead, RepresentationTranslator, ImportanceWeights, BatchNormStatistics)


def draft(n: int = 5, variances: bool = True) -> StyleDraft:
    rng = torch.Generator().manual_seed(3)
    return StyleDraft(
        client="photo",
        round=4,
        mean=torch.randn(n, 3, generator=rng),
        std=torch.rand(n, 3, generator=rng),
        variances=variances,
        behind="client",
        at="layer2",
        rule="paper_eps",
    )


EACH = pytest.mark.parametrize(
    "artifact",
    [
        *(style(), style(variances=False), state(), count(), interpolated(), marginal(), metrics()),
        *(kind.of(network(), "photo", 1) for kind in PARTS_OF_A_MODEL),
    ],
    ids=lambda a: str(a.kind),
)


def test_every_kind_is_known_by_its_name() -> None:
    assert Artifact.kinds["style_statistics"] is StyleStatistics
    assert Artifact.kinds["model_state"] is ModelState
    assert Artifact.kinds["sample_count"] is SampleCount
    assert Artifact.kinds["interpolation_style"] is InterpolationStyle
    assert all(kind == part.kind for kind, part in Artifact.kinds.items())


@EACH
def test_it_is_frozen(artifact: Artifact) -> None:
    with pytest.raises(FrozenInstanceError):
        artifact.client = "mallory"  # type: ignore[misc]


@EACH
def test_it_is_built_again_from_its_tensors_and_facts(artifact: Artifact) -> None:
    again = type(artifact).build(artifact.tensors(), artifact.facts())
    assert type(again) is type(artifact)
    assert again.facts() == artifact.facts()
    assert list(again.tensors()) == list(artifact.tensors())
    assert all(torch.equal(again.tensors()[name], tensor) for name, tensor in artifact.tensors().items())


@EACH
def test_a_change_reaches_every_tensor_and_no_fact(artifact: Artifact) -> None:
    changed = artifact.map(lambda tensor: tensor + 1)
    assert type(changed) is type(artifact)
    assert changed.facts() == artifact.facts()
    for name, tensor in artifact.tensors().items():
        assert torch.equal(changed.tensors()[name], tensor + 1)


@EACH
def test_another_sender_s_name_changes_nothing_else(artifact: Artifact) -> None:
    renamed = artifact.seen_as("peer")
    assert renamed.client == "peer"
    assert {**renamed.facts(), "client": "photo"} == artifact.facts()
    assert all(torch.equal(renamed.tensors()[name], tensor) for name, tensor in artifact.tensors().items())


@EACH
def test_it_weighs_what_its_tensors_weigh(artifact: Artifact) -> None:
    assert artifact.nbytes == sum(np.asarray(tensor).nbytes for tensor in artifact.tensors().values())


@EACH
@pytest.mark.parametrize("change", ["missing", "unknown", "ill-typed client", "ill-typed round"])
def test_it_is_not_built_from_anything_else(artifact: Artifact, change: str) -> None:
    facts = artifact.facts()
    if change == "missing":
        del facts["round"]
    elif change == "unknown":
        facts["extra"] = 1
    elif change == "ill-typed client":
        facts["client"] = 5
    else:
        facts["round"] = "two"
    with pytest.raises(ValueError, match=r"want .*got"):
        type(artifact).build(artifact.tensors(), facts)


@EACH
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named(artifact: Artifact, bad: float) -> None:
    assert artifact.not_finite() is None
    floats = [name for name, tensor in artifact.tensors().items() if tensor.is_floating_point() and tensor.numel()]
    for name in floats:
        tensors = dict(artifact.tensors())
        tensors[name] = tensors[name].clone()
        tensors[name].view(-1)[-1] = bad
        assert type(artifact).build(tensors, artifact.facts()).not_finite() == name


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mean": torch.zeros(3, 1), "std": torch.zeros(3, 1)}, r"\(3, 1\)"),
        ({"std": torch.zeros(4)}, r"\(3,\), \(4,\)"),
        ({"mean_var": torch.zeros(0)}, r"\(0,\), \(3,\)"),
        ({"mean_var": torch.zeros(2), "std_var": torch.zeros(2)}, r"\(2,\), \(2,\)"),
        ({"behind": "country"}, "'country'"),
    ],
)
def test_a_style_s_shapes_are_checked_at_the_door(changes: dict[str, Tensor | str], told: str) -> None:
    with pytest.raises(ValueError, match=f"want .*got .*{told}"):
        replace(style(), **changes)  # type: ignore[arg-type]


def test_a_count_is_one_whole_number() -> None:
    for wrong in (torch.zeros(2, dtype=torch.int64), torch.tensor(1.5)):
        with pytest.raises(ValueError, match="want"):
            SampleCount(client="photo", round=0, count=wrong)


def test_a_marginal_is_one_row_of_float32_and_an_accuracy_one_number() -> None:
    for share in (torch.zeros(2, 2), torch.zeros(2, dtype=torch.float64)):
        with pytest.raises(ValueError, match="want share"):
            LabelMarginal(client="photo", round=0, share=share)
    for accuracy in (torch.tensor(1), torch.zeros(1, dtype=torch.float64)):
        with pytest.raises(ValueError, match="want accuracy"):
            ValidationMetrics(client="photo", round=0, accuracy=accuracy)


@pytest.mark.parametrize("kind", PARTS_OF_A_MODEL)
def test_a_part_of_a_model_is_no_model_state_and_is_loaded_whole_or_refused_by_name(kind: type[TensorState]) -> None:
    shared = kind.of(network(), "photo", 0)
    assert not isinstance(shared, ModelState)
    again = network()
    shared.load_into(again)
    assert all(torch.equal(tensor, shared.state[name]) for name, tensor in again.state_dict().items())
    with pytest.raises(ValueError, match=f"this {kind.kind} is of another network"):
        shared.load_into(nn.Conv2d(3, 4, 1))


def test_a_style_is_of_what_stands_behind_it_and_a_server_s_model_of_all() -> None:
    assert [replace(style(), behind=level).level for level in LEVELS] == list(LEVELS)
    assert style().layer == "layer1"
    assert state().level == "client"
    assert state().layer is None
    assert state().seen_as(SERVER).level == "group"


def test_a_style_in_one_vector_holds_each_moment_in_turn() -> None:
    assert style().vector().tolist() == list(range(12))
    assert style(variances=False).vector().tolist() == list(range(6))


def test_a_model_state_is_a_copy() -> None:
    model = network()
    shared = ModelState.of(model, "photo", 0)
    before = {name: tensor.clone() for name, tensor in shared.state.items()}
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.add_(1)
    assert all(torch.equal(shared.state[name], tensor) for name, tensor in before.items())


def test_a_model_state_is_loaded_whole_or_refused_in_one_line() -> None:
    model = network()
    shared = state().map(lambda tensor: tensor + 1)
    shared.load_into(model)
    assert all(torch.equal(tensor, shared.state[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(ValueError, match="another network") as caught:
        shared.load_into(nn.Conv2d(3, 4, 1))
    assert "\n" not in str(caught.value)


def test_a_model_state_carries_its_batch_norm_statistics_and_counters() -> None:
    model = network()
    model(torch.arange(96.0).view(2, 3, 4, 4))
    found = ModelState.of(model, "photo", 0).bn_statistics()
    assert list(found) == ["1"]
    assert set(found["1"]) == {"running_mean", "running_var", "num_batches_tracked"}
    assert int(found["1"]["num_batches_tracked"]) == 1
    assert torch.equal(found["1"]["running_mean"], model.state_dict()["1.running_mean"])


def test_a_draft_is_finished_as_plain_averages_and_biased_variances() -> None:
    made = draft()
    mean, std = made.mean.double().numpy(), made.std.double().numpy()
    shared = made.finish()
    np.testing.assert_allclose(shared.mean, mean.sum(0) / 5, atol=1e-6)
    np.testing.assert_allclose(shared.std, std.sum(0) / 5, atol=1e-6)
    np.testing.assert_allclose(shared.mean_var, ((mean - mean.mean(0)) ** 2).sum(0) / 5, atol=1e-6)
    np.testing.assert_allclose(shared.std_var, ((std - std.mean(0)) ** 2).sum(0) / 5, atol=1e-6)
    assert shared.facts() == {"client": "photo", "round": 4, "behind": "client", "at": "layer2", "rule": "paper_eps"}


def test_one_image_has_a_finite_style() -> None:
    """AUDIT 5.1: `torch.var` over one image gives NaN in the released code."""
    shared = draft(n=1).finish()
    assert shared.not_finite() is None
    assert shared.mean_var.tolist() == [0, 0, 0]


def test_a_draft_without_variances_shares_none() -> None:
    shared = draft(variances=False).finish()
    assert shared.mean_var.shape == shared.std_var.shape == (0,)
    assert shared.nbytes == 2 * 3 * 4


def test_a_draft_of_some_images_holds_those_only() -> None:
    made = draft()
    some = made.take(torch.tensor([3, 0]), "cluster")
    assert torch.equal(some.mean, made.mean[[3, 0]])
    assert torch.equal(some.std, made.std[[3, 0]])
    assert some.behind == "cluster"
    assert (some.client, some.round, some.at, some.rule) == ("photo", 4, "layer2", "paper_eps")


def test_a_draft_is_no_artifact() -> None:
    assert not isinstance(draft(), Artifact)


def test_an_interpolation_style_wants_mean_and_std_of_one_shape() -> None:
    with pytest.raises(ValueError, match=r"want mean and std of one shape \(C,\), got \(4,\), \(3,\)"):
        replace(interpolated(), std=torch.ones(3))
    made = replace(interpolated(), client=SERVER)
    assert (made.level, made.layer, made.nbytes) == ("group", "stage3", 32)


def test_a_part_of_a_draft_has_its_images_maps() -> None:
    maps = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    whole = replace(draft(), maps=maps, rule="finch_last_maps_mixture")
    part = whole.take(torch.tensor([3, 1]), "cluster")
    assert part.maps is not None
    assert torch.equal(part.maps, maps[[3, 1]])
    assert part.finish().level == "cluster"
    assert draft().take(torch.tensor([0]), "image").maps is None
