"""Shadow models: what is trained once, and what each evaluation trains anew."""

from importlib import import_module
from typing import Any

import pytest
import torch
from _confetti import attack_of, sittings_of, trained
from factories import inferred

from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.utils.seeds import generator

shadow_models: Any = import_module("fdgpriv.attacks._shadow_models")


@pytest.fixture(scope="module")
def memorised() -> Evaluator:
    """Four clients who learned about ten images each by heart."""
    return trained(60, 4, 4, rounds=1, local_epochs=5)


def test_they_are_trained_once(memorised: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its state, and though fewer candidates are asked about; and anew with another generator."""
    calls = []
    plain = shadow_models.train_shadows

    def counting(simulator: Any, holdings: Any, rng: torch.Generator) -> Any:
        calls.append(len(holdings))
        return plain(simulator, holdings, rng)

    monkeypatch.setattr(shadow_models, "train_shadows", counting)
    (adversary_trials,) = sittings_of(memorised, "model_state", "server", (None,))
    observations = [one.observation for trial in adversary_trials.trials for one in trial.by_role["attack"]]
    attack, rng = attack_of(shadows=4, statistic="lira"), generator(5)
    first, _ = inferred(attack, adversary_trials.adversary, observations, rng)
    assert calls == [4]
    torch.rand(3, generator=rng)
    again, _ = inferred(attack, adversary_trials.adversary, observations[:2], rng)
    assert calls == [4]
    for one, other in zip(first[:2], again, strict=True):
        torch.testing.assert_close(one, other)
    (other, *_), _ = inferred(attack, adversary_trials.adversary, observations[:1], generator(6))
    assert calls == [4, 4]
    assert not torch.equal(other, first[0])
