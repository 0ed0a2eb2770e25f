"""MixStyle and DSU: their formulas against loops, where and how often they act, and that gradients are the papers'."""

from typing import Any

import pytest
import torch
from factories import SURE, federation, held, network, refused, run, seeded, small
from scipy import stats
from torch import Tensor

from fdgpriv.federation.local_training import Batch

BUILD = network(1, 1, 2, 1)


def maps(rng: torch.Generator, batch: int = 5, channels: int = 3, side: int = 4) -> Tensor:
    scale = 0.5 + torch.rand(batch, channels, 1, 1, generator=rng)
    return scale * torch.randn(batch, channels, side, side, generator=rng) + scale


def plain_styled(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Channel by channel: normalised by its own mean and std, then given those of (B, C)."""
    styled = torch.empty_like(features)
    for b in range(features.shape[0]):
        for c in range(features.shape[1]):
            pixels = features[b, c]
            own_mean = pixels.sum() / pixels.numel()
            own_std = (((pixels - own_mean) ** 2).sum() / pixels.numel()).sqrt()
            styled[b, c] = (pixels - own_mean) / own_std * std[b, c] + mean[b, c]
    return styled


def test_mixstyle_is_the_papers_formula(monkeypatch: pytest.MonkeyPatch, rng: torch.Generator) -> None:
    features, method = maps(rng), small("mixstyle")
    weight, wanted = torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0]), list[tuple[float, int]]()
    monkeypatch.setattr(
        f"{type(method).__module__}.beta", lambda alpha, size, rng: (wanted.append((alpha, size)), weight)[1]
    )
    changed = method.changed(features, seeded(3))
    assert wanted == [(0.1, 5)]
    partner = torch.randperm(5, generator=seeded(3)).tolist()
    mean, std = features.mean((2, 3)), features.var((2, 3), unbiased=False).sqrt()
    mixed = [[w * m[b] + (1 - w) * m[partner[b]] for b, w in enumerate(weight)] for m in (mean, std)]
    expected = plain_styled(features, torch.stack(mixed[0]), torch.stack(mixed[1]))
    torch.testing.assert_close(changed, expected, rtol=1e-4, atol=1e-4)


def test_mixstyle_blocks_the_gradient_of_styles(rng: torch.Generator) -> None:
    features = maps(rng).requires_grad_()
    changed = small("mixstyle").changed(features, seeded(3))
    std = features.detach().var((2, 3), unbiased=False).sqrt()
    scale = changed.detach().var((2, 3), unbiased=False).sqrt() / std
    (gradient,) = torch.autograd.grad(changed.sum(), features)
    torch.testing.assert_close(gradient, scale[..., None, None].expand_as(features), rtol=1e-3, atol=1e-4)


def test_dsu_draws_with_the_batchs_spread(rng: torch.Generator) -> None:
    features, method, generator = maps(rng), small("dsu"), seeded(4)
    drawn = [method.changed(features, generator) for _ in range(400)]
    mean, std = features.mean((2, 3)), features.var((2, 3), unbiased=False).sqrt()
    for statistic, draws in (
        (mean, torch.stack([d.mean((2, 3)) for d in drawn])),
        (std, torch.stack([(d * features).mean((2, 3)) - d.mean((2, 3)) * mean for d in drawn]) / std),  # with its sign
    ):
        for c in range(features.shape[1]):
            column = statistic[:, c].tolist()
            center = sum(column) / len(column)
            spread = (sum((value - center) ** 2 for value in column) / len(column)) ** 0.5
            noise = (draws[:, :, c] - statistic[:, c]) / spread
            assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > SURE
            assert abs(float(noise.square().mean()) - 1) < 4 * (2 / noise.numel()) ** 0.5
            between = noise[:, 0] @ noise[:, 1] / len(noise)  # images are drawn independently
            assert abs(float(between)) < 4 / len(noise) ** 0.5


def test_dsu_keeps_what_is_no_style(rng: torch.Generator) -> None:
    features = maps(rng)
    changed = small("dsu").changed(features, seeded(4))

    def pattern(maps: Tensor) -> Tensor:
        centred = maps - maps.mean((2, 3), keepdim=True)
        return centred / centred.norm(dim=(2, 3), keepdim=True)

    same = (pattern(changed) * pattern(features)).sum((2, 3))
    torch.testing.assert_close(same.abs(), torch.ones_like(same), rtol=1e-4, atol=1e-4)


def test_dsu_passes_gradients_of_styles(rng: torch.Generator) -> None:
    """Numeric differences agree with the gradient only where no statistic is taken for a constant."""
    features = maps(rng, batch=3, channels=2, side=3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: small("dsu").changed(x, seeded(4)), features)


@pytest.mark.parametrize(("name", "layers"), [("mixstyle", 3), ("dsu", 4)])
def test_each_layer_changes_with_probability_p(
    name: str, layers: int, monkeypatch: pytest.MonkeyPatch, rng: torch.Generator
) -> None:
    calls: list[int] = []
    world, data = federation(2, build=BUILD), held("client-0", 6)
    for p in (0.0, 0.3, 1.0):
        method = small(name, p=p)

        def counted(self: Any, features: Tensor, rng: torch.Generator) -> Tensor:
            calls.append(len(features))
            return features

        monkeypatch.setattr(type(method), "changed", counted)
        model, generator = method.model(world, seeded(0)), seeded(7)
        calls.clear()
        for _ in range(100):
            method.loss(model, Batch(torch.arange(6), data.images, data.labels), generator)
        assert stats.binomtest(len(calls), 100 * layers, p).pvalue > SURE


@pytest.mark.parametrize("name", ["mixstyle", "dsu"])
def test_an_evaluated_model_changes_no_style(name: str) -> None:
    """The model that is shared and evaluated is FedAvg's network: only the training differs."""
    plain = run(small("fedavg"), 5, 7, build=BUILD)
    ran = run(small(name), 5, 7, build=BUILD)
    assert type(ran.model) is type(plain.model)
    assert set(ran.state) == set(plain.state)
    off = run(small(name, p=0.0, lr=0.1), 5, 7, build=BUILD)
    assert {(r.kind, r.nbytes) for r in off.transcript.records} == {
        (r.kind, r.nbytes) for r in plain.transcript.records
    }


@pytest.mark.parametrize("name", ["mixstyle", "dsu"])
def test_an_unknown_layer_is_refused(name: str) -> None:
    method = small(name, layers=("layer9",))
    with refused(f"{name}.layers: want a layer of layer1"):
        method.check(method.model(federation(2, build=BUILD), seeded(0)))
    small(name, layers=("stride2",)).check(method.model(federation(2, build=BUILD), seeded(0)))


@pytest.mark.parametrize("name", ["mixstyle", "dsu", "rsc", "jigen"])
def test_dp_sgd_is_refused_where_images_are_coupled(name: str) -> None:
    with refused(f"dpsgd: not applicable to {name}: "):
        run(small(name), 5, 7, build=BUILD, defense="dpsgd")
