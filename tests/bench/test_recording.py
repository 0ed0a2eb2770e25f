"""Recording's share of a round's processor time, and its memory: `make bench` prints them."""

import resource
from pathlib import Path
from time import process_time

import pytest
import torch
from torch import nn

import fdgpriv
from fdgpriv.federation.transcript import Transcript
from fdgpriv.models.backbone import backbone

CLIENTS, ROUNDS, IMAGES, SIDE = 4, 1, 128, 64


class Classifier(nn.Module):
    """Averages features (N, 512, h, w) and classifies them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(512, 10)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.linear(features.mean((2, 3)))


def _train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    model.train()
    for index in torch.randperm(len(images)).split(16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
        optimizer.step()


@pytest.mark.bench
def test_recordings_share_of_a_round(tmp_path: Path) -> None:
    """ResNet-18 (45 MB a model): one epoch of 128 images of 64 pixels for each of 4 clients."""
    model = nn.Sequential(backbone("resnet18", mean=(0.5,) * 3, std=(0.5,) * 3, rng=torch.Generator()), Classifier())
    images, labels = torch.rand(IMAGES, 3, SIDE, SIDE), torch.arange(IMAGES) % 10
    recording, start = 0.0, process_time()
    with fdgpriv.record(tmp_path / "run") as wire:
        for round in range(ROUNDS):
            sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            for client in range(CLIENTS):
                begin = process_time()
                wire.down(f"client-{client}", round, model=sent)
                recording += process_time() - begin
                model.load_state_dict(sent)
                _train(model, images, labels)
                begin = process_time()
                wire.up(f"client-{client}", round, model=model.state_dict(), n=IMAGES)
                recording += process_time() - begin
    total = process_time() - start
    print(f"\nrecording: {recording:.2f} s of {total:.2f} s of processor time, {recording / total:.1%} of a round")


@pytest.mark.bench
def test_a_recording_of_many_clients(tmp_path: Path) -> None:
    """1,000 clients with models of 1 MB in 2 rounds: processor time of each, and memory that stays."""
    state = {"weight": torch.zeros(250_000)}
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    with fdgpriv.record(tmp_path / "run") as wire:
        for round in range(2):
            for client in range(1000):
                wire.down(f"client-{client}", round, model={"weight": state["weight"] + round})
                wire.up(f"client-{client}", round, model={"weight": state["weight"] + client}, n=100)
    took, grown = process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    start = process_time()
    records = len(Transcript.load(tmp_path / "run").records)
    loading = process_time() - start
    print(
        f"\n{records} artifacts: {1e3 * took / records:.2f} ms each, memory +{grown / 1024:.0f} MB, read in {loading:.1f} s"
    )
