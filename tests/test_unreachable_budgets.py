"""Budgets that no noise reaches, or whose noise no federation survives, are refused in one line before the training."""

import math
from pathlib import Path

import pytest

from fdgpriv.audit import main
from fdgpriv.privacy import poisson


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            "dpsgd:epsilon=0.001",
            "dpsgd: want epsilon > 0.0035 at delta 1e-05, since no noise reaches less by Opacus' RDP",
        ),
        ("dpsgd:epsilon=0.01,accountant=prv", "dpsgd: want epsilon > 0.02 at delta 1e-05, since no noise reaches less"),
        (
            "dpsgd:epsilon=1e5,accountant=prv",
            "dpsgd: want epsilon of at most 100 by Opacus' PRV accountant, got 100000",
        ),
        pytest.param(
            "dpsgd:epsilon=8,delta=1e-15,accountant=prv",
            "dpsgd: want a budget that noise reaches by Opacus' PRV accountant, got epsilon 8 and delta 1e-15",
            marks=pytest.mark.slow,
        ),
        (
            "client_dp:epsilon=1e-9",
            "client_dp: want a budget and a clip for which the spread of the noise on a model_state",
        ),
        (
            "laplace:epsilon=1e-40",
            "laplace: want a budget and a clip for which the spread of the noise on a style_stat",
        ),
    ],
)
def test_an_unreachable_budget_is_refused(
    spec: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method = "stablefdg" if spec.startswith("laplace") else "fedavg"
    words = ["--method", method, "--preset", "quick", "--clients", "3", "--attack", "none", "--defense", "none", spec]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"fdgpriv audit: {line}")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_least_epsilon_is_of_endless_noise() -> None:
    least = poisson.least_rdp_epsilon(1e-5)
    every = [math.log((a - 1) / a) - (math.log(1e-5) + math.log(a)) / (a - 1) for a in poisson.ORDERS]
    assert least == pytest.approx(min(every), rel=1e-12)
    assert poisson.poisson_noise_multiplier(1.05 * least, 1e-5, 1, 0.5, "rdp") > 100
