"""The discriminant of few inputs of many dimensions over scikit-learn's. Prints; asserts equality only. `make bench`."""

from collections.abc import Callable
from time import perf_counter

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from fdgpriv.statistics.discriminant import discriminant

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(("inputs", "dimensions"), [(400, 1200), (700, 2400)])
def test_the_discriminant_against_scikit_learns(
    inputs: int, dimensions: int, capsys: pytest.CaptureFixture[str], rng: torch.Generator
) -> None:
    known, asked = (torch.randn(n, dimensions, generator=rng, dtype=torch.float64) for n in (inputs, 50))
    labels = torch.arange(inputs) % 7
    discriminant(known[:40], labels[:40], asked, 7)  # loads what is loaded at first use
    ours, found = _timed(lambda: discriminant(known, labels, asked, 7))
    plain, expected = _timed(lambda: _of_scikit_learn(known, labels, asked))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    with capsys.disabled():
        print(f"\ndiscriminant of {inputs} inputs of {dimensions:,} dimensions over scikit-learn's: {ours / plain:.4f}")


def _of_scikit_learn(known: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(known.numpy(), labels.numpy())
    return torch.from_numpy(np.clip(model.predict_log_proba(asked.numpy()), -49, None)).float()


def _timed(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = perf_counter()
    found = run()
    return perf_counter() - start, found
