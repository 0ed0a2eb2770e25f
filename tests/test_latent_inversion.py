"""Latents of heads: what the attack reads, what the evaluator measures, each against something plainer."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, mostly_slow, shortened
from factories import LSI_IN_HASTE, fitted_once, inferred
from torch import nn

from fdgpriv.artifacts.parameters import ClassifierHead
from fdgpriv.attack import Attack
from fdgpriv.claims import Case, claims
from fdgpriv.claims.latent_space import latent_space, precision_recall
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.tasks.images import Images
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator

module: Any = import_module("fdgpriv.attacks.latent_inversion")


@pytest.fixture(scope="module")
def inverted(digits: Dataset) -> Fitted:
    """LSI in a hurry, two clients to a domain."""
    return fitted_once(shortened(digits, 96), clients=6, method="lsi", settings=LSI_IN_HASTE)


def test_the_latent_is_the_ratio_of_weights_to_bias(rng: torch.Generator) -> None:
    """As plain SGD on one latent leaves it, whatever the steps."""
    latent, linear = torch.randn(1, 16, generator=rng), nn.Linear(16, 5)
    sent = {name: tensor.clone() for name, tensor in linear.state_dict().items()}
    optimizer = torch.optim.SGD(linear.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(linear(latent), torch.tensor([3])).backward()
        optimizer.step()
    change = {f"linear.{name}": tensor - sent[name] for name, tensor in linear.state_dict().items()}
    row = module._row_of_single_image(change)
    torch.testing.assert_close(row[:16], latent[0], atol=1e-5, rtol=1e-4)
    assert row[16:].tolist() == [0, 0, 0, 1, 0]


def test_class_means_against_a_loop(rng: torch.Generator) -> None:
    latents, labels = torch.randn(30, 4, generator=rng), torch.randint(3, (30,), generator=rng)
    means = module.class_means(latents, labels, 4)
    for label in range(3):
        torch.testing.assert_close(means[label], latents[labels == label].mean(0))
    assert not means[3].any()


@pytest.mark.slow
def test_one_image_is_told_from_its_head(inverted: Fitted) -> None:
    """Its positive control beats what other heads say; heads of whole clients are no better than each other's."""
    evaluator = inverted.evaluator()
    evaluator.per_client = {1: 6}
    attack = Attack.named("latent_inversion").configured({"most": 4})
    adversaries = evaluator.adversaries(evaluator.series(ClassifierHead.kind), threat("server"), (1, None), Images())
    scores = evaluate_trials(attack, adversaries, (), generator(0))[0]
    psnr = {name: np.array(values) for name, values in scores[1].headline.items()}
    for name in ("random_style", "other_client", "other_domain", "noise"):
        gain = psnr["attack"] - psnr[name]
        assert gain.mean() > 2 * gain.std(ddof=1) / len(gain) ** 0.5, name
    whole = {name: float(np.mean(values)) for name, values in scores[None].headline.items()}
    assert abs(whole["attack"] - whole["other_client"]) < 0.5


@pytest.mark.parametrize("latents", mostly_slow(["weights", "inverted"], ["inverted"]))
def test_both_routes_draw_images(inverted: Fitted, latents: str) -> None:
    evaluator = inverted.evaluator()
    evaluator.per_client = {1: 1}
    attack = Attack.named("latent_inversion").configured({"latents": latents, "simulations": 4, "most": 3})
    (adversary_trials,) = evaluator.adversaries(
        evaluator.series(ClassifierHead.kind), threat("server"), (1, None), Images()
    )
    observations = [trial.by_role["attack"][0].observation for trial in adversary_trials.trials]
    predictions, _ = inferred(attack, adversary_trials.adversary, observations, generator(0))
    for observation, prediction in zip(observations, predictions, strict=True):
        assert prediction.shape == (min(3, observation.n_images), 3, 32, 32)
        assert 0 <= float(prediction.min()) <= float(prediction.max()) <= 1


def test_precision_and_recall_against_a_loop(rng: torch.Generator) -> None:
    made, real = torch.randn(20, 3, generator=rng), 0.5 + torch.randn(25, 3, generator=rng)

    def covered(points: torch.Tensor, by: torch.Tensor) -> float:
        hits = 0
        for point in points:
            for i, center in enumerate(by):
                others = sorted(float((center - other).norm()) for j, other in enumerate(by) if j != i)
                if float((point - center).norm()) <= others[4]:
                    hits += 1
                    break
        return hits / len(points)

    assert precision_recall(made, real) == pytest.approx((covered(made, real), covered(real, made)))
    assert precision_recall(real, real) == (1.0, 1.0)
    assert precision_recall(made + 100, real) == (0.0, 0.0)


def test_latents_are_measured_where_heads_are_shared(inverted: Fitted, fitted: Fitted) -> None:
    facts = latent_space(inverted.evaluator())
    names = ("latent_precision", "latent_recall", "noise_precision", "noise_recall", "latent_gain")
    means = {
        f"{name}{end}"
        for name in (*names, "latent_mean_error", "latent_var_error")
        for end in ("", "_low", "_high", "_n")
    }
    assert set(facts) == means
    assert facts["latent_gain"] == pytest.approx(facts["latent_precision"] - facts["noise_precision"])
    assert latent_space(fitted.evaluator()) == {}


@pytest.mark.parametrize(
    ("precision", "error", "half", "resemble", "withheld"),
    [
        (0.0, 0.1, 0.01, "refuted", "refuted"),
        (0.9, 0.1, 0.01, "supported", "refuted"),
        (0.3, 0.1, 0.01, "undecided", "refuted"),  # nearer than noise, and not close
        (0.0, 0.9, 0.01, "refuted", "undecided"),
        (0.0, 0.1, 0.2, "undecided", "undecided"),  # five clients do not say
    ],
)
def test_what_the_latents_say_of_the_claims(
    precision: float, error: float, half: float, resemble: str, withheld: str
) -> None:
    latents = {"latent_precision": precision, "latent_recall": 0.5, "noise_precision": 0.0, "noise_recall": 1.0}
    means = {**latents, "latent_gain": precision, "latent_mean_error": error, "latent_var_error": 0.2}
    ends = {f"{name}_{end}": mean + by for name, mean in means.items() for end, by in (("low", -half), ("high", half))}
    facts = {**means, **ends, **{f"{name}_n": 5.0 for name in means}}
    rows = {row.id: row for row in claims("lsi", Case((), (), facts))}
    assert (rows["H-L3"].verdict, rows["H-L7"].verdict) == (resemble, withheld)
