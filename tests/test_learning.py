"""A model that has not learned is marked as such, by a linear probe on the images of its source accuracy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _results import measured, results, run
from fdgpriv.reports._caveats import caveats
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown
from sklearn.linear_model import LogisticRegression, Ridge
from test_counts import NOWHERE

from fdgpriv.audit_results import AuditResults
from fdgpriv.compare.audits import Audit, run_differences
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.results import learning
from fdgpriv.results.learning import embedding, source_probe
from fdgpriv.results.summary import verdicts
from fdgpriv.results.utility_finding import PersonalUtility, SourceProbe
from fdgpriv.statistics.measured import Measured

PROBE = SourceProbe(accuracy=0.9, majority=0.1, on="pixels")


def population(pixels: torch.Tensor, labels: torch.Tensor, clients: int = 3, held_out: int = 30) -> Any:
    """These images divided among clients, of which each holds some out."""
    parts = torch.arange(len(labels)).chunk(clients)
    return SimpleNamespace(
        clients={
            str(part[0].item()): ClientData(
                "c",
                pixels[part[held_out:]],
                labels[part[held_out:]],
                pixels[part[:held_out]],
                labels[part[:held_out]],
                10,
            )
            for part in parts
        }
    )


def shuffled(digits: Dataset, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randperm(len(digits.domains[0]), generator=torch.Generator().manual_seed(1))[:count]
    return digits.domains[0].pixels[rows], digits.domains[0].labels[rows]


def test_the_probe_is_a_linear_classifier_on_pixels(digits: Dataset) -> None:
    """Against logistic regression, and against ridge regression with every penalty tried by leaving each image out."""
    pixels, labels = shuffled(digits, 240)
    sources = population(pixels, labels, held_out=20)
    probe = source_probe(sources)
    assert probe is not None
    data = list(sources.clients.values())
    fitted, asked = (
        torch.cat([getattr(d, n) for d in data]).flatten(1).numpy() / 255 for n in ("pixels", "held_out_pixels")
    )
    y, truth = (torch.cat([getattr(d, n) for d in data]).numpy() for n in ("labels", "held_out_labels"))
    assert probe.majority == np.bincount(truth).max() / len(truth)
    assert probe.on == "pixels"
    logistic = LogisticRegression(max_iter=300).fit(fitted, y).score(asked, truth)
    assert probe.accuracy == pytest.approx(logistic, abs=0.05)
    targets = np.where(y[:, None] == np.arange(10), 1.0, -1.0)
    scale = float(torch.from_numpy(fitted).double().std())
    errors, scores = {}, {}
    for penalty in (1e-2, 1.0, 10.0, 100.0, 1e3, 1e5):
        model = Ridge(alpha=penalty).fit(fitted / scale, targets)
        centred = fitted / scale - (fitted / scale).mean(0)
        gram = centred @ centred.T
        hat = gram @ np.linalg.inv(gram + penalty * np.eye(len(gram))) + 1 / len(gram)
        errors[penalty] = np.mean(((targets - hat @ targets) / (1 - np.diag(hat))[:, None]) ** 2)
        scores[penalty] = np.mean(model.predict(asked / scale).argmax(1) == truth)
    assert probe.accuracy == pytest.approx(scores[min(errors, key=lambda penalty: errors[penalty])], abs=0.02)


def test_features_replace_pixels_where_training_starts_from_them(digits: Dataset) -> None:
    pixels, labels = shuffled(digits, 120)
    sources = population(pixels, labels, held_out=10)
    by_class = torch.eye(10)
    told = {image.numpy().tobytes(): by_class[label] for image, label in zip(pixels, labels, strict=True)}

    def features(images: torch.Tensor) -> torch.Tensor:
        return torch.stack([told[(255 * image).round().to(torch.uint8).numpy().tobytes()] for image in images])

    probe = source_probe(sources, features)
    assert probe == SourceProbe(accuracy=1.0, majority=probe.majority if probe else 0.0, on="pre-trained features")
    network = torch.nn.Conv2d(3, 7, 3).train()
    assert embedding(network)(torch.rand(5, 3, 8, 8)).shape == (5, 7)
    assert not network.training


def test_large_images_and_many_images_are_reduced(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, labels = shuffled(digits, 120)
    large = torch.nn.functional.interpolate(pixels.float(), scale_factor=3).to(torch.uint8)
    assert source_probe(population(large, labels, held_out=10)) == source_probe(population(pixels, labels, held_out=10))
    sizes = []
    monkeypatch.setattr(learning, "MAX_TRAINING_IMAGES", 50)
    source_probe(population(pixels, labels, held_out=10), lambda images: sizes.append(len(images)) or images.flatten(1))
    assert sum(sizes) == 50 + 30


def test_nothing_to_probe_is_no_probe(digits: Dataset) -> None:
    pixels, labels = shuffled(digits, 60)
    assert source_probe(population(pixels, labels, held_out=0)) is None
    assert source_probe(population(pixels, torch.zeros_like(labels), held_out=5)) is None


@pytest.mark.parametrize(
    ("source", "probe", "learned"),
    [
        (0.499, PROBE, False),
        (0.5, PROBE, True),
        (0.05, PROBE, False),
        (0.05, None, True),  # not known
        (0.75, SourceProbe(accuracy=0.9, majority=0.7, on="pre-trained features"), False),
        (0.12, SourceProbe(accuracy=0.1, majority=0.1, on="pixels"), True),
    ],
)
def test_every_place_has_the_banner(source: float, probe: SourceProbe | None, learned: bool) -> None:
    trained = run("none")
    assert trained.utility is not None
    figure = measured(source, 0.01, 300, "higher_better")
    utility = trained.utility.model_copy(update={"source_accuracy": figure, "source_probe": probe})
    audit = results(defenses=("none",)).model_copy(update={"runs": (trained.model_copy(update={"utility": utility}),)})
    shown = AuditResults.of(audit, None)
    texts = [
        verdicts(audit),
        str(shown),
        shown._repr_html_(),
        Html().render(audit, NOWHERE),
        Markdown().render(audit, NOWHERE),
    ]
    for text in texts:
        assert ("not learned" in text.lower()) != learned
        if not learned and probe is not None:
            assert f"{source:.3f} is below {probe.half_way:.3f}" in text
    assert (caveats(audit) is None) == learned
    own = PersonalUtility(source_accuracy=measured(0.8, 0.01, 300, "higher_better"), target_accuracy=figure, clients=())
    assert utility.model_copy(update={"personal": own}).not_learned is None or (
        probe is not None and probe.half_way > 0.8
    )
    unknown = Measured(value=None, direction="higher_better", reason="no images")
    assert utility.model_copy(update={"source_accuracy": unknown}).not_learned is None


def test_a_comparison_says_where_a_model_no_longer_learns() -> None:
    usual = run("none")
    assert usual.utility is not None
    audits = []
    for source, probe in ((0.8, PROBE), (0.2, PROBE), (0.2, None)):
        figure = measured(source, 0.01, 300, "higher_better")
        utility = usual.utility.model_copy(update={"source_accuracy": figure, "source_probe": probe})
        runs = (usual.model_copy(update={"utility": utility}),)
        audits.append(Audit("a", NOWHERE, results(defenses=("none",)).model_copy(update={"runs": runs})))
    before = audits[0]
    differences = [run_differences(before, before.results.runs[0], after, after.results.runs[0]) for after in audits]
    assert differences == [(), ("learned: yes → no",), ()]
