"""RSC: which features and which images are muted, against plain loops, and the loss that is left."""

import math

import pytest
import torch
from factories import SURE, federation, held, network, seeded, small
from scipy import stats
from torch import Tensor

from fdgpriv.federation.local_training import Batch
from fdgpriv.models.backbone import Classifier

BUILD = network(1, 2)


def plain_mask(
    model: Classifier, features: Tensor, labels: Tensor, positions: bool, muted: float, challenged: float
) -> Tensor:
    """The mask (B, C, H, W), image by image and number by number; the head is linear after a mean over positions."""
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
            for h, w in sorted(scores, key=lambda place: -scores[place])[: round(muted * height * width)]:
                masks[b, :, h, w] = 0
        else:
            for c in sorted(range(channels), key=lambda c: -slope[c])[: round(muted * channels)]:
                masks[b, c] = 0
        drops.append(confidence(features[b], label) - confidence(features[b] * masks[b], label))
    chosen = sorted(range(batch), key=lambda b: -drops[b])[: round(challenged * batch)]
    for b in range(batch):
        if b not in chosen:
            masks[b] = 1
    return masks


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize(("muted", "challenged"), [(1 / 3, 1 / 3), (0.5, 0.8), (0.0, 1.0), (1.0, 0.0)])
def test_the_mask_is_the_plain_loops(positions: bool, muted: float, challenged: float, rng: torch.Generator) -> None:
    method = small("rsc", muted=muted, challenged=challenged)
    model = method.model(federation(2, build=BUILD), seeded(0))
    features, labels = torch.randn(9, 4, 3, 3, generator=rng), torch.randint(3, (9,), generator=rng)
    mask = method.mask(model, features, labels, positions)
    expected = plain_mask(model, features, labels, positions, muted, challenged)
    assert torch.equal(mask.expand_as(features), expected)


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
        masked = features * plain_mask(model, features, data.labels, positions, 1 / 3, 1 / 3)
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
