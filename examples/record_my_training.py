"""A federated training of one's own, written by hand, that records what it sends; my_federation.py tells an audit the rest.

python examples/record_my_training.py runs/mine
python -m fdgpriv.audit --recording runs/mine --federation examples/my_federation.py --preset quick
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import fdgpriv

ROUNDS, EPOCHS, BATCH, LR = 3, 1, 16, 0.1


class Net(nn.Module):
    """A small network with BatchNorm for images of 32 x 32 pixels and 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(block(3, 16), block(16, 32), block(32, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 3, 32, 32)."""
        logits: Tensor = self.head(self.features(images).mean((2, 3)))
        return logits


def block(inputs: int, outputs: int) -> nn.Module:
    """Convolution, BatchNorm, ReLU, at half the side."""
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


def train(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
    """What a client does in one round."""
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=0.9)
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images), generator=rng).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def style(model: Net, images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) of the first block's channels: of each image, averaged over images."""
    features = model.eval().features[0](images)
    return features.mean((2, 3)).mean(0), features.std((2, 3)).mean(0)


def main(folder: Path) -> None:
    """Trains by federated averaging and records every message."""
    from my_federation import clients

    torch.manual_seed(0)
    model = Net()
    rng = torch.Generator().manual_seed(0)
    with fdgpriv.record(folder) as wire:
        for round in range(ROUNDS):
            sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            uploads = []
            for name, (images, labels, _) in clients.items():
                wire.down(name, round, model=sent)
                model.load_state_dict(sent)
                shared_style = style(model, images)
                train(model, images, labels, round, rng)
                uploads.append({key: tensor.clone() for key, tensor in model.state_dict().items()})
                wire.up(name, round, model=uploads[-1], n=len(images), style=shared_style)
            mean = {key: torch.stack([upload[key].float() for upload in uploads]).mean(0) for key in sent}
            model.load_state_dict(mean)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
