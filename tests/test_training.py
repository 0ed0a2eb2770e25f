"""What the evaluator tries during a training: which rounds, the last model of methods that select, shares of the target."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.partition import populate
from fdgpriv.results.utility import personal_utility, utility
from fdgpriv.results.utility_finding import Utility
from fdgpriv.training import Cell, train
from fdgpriv.utils.console import ProgressLog

ROUNDS = 4


def audited(method: str, dataset: Dataset, folder: Path) -> tuple[Utility, Evaluator]:
    """A quick training of three clients."""
    settings = {"rounds": str(ROUNDS), "local_epochs": "1", "batch_size": "16"}
    config = AuditConfig(methods=(method,), preset="quick", settings=settings, clients=3, device="cpu").checked()
    trained, evaluator = train(
        config, dataset, Cell(method, dataset.default_target, 0, "none"), folder, ProgressLog(), 2
    )
    assert trained.utility is not None
    return trained.utility, evaluator


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selecting", "plain"),
    [
        ("fedavg:selection=validation", "fedavg:selection=last"),
        ("lsi:select=validation,invariance=0", "lsi:select=last,invariance=0"),
    ],
)
def test_selection_does_not_change_the_training(selecting: str, plain: str, tiny: Dataset, tmp_path: Path) -> None:
    """Clients that report accuracies train as those do that do not."""
    one, evaluator = audited(selecting, tiny, tmp_path / "one")
    other, _ = audited(plain, tiny, tmp_path / "other")
    assert one.rounds == other.rounds
    assert [row.round for row in one.rounds] == [1, 2, 3, 4]
    assert (one.last_round, one.selected_round, one.last_five) == (
        other.last_round,
        other.selected_round,
        other.last_five,
    )
    assert other.last_round.target_accuracy == other.target_accuracy
    told: dict[int, list[float]] = {}
    for record, artifact in evaluator.transcript.of_kind("validation_metrics"):
        told.setdefault(ROUNDS if record.verb == "validate" else record.round, []).append(float(artifact.accuracy))  # type: ignore[union-attr]
    best = {round: sum(values) / len(values) for round, values in told.items()}
    round_counts = {row.round: row.target_accuracy for row in one.rounds}
    level = [round_counts[round] for round, mean in best.items() if round and mean == max(best.values())]
    assert one.target_accuracy.value in level


class Fixed(nn.Module):
    """Answers with the class that stands in an image's first number, or the next one where the client is wrong."""

    def __init__(self, wrong: Tensor) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, images: Tensor) -> Tensor:
        index, label = images[:, 0, 0, 0].long(), images[:, 1, 0, 0].long()
        return nn.functional.one_hot((label + self.wrong[index].long()) % 10, 10).float()


@pytest.mark.parametrize(("clients", "every"), [(5, 1), (5, 3), (2, 3), (1, 3), (6, 3)])
def test_every_third_image_tries_each_image(clients: int, every: int, tiny: Dataset) -> None:
    population = populate(tiny, tiny.default_target, "domains:1", 6, 0)
    n, names = len(population.target), list(population.clients)[:clients]
    images = torch.zeros(n, 3, 2, 2)
    images[:, 0], images[:, 1] = torch.arange(n)[:, None, None], population.target.labels[:, None, None]
    wrong = torch.rand(clients, n, generator=torch.Generator().manual_seed(0)) < torch.linspace(0.2, 0.8, n)
    held: dict[str, Any] = {}
    for name, data in population.clients.items():
        own = torch.zeros(len(data.held_out_labels), 3, 2, 2)
        own[:, 1] = data.held_out_labels[:, None, None]
        held[name] = replace(data, held_out_pixels=own)
    world = replace(population, target=replace(population.target, pixels=images), clients=held)
    models = {name: Fixed(wrong[i]) for i, name in enumerate(names)}
    found = personal_utility(models.__getitem__, names, world, every)
    step = min(every, clients)
    by_image = [np.mean([not wrong[i, j] for i in range(clients) if i % step == j % step]) for j in range(n)]
    assert found.target_accuracy.value == pytest.approx(np.mean(by_image))
    wanted = stats.t.interval(0.95, n - 1, np.mean(by_image), stats.sem(by_image))
    assert found.target_accuracy.ci95 == pytest.approx(wanted)
    assert found.target_accuracy.n == n
    for i, row in enumerate(found.clients):
        share = (~wrong[i, i % step :: step]).float().mean()
        assert row.target_accuracy == pytest.approx(float(share))


class Sign(nn.Module):
    """Class 1 where an image's normalised mean is positive, else class 0."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        mean = self.norm(images.mean(dim=(1, 2, 3), keepdim=True)).flatten()
        return torch.stack([-mean, mean], dim=1)


def test_kept_statistics_are_of_each_domain(tiny: Dataset) -> None:
    """Every domain has its own brightness, about which its two classes lie: its own mean tells them, no common one does."""
    population = populate(tiny, tiny.default_target, "single", 3, 0)

    def about(brightness: float, n: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(n) % 2
        return (brightness + 0.1 * (labels - 0.5))[:, None, None, None].expand(n, 3, 2, 2), labels

    clients, target = {}, about(0.9, len(population.target))
    for i, (name, data) in enumerate(population.clients.items()):
        images, labels = about(0.2 + 0.1 * i, 8)
        held_images, held_labels = about(0.2 + 0.1 * i, 3)  # unbalanced: their own mean is not the client's
        held = {"held_out_pixels": held_images, "held_out_labels": held_labels}
        clients[name] = replace(data, pixels=images, labels=labels, **held)
    world = replace(population, clients=clients, target=replace(population.target, pixels=target[0], labels=target[1]))
    model = Sign()
    own, initial = (utility(model, world, own) for own in (True, False))
    assert own.source_accuracy.value == own.target_accuracy.value == 1
    assert initial.target_accuracy.value == pytest.approx(0.5, abs=0.01)
    assert (own.recomputed_statistics, initial.recomputed_statistics) == (True, False)
    assert torch.equal(model.norm.running_mean, torch.zeros(1))
