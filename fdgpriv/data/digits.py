"""The built-in digits dataset: four domains made from data of scikit-learn and matplotlib, without download.

The scans are the UCI optical digits (Alpaydin and Kaynak, 1998); `blend` follows MNIST-M and `type` follows SYN
(Ganin and Lempitsky, ICML 2015).
"""

import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Generator, Tensor
from torch.nn import functional as F

from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.data.typeset import typeset
from fdgpriv.utils.seeds import generator

SIDE = 32
CLASSES = tuple("0123456789")
TYPE_PER_CLASS = 60

ABOUT = (
    "Real handwritten digits (the 1,797 UCI scans that scikit-learn carries) and rendered type as four domains of "
    "32 x 32 RGB: `scan` (the scans as they are), `blend` (scans blended with patches of two photographs, as MNIST-M "
    "is), `type` (digits set in matplotlib's fonts, with colour, rotation and clutter), `outline` (contours of scans). "
    "No scan serves two domains."
)
LIMITS = (
    "Small and made here: about 600 images a domain, scans of 8 x 8 pixels enlarged, domains that differ by a recipe of "
    "ours. It shows that a pipeline works and ranks methods, attacks and defenses on equal terms; its accuracies do not "
    "compare with published ones, and leakage of larger natural images may differ in both directions. Each of the "
    "13 writers appears in several domains, so nothing here measures the privacy of a writer."
)


def digits(seed: int = 0, image_size: int = SIDE) -> Dataset:
    """The four domains, images (N, 3, S, S) with S = `image_size`; the same for the same seed."""
    bunch = load_digits()
    scans = torch.from_numpy(bunch.images).float()[:, None] / 16
    labels = torch.from_numpy(bunch.target).long()
    thirds = stratified_parts(labels, 3, generator(seed, 0))
    type_labels = torch.arange(len(CLASSES)).repeat(TYPE_PER_CLASS)
    made = {
        "scan": (scan(scans[thirds[0]]), labels[thirds[0]]),
        "blend": (blend(scans[thirds[1]], generator(seed, 1)), labels[thirds[1]]),
        "type": (typeset(type_labels, SIDE, generator(seed, 2)), type_labels),
        "outline": (outline(scans[thirds[2]]), labels[thirds[2]]),
    }
    domains = tuple(Domain(name, _finished(images, image_size), truth) for name, (images, truth) in made.items())
    return Dataset("digits", CLASSES, domains, "blend", ABOUT, LIMITS, flip=False, translate=2 / SIDE)


def stratified_parts(labels: Tensor, parts: int, rng: Generator) -> list[Tensor]:
    """Splits `labels` (N,) into disjoint sorted index sets whose counts of each class differ by at most one."""
    part = torch.empty_like(labels)
    for k in range(int(labels.max()) + 1):
        members = (labels == k).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=rng)
        part[members[order]] = (torch.arange(len(members)) + k) % parts
    return [(part == p).nonzero()[:, 0] for p in range(parts)]


def scan(scans: Tensor) -> Tensor:
    """Images (N, 3, 32, 32) of scans (N, 1, 8, 8), ink in [0, 1]: low contrast on grey, nearest-neighbour upsampling."""
    ink = F.interpolate(scans, size=(SIDE, SIDE), mode="nearest")
    return (0.75 - 0.35 * ink).expand(-1, 3, -1, -1)


def blend(scans: Tensor, rng: Generator) -> Tensor:
    """Images |photograph patch - ink| (N, 3, 32, 32) of scans (N, 1, 8, 8).

    The photographs are lightened so that ink is always darker than the background.
    """
    photographs = [torch.from_numpy(photo.copy()).permute(2, 0, 1) / 255 for photo in load_sample_images().images]
    patches = []
    for _ in range(len(scans)):
        photo = photographs[_below(len(photographs), rng)]
        top, left = _below(photo.shape[1] - SIDE, rng), _below(photo.shape[2] - SIDE, rng)
        patches.append(photo[:, top : top + SIDE, left : left + SIDE])
    ink = torch.sigmoid(10 * (_enlarged(scans) - 0.5))
    return (0.58 + 0.42 * torch.stack(patches) - ink).abs()


def outline(scans: Tensor) -> Tensor:
    """Contour drawings with light shading (N, 3, 32, 32) of scans (N, 1, 8, 8).

    The distance of a pixel to the contour is, to first order, |ink - level| / |gradient of ink|.
    """
    ink = F.avg_pool2d(F.pad(_enlarged(scans), (1,) * 4, mode="replicate"), 3, stride=1)
    down, right = torch.gradient(ink, dim=(2, 3))
    distance = (ink - 0.45).abs() / (down.square() + right.square()).sqrt().clamp_min(0.02)
    line = (1.5 - distance).clamp(0, 1)
    shade = 0.15 * (ink > 0.45)
    return (0.86 - torch.maximum(0.76 * line, shade)).expand(-1, 3, -1, -1)


def _enlarged(scans: Tensor) -> Tensor:
    """Scans (N, 1, 8, 8) upsampled bicubically to (N, 1, 32, 32) in [0, 1], with a margin of two pixels."""
    ink = F.interpolate(scans, size=(SIDE - 4, SIDE - 4), mode="bicubic", align_corners=False)
    return F.pad(ink, (2,) * 4).clamp(0, 1)


def _finished(images: Tensor, image_size: int) -> Tensor:
    """Images resized to the side `image_size` and rounded to uint8."""
    if image_size != SIDE:
        images = F.interpolate(images, size=(image_size, image_size), mode="bicubic", antialias=True)
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def _below(end: int, rng: Generator) -> int:
    return int(torch.randint(end, (), generator=rng))
