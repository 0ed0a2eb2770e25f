"""Reads labelled images that a user gives as tensors, arrays, folders, or datasets of torch or of Hugging Face."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fdgpriv.data.images import SUFFIXES, decoded

FORMS = "(images, labels), a folder with a folder of each class, or a dataset of torch or Hugging Face"
_IMAGE_COLUMNS, _LABEL_COLUMNS = ("image", "img", "pixel_values"), ("label", "labels", "target")


class GivenImages(NamedTuple):
    """Labelled images in the user's form.

    Attributes:
        pixels: (N, C, H, W), uint8 in 0 to 255 or float32 in [0, 1], with C = 1 or 3.
        labels: (N,) int64; indices into `classes` where these are not empty.
        classes: Names of the classes of a folder; empty otherwise.
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...] = ()


def given_images(given: Any, name: str, image_size: int | None) -> GivenImages:
    """The images of `given`.

    Args:
        given: See `FORMS`.
        name: The name of these images in error messages.
        image_size: Side of a folder's images, in pixels.

    Raises:
        ValueError: It has another form, or values outside [0, 1], as normalised images have.
    """
    if isinstance(given, str | Path):
        return _folder_images(Path(given), name, image_size)
    if isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[0], tuple | list | Mapping):
        images, labels = given
    elif hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, Tensor | np.ndarray):
        images, labels = _dataset_images(given, name)
    else:
        raise ValueError(f"{name}: want {FORMS}; got {type(given).__name__}")
    pixels, numbers = _pixels(images, name), _labels(labels, name)
    if len(pixels) != len(numbers):
        raise ValueError(f"{name}: want a label for each image, got {len(numbers)} labels of {len(pixels)} images")
    return GivenImages(pixels, numbers)


def _folder_images(folder: Path, name: str, image_size: int | None) -> GivenImages:
    """The images of FOLDER/<class>/*, each stretched to a square."""
    if not folder.is_dir():
        raise ValueError(f"{name}: want a folder with a folder of each class, got {folder}")
    if image_size is None:
        raise ValueError(f"{name}: want image_size=, the side in pixels, with a folder; got none")
    classes = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")))
    files = [
        (path, label)
        for label, class_name in enumerate(classes)
        for path in sorted((folder / class_name).iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise ValueError(f"{name}: want images in {folder}/<class>/, got none")
    pixels = torch.from_numpy(np.stack(list(decoded([path for path, _ in files], image_size)))).permute(0, 3, 1, 2)
    return GivenImages(pixels.contiguous(), torch.tensor([label for _, label in files]), classes)


def _dataset_images(dataset: Any, name: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """The images and labels of a dataset whose items are pairs, or rows with an image and a label by name."""
    images, labels = [], []
    for i in range(len(dataset)):
        item = dataset[i]
        if isinstance(item, Mapping):
            columns = [next((key for key in known if key in item), None) for known in (_IMAGE_COLUMNS, _LABEL_COLUMNS)]
            if None in columns:
                raise ValueError(
                    f"{name}: want rows with {' or '.join(_IMAGE_COLUMNS)} and {' or '.join(_LABEL_COLUMNS)}, "
                    f"got {', '.join(map(str, item))}"
                )
            image, label = (item[key] for key in columns)
        elif isinstance(item, tuple | list) and len(item) >= 2:
            image, label = item[:2]
        else:
            raise ValueError(f"{name}: want items (image, label) or rows by name, got {type(item).__name__}")
        images.append(image)
        labels.append(label)
    return images, labels


def _pixels(images: Any, name: str) -> Tensor:
    """The images (N, C, H, W), uint8 or float32 in [0, 1]."""
    try:
        if isinstance(images, Tensor | np.ndarray):
            pixels = torch.as_tensor(images)
        else:
            arrays = [image if isinstance(image, Tensor) else torch.from_numpy(np.array(image)) for image in images]
            pixels = torch.stack(arrays)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: want images of one size, got: {error}") from None
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels
    if pixels.ndim == 4 and pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or pixels.shape[2] != pixels.shape[3]:
        raise ValueError(f"{name}: want square images (N, 3, S, S) or (N, 1, S, S), got {tuple(pixels.shape)}")
    if pixels.dtype == torch.uint8:
        return pixels.contiguous()
    pixels = pixels.float().contiguous()
    if len(pixels) and not (float(pixels.min()) >= 0 and float(pixels.max()) <= 1):
        raise ValueError(
            f"{name}: want images in [0, 1], or uint8, before they are normalised (give normalize=, what the network is "
            f"fed with), got values from {float(pixels.min()):.3g} to {float(pixels.max()):.3g}"
        )
    return pixels


def _labels(labels: Any, name: str) -> Tensor:
    """The labels (N,) int64."""
    numbers = torch.as_tensor(labels if isinstance(labels, Tensor | np.ndarray) else [int(label) for label in labels])
    if numbers.ndim != 1 or numbers.is_floating_point():
        raise ValueError(f"{name}: want labels (N,) of whole numbers, got {tuple(numbers.shape)} {numbers.dtype}")
    return numbers.long()


def with_common_classes(given: Mapping[str, GivenImages]) -> tuple[dict[str, GivenImages], tuple[str, ...]]:
    """The images with labels as indices into the classes of all folders, and the names of these classes.

    Images that are not in folders are returned unchanged, with no class names.

    Raises:
        ValueError: Only a part of the images is in folders.
    """
    named = [name for name, images in given.items() if images.classes]
    if not named:
        return dict(given), ()
    if len(named) < len(given):
        other = next(name for name in given if name not in named)
        raise ValueError(f"want all images in folders, or none; got a folder for {named[0]} and none for {other}")
    classes = tuple(sorted({class_name for images in given.values() for class_name in images.classes}))
    return {
        name: images._replace(labels=torch.tensor([classes.index(c) for c in images.classes])[images.labels])
        for name, images in given.items()
    }, classes


def in_three_channels(images: Iterable[GivenImages]) -> list[GivenImages]:
    """The images with grey levels repeated in three channels."""
    return [part._replace(pixels=part.pixels.expand(-1, 3, -1, -1).contiguous()) for part in images]
