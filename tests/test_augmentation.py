"""Random changes of training images: the parameters' distributions and the pixels are torchvision's, the draws are ours."""

import math
from importlib import import_module
from typing import Any

import pytest
import torch
from factories import seeded
from scipy import stats
from torch import Tensor

from fdgpriv.data.dataset import ClientData
from fdgpriv.method import Method
from fdgpriv.utils.torchvision_import import torchvision

shared: Any = import_module("fdgpriv.methods._augmentation")
jitters: Any = import_module("fdgpriv.methods._colour_jitter")
federation: Any = import_module("fdgpriv.methods._federation")
transforms = torchvision.transforms
SURE = 1e-3
SIDE = 48


def pictures(count: int, size: int = SIDE) -> Tensor:
    return torch.rand(count, 3, size, size, generator=seeded(5))


def data(images: Tensor, flip: bool = False, translate: float = 0.0) -> ClientData:
    labels = torch.zeros(len(images), dtype=torch.int64)
    return ClientData("client-0", images, labels, images[:0], labels[:0], 2, flip, translate)


@pytest.mark.parametrize("least", [0.7, 0.8])
def test_crops_are_distributed_as_torchvisions(least: float) -> None:
    boxes = shared.crop_boxes(3000, SIDE, least, seeded(0))
    image = torch.zeros(3, SIDE, SIDE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        theirs = torch.tensor(
            [transforms.RandomResizedCrop.get_params(image, [least, 1.0], [3 / 4, 4 / 3]) for _ in range(3000)]
        )
    for ours, their in zip(boxes.T.tolist(), theirs.T.tolist(), strict=True):  # top, left, height, width
        assert stats.ks_2samp(ours, their).pvalue > SURE
        assert (min(ours), max(ours)) == (pytest.approx(min(their), abs=1), pytest.approx(max(their), abs=1))
    top, left, height, width = boxes.T
    assert bool(((top >= 0) & (left >= 0) & (top + height <= SIDE) & (left + width <= SIDE)).all())
    area = (height * width) / SIDE**2
    assert least - 0.03 < float(area.min()) < float(area.max()) <= 1
    assert 3 / 4 - 0.03 < float((width / height).min()) < float((width / height).max()) < 4 / 3 + 0.03


def test_a_crop_that_never_fits_is_the_whole_image() -> None:
    """At one pixel a crop of at least half the area and one that is wider than high round to the pixel, or do not fit."""
    assert set(map(tuple, shared.crop_boxes(50, 1, 0.5, seeded(0)).tolist())) == {(0, 0, 1, 1)}


def test_colours_change_as_torchvision_s() -> None:
    rng = seeded(0)
    drawn = [jitters.jitter(0.3, rng) for _ in range(2000)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        theirs = [transforms.ColorJitter.get_params([0.7, 1.3], [0.7, 1.3], [0.7, 1.3], [-0.3, 0.3]) for _ in drawn]
    for which in range(4):
        ours, their = [factors[which] for _, factors in drawn], [float(params[1 + which]) for params in theirs]
        assert stats.ks_2samp(ours, their).pvalue > SURE
        places = [order.index(which) for order, _ in drawn]
        assert stats.chisquare([places.count(place) for place in range(4)]).pvalue > SURE
    assert all(sorted(order) == [0, 1, 2, 3] for order, _ in drawn)


def test_pixels_are_torchvision_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image of a batch has its own crop, flip, colours and grey, in the order of drawing."""
    images = pictures(40)
    images[0] = 0.25  # no hue
    images[1, :, :2] = torch.tensor([0.5, 0.5, 0.25])[:, None, None]  # two colours that are largest
    made = shared.Crops(0.7, 0.3, 0.1)(images, True, seeded(6))
    rng = seeded(6)
    boxes = shared.crop_boxes(40, SIDE, 0.7, rng).tolist()
    flips = torch.rand(40, generator=rng) < 0.5
    greys = []
    for one, image, box, flipped in zip(made, images, boxes, flips, strict=True):
        order, factors = jitters.jitter(0.3, rng)
        greys.append(float(torch.rand((), generator=rng)) < 0.1)
        monkeypatch.setattr(transforms.RandomResizedCrop, "get_params", lambda *_, box=box: box)
        drawn = (torch.tensor(order), *factors)
        monkeypatch.setattr(transforms.ColorJitter, "get_params", lambda *_, drawn=drawn: drawn)
        theirs = transforms.RandomResizedCrop(SIDE, scale=(0.7, 1.0))(image)
        theirs = transforms.ColorJitter(0.3, 0.3, 0.3, 0.3)(theirs.flip(2) if flipped else theirs)
        theirs = transforms.functional.rgb_to_grayscale(theirs, 3) if greys[-1] else theirs
        torch.testing.assert_close(one, theirs, atol=2e-5, rtol=1e-5)
    assert 0 < sum(greys) < 40


def test_one_in_ten_is_grey_and_half_are_flipped() -> None:
    images = pictures(1, 8).expand(600, -1, -1, -1)
    whole = shared.Crops(1.0, grey=0.1)  # crops of area 1 that fit are the whole image
    made = whole(images, True, seeded(3))
    grey = (made[:, 0] == made[:, 1]).flatten(1).all(1)
    assert stats.binomtest(int(grey.sum()), 600, 0.1).pvalue > SURE
    same, mirrored = (((made - one).abs() < 1e-5).flatten(1).all(1) for one in (images, images.flip(3)))
    assert bool((same | mirrored | grey).all())
    assert stats.binomtest(int(mirrored.sum()), int((~grey).sum()), 0.5).pvalue > SURE
    assert bool(((whole(images, False, seeded(3)) - images.flip(3)).abs() > 0.01).flatten(1).any(1).all())


@pytest.mark.parametrize("how", [*shared.AUGMENTATIONS])
def test_changes_leave_the_originals(how: str) -> None:
    images = pictures(6, 16)
    before, world = images.clone(), torch.get_rng_state()
    held = data(images, flip=True, translate=0.2)
    first, again, other = (shared.augmented(images, held, how, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), world)
    assert torch.equal(first, again)
    assert torch.equal(first, other) is (how == "none")
    assert first.shape == images.shape
    assert 0 <= float(first.min()) <= float(first.max()) <= 1 + 1e-6


def test_clients_train_on_changed_images() -> None:
    held = data(pictures(8, 16))
    for how in shared.AUGMENTATIONS:
        method = Method.named("fedavg").configured({"image_changes": how, "batch_size": 8, "local_epochs": 1})
        (batch,) = federation.mini_batches(held, method, seeded(4))
        rng = seeded(4)
        index = torch.randperm(8, generator=rng)
        assert torch.equal(batch.images, shared.augmented(held.images[index], held, how, rng))
        assert torch.equal(batch.images, held.images[index]) is (how in ("none", "flip_translate"))  # it allows neither


def test_the_papers_changes_have_their_published_numbers() -> None:
    """The transforms of CCST's, LSI's and FedDG-GA's released codes; PARDON's, for PACS, and FedSR's are LSI's."""
    crop, colour = shared.AUGMENTATIONS["crop"], shared.AUGMENTATIONS["crop_colour"]
    assert (crop.min_area, crop.colour, crop.grey) == (0.8, 0.0, 0.0)
    assert (colour.min_area, colour.colour, colour.grey) == (0.7, 0.3, 0.1)
    strong = shared.AUGMENTATIONS["crop_strong_colour"]
    assert (strong.min_area, strong.colour, strong.grey) == (0.7, 0.4, 0.1)
    assert math.isclose(transforms.RandomGrayscale().p, 0.1)
