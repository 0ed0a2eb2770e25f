"""RSC: which features and which images are muted, against plain loops, and the loss that is left."""

import math

import pytest
import torch
from factories import SURE, Build, federation, held, network, seeded, small
from scipy import stats
from torch import Tensor, nn

from fdgpriv.federation.local_training import Batch
from fdgpriv.models.backbone import Backbone, Classifier

BUILD = network(1, 2)


def plain_mask(
    model: Classifier, features: Tensor, labels: Tensor, positions: bool, muted: int, challenged: int
) -> Tensor:
    """The mask (B, C, H, W), image by image and number by number; the head is linear after a mean over positions.

    Muted are so many positions or channels, in so many images at most.
    """
    batch, channels, height, width = features.shape
    weight, bias = model.head.weight.detach(), model.head.bias.detach()

    def confidence(image: Tensor, label: int) -> float:
        logits = [float(weight[k] @ image.mean((1, 2)) + bias[k]) for k in range(len(weight))]
        return math.exp(logits[label]) / sum(map(math.exp, logits))

    features = features.detach()
    masks, drops = torch.ones_like(features), []
    for b in range(batch):
        label = int(labels[b])
        slope = [float(weight[label, c]) / (height * width) for c in range(channels)]
        if positions:
            scores = {
                (h, w): sum(slope[c] * float(features[b, c, h, w]) for c in range(channels))
                for h in range(height)
                for w in range(width)
            }
            for h, w in sorted(scores, key=lambda place: -scores[place])[:muted]:
                masks[b, :, h, w] = 0
        else:
            for c in sorted(range(channels), key=lambda c: -slope[c])[:muted]:
                masks[b, c] = 0
        drops.append(confidence(features[b], label) - confidence(features[b] * masks[b], label))
    chosen = [b for b in sorted(range(batch), key=lambda b: -drops[b])[:challenged] if drops[b] > 1e-4]
    for b in range(batch):
        if b not in chosen:
            masks[b] = 1
    return masks


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize(
    ("muted", "places", "channels", "challenged", "images"),
    [(1 / 3, 3, 2, 1 / 3, 3), (0.5, 5, 2, 0.8, 7), (0.3, 3, 2, 1.0, 9), (0.0, 0, 0, 1.0, 9), (1.0, 8, 3, 1.0, 9)],
)
def test_the_mask_is_the_plain_loops(
    positions: bool, muted: float, places: int, channels: int, challenged: float, images: int, rng: torch.Generator
) -> None:
    """Of 9 positions and 4 channels: numbers are rounded up, and at least one is left."""
    method = small("rsc", muted=muted, muted_channels=muted, challenged=challenged)
    model = method.model(federation(2, build=BUILD), seeded(0))
    features, labels = torch.randn(9, 4, 3, 3, generator=rng), torch.randint(3, (9,), generator=rng)
    mask = method.mask(model, features, labels, positions)
    expected = plain_mask(model, features, labels, positions, places if positions else channels, images)
    assert torch.equal(mask.expand_as(features), expected)


def test_shares_are_those_of_the_released_code() -> None:
    """Of ResNet-18's 7 x 7 positions and 512 channels: ceil(49 / 3) and ceil(512 / 3.2); none where confidence stays."""
    method, channels = small("rsc", challenged=1.0), 512
    model = Classifier(wide(channels)(seeded(0)), 3, seeded(1))
    features, labels = torch.rand(6, channels, 7, 7, generator=seeded(2)), torch.tensor([0, 1, 2, 0, 1, 2])
    for positions, muted in ((True, 17), (False, 160)):
        mask = method.mask(model, features, labels, positions).flatten(1)
        counts = (mask == 0).sum(1).tolist()
        assert set(counts) <= {0, muted}
        assert muted in counts
    sure = torch.zeros(6, channels, 7, 7)  # nothing can drop
    assert bool(method.mask(model, sure, labels, True).all())


def wide(channels: int) -> Build:
    """A backbone whose one stage gives so many channels."""

    def build(rng: torch.Generator) -> Backbone:
        stage = nn.Sequential(nn.Conv2d(3, channels, 3, 1, 1))
        return Backbone({"layer1": stage}, {"layer1": channels}, (0.5,) * 3, (0.5,) * 3)

    return build


def test_the_loss_is_that_of_masked_features(monkeypatch: pytest.MonkeyPatch) -> None:
    method, data, seen = small("rsc"), held("client-0", 9), list[bool]()
    model = method.model(federation(2, build=BUILD), seeded(0)).eval()
    mask = type(method).mask

    def noted(self: object, model: Classifier, features: Tensor, labels: Tensor, positions: bool) -> Tensor:
        seen.append(positions)
        return mask(self, model, features, labels, positions)

    monkeypatch.setattr(type(method), "mask", noted)
    batch, generator = Batch(torch.arange(9), data.images, data.labels), seeded(2)
    losses = [method.loss(model, batch, generator) for _ in range(100)]
    assert stats.binomtest(sum(seen), 100, 0.5).pvalue > SURE
    features = model.backbone(data.images)
    for positions in (True, False):
        muted = math.ceil(features[0, 0].numel() / 3) if positions else math.ceil(features.shape[1] / 3.2)
        masked = features * plain_mask(model, features, data.labels, positions, muted, 3)
        logits = masked.mean((2, 3)) @ model.head.weight.T + model.head.bias
        expected = -sum(logits[b].log_softmax(0)[data.labels[b]] for b in range(9)) / 9
        loss = losses[seen.index(positions)]
        torch.testing.assert_close(loss, expected)
        gradients = [
            torch.autograd.grad(value, list(model.parameters()), retain_graph=True) for value in (loss, expected)
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_maps_of_one_position_keep_it() -> None:
    method = small("rsc")
    model = method.model(federation(2, build=BUILD), seeded(0))
    mask = method.mask(model, torch.randn(6, 4, 1, 1, generator=seeded(1)), torch.zeros(6, dtype=torch.int64), True)
    assert bool(mask.all())
