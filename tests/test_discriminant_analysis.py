"""Linear discriminant analysis with Ledoit and Wolf's shrinkage, against scikit-learn and written out."""

import pytest
import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fdgpriv.statistics.discriminant import discriminant, shrinkage


def test_a_wide_discriminant_is_the_dense_discriminant(rng: torch.Generator) -> None:
    """Against the covariance written out and inverted."""
    inputs, asked = torch.randn(12, 60, generator=rng).double(), torch.randn(5, 60, generator=rng).double()
    labels = torch.tensor([0, 0, 0, 0, 2, 2, 2, 2, 2, 3, 3, 3])
    found = discriminant(inputs, labels, asked, 5)
    known = labels.unique()
    means = torch.stack([inputs[labels == label].mean(0) for label in known])
    rest = torch.stack([row - inputs[labels == label].mean(0) for row, label in zip(inputs, labels, strict=True)])
    spread = rest.square().mean(0).sqrt() + 1e-8
    shrunk = ledoit_wolf_shrinkage((rest / spread).numpy(), assume_centered=True)
    sample = (rest / spread).T @ (rest / spread) / 12
    covariance = (1 - shrunk) * sample + shrunk * sample.trace() / 60 * torch.eye(60, dtype=torch.float64)
    priors = torch.stack([(labels == label).double().mean() for label in known])
    centers = means / spread
    inverse = torch.linalg.inv(covariance)
    logs = torch.stack(
        [
            torch.stack([x @ inverse @ m - m @ inverse @ m / 2 + p.log() for m, p in zip(centers, priors, strict=True)])
            for x in asked / spread
        ]
    )
    torch.testing.assert_close(found[:, known].double(), logs.log_softmax(1), rtol=1e-4, atol=1e-4)
    assert (found[:, [1, 4]] == -50).all()


@pytest.mark.parametrize("shape", [(40, 25), (25, 80)])  # more inputs, and more dimensions
@pytest.mark.parametrize("classes", [2, 3])
def test_a_discriminant_is_scikit_learns(shape: tuple[int, int], classes: int, rng: torch.Generator) -> None:
    inputs, asked = torch.randn(*shape, generator=rng).double(), torch.randn(5, shape[1], generator=rng).double()
    inputs[:, 2] = 1  # constant
    labels = torch.arange(shape[0]) % classes
    inputs[labels == 1, 3:6] += 0.5
    plain = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(inputs.numpy(), labels.numpy())
    expected = torch.from_numpy(plain.predict_log_proba(asked.numpy())).float()
    assert float(expected.exp().max(1).values.min()) < 0.99  # not all are certain
    torch.testing.assert_close(discriminant(inputs, labels, asked, classes), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 40), (12, 12), (50, 7), (2, 5)])
def test_shrinkage_is_scikit_learns(shape: tuple[int, int], rng: torch.Generator) -> None:
    rows = torch.randn(*shape, generator=rng).double() * torch.rand(shape[1], generator=rng)
    rows -= rows.mean(0)
    assert shrinkage(rows) == pytest.approx(float(ledoit_wolf_shrinkage(rows.numpy())), abs=1e-9)
    assert shrinkage(torch.zeros(*shape)) == 0
