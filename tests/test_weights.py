"""Weights of clients: averages against a plain loop in every method, and FedAvg of the same weights to compare with."""

import pytest
import torch
from factories import run, small
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.dry_run import dry_run
from fdgpriv.federation.weights import Weights, effective
from fdgpriv.method import Method
from fdgpriv.results.baseline import WeightsOf, matched, unmatched

SIZES = (4, 9, 20)
AVERAGING: dict[str, dict[str, object]] = {
    "fedavg": {}, "stablefdg": {"explore_layers": ("layer1",), "lr": 1e-3},
    "ccst": {"augmentation": 3, "selection": "last"}, "pardon": {},
    "lsi": {"aggregation": "mean", "invariance": 0.0, "select": "last"},
}  # fmt: skip


def by_hand(states: list[dict[str, Tensor]], weights: tuple[float, ...]) -> dict[str, Tensor]:
    """The weighted mean of the floating-point tensors, number by number in double precision."""
    mean = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            rows = [state[name].double().flatten().tolist() for state in states]
            of_all = [sum(w * x for w, x in zip(weights, each, strict=True)) for each in zip(*rows, strict=True)]
            mean[name] = (torch.tensor(of_all, dtype=torch.float64) / sum(weights)).reshape(first.shape).float()
    return mean


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("name", AVERAGING)
def test_the_next_model_is_the_weighted_mean(name: str, weights: str) -> None:
    method = small(name, weights=weights, **AVERAGING[name])
    transcript = run(method, *SIZES).transcript
    sent = [(record, artifact) for record, artifact in transcript.of_kind(ModelState.kind) if artifact is not None]
    trained = {r.sender: dict(a.tensors()) for r, a in sent if r.receiver == SERVER and (r.round, r.verb) == (0, "fit")}
    states = [trained[client] for client in sorted(trained)]
    (following, *_) = [dict(a.tensors()) for r, a in sent if r.sender == SERVER and r.round == 1]
    assert len(states) == 3
    for state, expected in by_hand(states, SIZES if weights == "samples" else (1, 1, 1)).items():
        torch.testing.assert_close(following[state], expected, rtol=1e-5, atol=1e-6)
    counted = {record.origin for record, _ in transcript.of_kind(SampleCount.kind)}
    assert counted == (set(trained) if weights == "samples" else set())
    assert method.disclosure().weights == weights


def test_averaging_methods_disclose_their_weights() -> None:
    disclosed = {name: Method.named(name)().disclosure().weights for name in (*AVERAGING, "hfedf", "pfedhn")}
    assert disclosed == {
        **dict.fromkeys(AVERAGING, "samples"),
        **dict.fromkeys(("stablefdg", "ccst"), "uniform"),
        **dict.fromkeys(("hfedf", "pfedhn"), None),
    }


@pytest.mark.parametrize(
    ("weights", "sizes", "expected"),
    [
        ("samples", [100, 105], "uniform"),
        ("samples", [100, 106], "samples"),
        ("samples", [2, 3], "samples"),
        ("samples", [7, 7, 7], "uniform"),
        ("uniform", [1, 1000], "uniform"),
        (None, [1, 1000], None),
    ],
)
def test_weights_by_samples_are_equal_where_sizes_are(
    weights: Weights | None, sizes: list[int], expected: Weights | None
) -> None:
    assert effective(weights, sizes) == expected


def of(weights: Weights | None, *trainings: int) -> WeightsOf:
    return {(seed, "scan"): weights for seed in trainings or (0, 1)}


def test_a_method_is_compared_with_its_weights_fedavg() -> None:
    known = {
        "fedavg": of("samples"), "fedavg:weights=uniform": of("uniform"), "fedavg:weights=uniform,lr=1": of("uniform"),
        "stablefdg": of("uniform"), "pardon": of("samples"), "hfedf": of(None),
    }  # fmt: skip
    assert matched("stablefdg", known) == "fedavg:weights=uniform"
    assert matched("pardon", known) == matched("hfedf", known) == "fedavg"
    assert matched("fedavg:weights=uniform", known) == "fedavg:weights=uniform"
    assert not any(unmatched(method, known) for method in known)
    without = {"fedavg": of("samples"), "stablefdg": of("uniform"), "hfedf": of(None), "old": of(None)}
    assert matched("stablefdg", without) is None
    assert unmatched("stablefdg", without) == (
        "stablefdg weighs clients equally, fedavg not: to compare them, add --method fedavg:weights=uniform"
    )
    assert matched("hfedf", without) == "fedavg"
    assert unmatched("hfedf", without) is None
    assert unmatched("stablefdg", {"stablefdg": of("uniform")}) is None  # there is no FedAvg at all


def test_other_weights_are_no_match() -> None:
    mixed: WeightsOf = {(0, "scan"): "uniform", (0, "blend"): "samples"}
    both: WeightsOf = dict.fromkeys(mixed, "uniform")
    assert matched("ccst", {"fedavg": mixed, "ccst": both}) is None
    assert matched("ccst", {"fedavg": {(0, "scan"): "uniform"}, "ccst": both}) == "fedavg"


def made_up(*counts: int) -> Dataset:
    domains = [Domain(f"d{i}", torch.rand(n, 3, 32, 32), torch.arange(n) % 4) for i, n in enumerate(counts)]
    return Dataset("digits", tuple("abcd"), tuple(domains), "d0", "noise", "noise")


@pytest.mark.parametrize(
    ("methods", "counts", "told"),
    [
        (("stablefdg", "fedavg"), (40, 40, 40, 40), 0),
        (("stablefdg", "fedavg"), (40, 40, 40, 120), 1),
        (("stablefdg", "fedavg", "fedavg:weights=uniform"), (40, 40, 40, 120), 0),
        (("lsi", "fedavg"), (40, 40, 40, 120), 0),
        (("stablefdg", "ccst:augmentation=2"), (40, 40, 40, 120), 0),
    ],
)
def test_a_missing_fedavg_is_named_before_training(
    methods: tuple[str, ...], counts: tuple[int, ...], told: int
) -> None:
    config = AuditConfig(methods=methods, preset="quick", clients=3, attacks=(), targets=("d0",), device="cpu")
    notes = dry_run(config, made_up(*counts))
    assert len(notes) == told
    assert all("add --method fedavg:weights=uniform" in note for note in notes)
