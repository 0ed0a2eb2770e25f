"""Reads labelled images that a user gives as tensors, arrays, folders, or datasets of torch or of Hugging Face."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fdgpriv.data.folder import by_name, entries, image_files
from fdgpriv.data.images import as_seen, decoded, stretched
from fdgpriv.data.splits import check_no_splits
from fdgpriv.data.unread import OUTSIDE, Unread
from fdgpriv.external.given_labels import given_labels
from fdgpriv.utils.failures import one_line
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.user_names import check_case

FORMS = "(images, labels), a folder with a folder of each class, or a dataset of torch or Hugging Face"
_IMAGE_COLUMNS, _LABEL_COLUMNS = ("image", "img", "pixel_values"), ("label", "labels", "target")
_LABEL = str | int | float | np.generic
_TWICE_DIVIDED = 1.001 / 255  # the largest value of images that are divided by 255 twice


class GivenImages(NamedTuple):
    """Labelled images in the user's form.

    Attributes:
        pixels: (N, C, H, W), uint8 in 0 to 255 or float32 in [0, 1], with C = 1 or 3.
        labels: (N,) int64; indices into `classes` where these are not empty.
        classes: Names of the classes of a folder, or of labels that are words; empty otherwise.
        unread: What a folder has besides, counted by reason; empty if everything is read.
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...] = ()
    unread: str = ""


def given_images(given: Any, name: str, image_size: int | None) -> GivenImages:
    """The images of `given`.

    Args:
        given: See `FORMS`.
        name: The name of these images in error messages.
        image_size: Side of the images of folders and files, and of images that Pillow decoded, in pixels.

    Raises:
        ValueError: It has another form, or values outside [0, 1], as normalised images have.
    """
    if isinstance(given, str | Path):
        return _folder_images(Path(given).expanduser(), name, image_size)
    if isinstance(given, tuple | list) and len(given) == 2 and not _is_item(given[0]):
        images, labels = given
    elif isinstance(given, Mapping):
        images, labels = _columns(given, name)
    elif hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, Tensor | np.ndarray):
        images, labels = _dataset_images(given, name)
    else:
        raise ValueError(f"{name}: want {FORMS}; got {type(given).__name__}")
    pixels, (numbers, classes) = _pixels(images, name, image_size), given_labels(labels, name)
    if len(pixels) != len(numbers):
        raise ValueError(f"{name}: want a label for each image, got {len(numbers)} labels of {len(pixels)} images")
    return GivenImages(pixels, numbers, classes)


def _is_item(value: Any) -> bool:
    """Whether this is an image with its label, not several images."""
    if not isinstance(value, tuple | list) or len(value) < 2:
        return isinstance(value, Mapping)
    label = value[1].ndim == 0 if isinstance(value[1], Tensor | np.ndarray) else isinstance(value[1], _LABEL)
    return label and not isinstance(value[0], _LABEL | Path)


def _folder_images(folder: Path, name: str, image_size: int | None) -> GivenImages:
    """The images of FOLDER/<class>/*, each stretched to a square, as `fdgpriv.data.folder` reads them."""
    if not folder.is_dir():
        raise ValueError(f"{name}: want a folder with a folder of each class, got {folder}")
    if image_size is None:
        raise ValueError(f"{name}: want image_size=, the side in pixels, with a folder; got none")
    unread = Unread(folder)
    inside = entries(folder, unread)
    unread.add(OUTSIDE, inside.files)
    for place in inside.folders:
        check_name(place.name, str(folder))
    by_class = by_name(inside.folders)
    check_no_splits(by_class, folder, "a folder of each class")
    files = [
        (path, label)
        for label, places in enumerate(by_class.values())
        for place in places
        for path in image_files(place, unread)
    ]
    if not files:
        raise ValueError(f"{name}: want images in {folder}/<class>/, got none")
    pixels = _files_pixels([path for path, _ in files], name, image_size)
    return GivenImages(
        pixels, torch.tensor([label for _, label in files]), tuple(by_class), unread.summary(examples=True)
    )


def _files_pixels(paths: Sequence[Path], name: str, image_size: int | None) -> Tensor:
    """The images (N, 3, S, S) uint8 of these files."""
    if image_size is None:
        raise ValueError(f"{name}: want image_size=, the side in pixels, with files of images; got none")
    return torch.from_numpy(np.stack(list(decoded(paths, image_size)))).permute(0, 3, 1, 2).contiguous()


def _dataset_images(dataset: Any, name: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """The images and labels of a dataset whose items are pairs, or rows with an image and a label by name."""
    images, labels = [], []
    for i in range(len(dataset)):
        try:
            item = dataset[i]
        except Exception as error:
            raise ValueError(
                f"{name}: want a dataset whose items can be read, got {one_line(error)} of item {i}"
            ) from error
        if isinstance(item, Mapping):
            image, label = _columns(item, name)
        elif isinstance(item, tuple | list) and len(item) >= 2:
            image, label = item[:2]
        else:
            raise ValueError(f"{name}: want items (image, label) or rows by name, got {type(item).__name__}")
        images.append(image)
        labels.append(label)
    return images, labels


def _columns(row: Mapping[str, Any], name: str) -> list[Any]:
    """The image and the label of a row, or the images and labels of a table."""
    columns = [next((key for key in known if key in row), None) for known in (_IMAGE_COLUMNS, _LABEL_COLUMNS)]
    if None in columns:
        raise ValueError(
            f"{name}: want rows with {' or '.join(_IMAGE_COLUMNS)} and {' or '.join(_LABEL_COLUMNS)}, "
            f"got {', '.join(map(str, row))}"
        )
    return [row[key] for key in columns if key is not None]


def _pixels(images: Any, name: str, image_size: int | None) -> Tensor:
    """The images (N, C, H, W), uint8 or float32 in [0, 1]."""
    if not isinstance(images, Tensor | np.ndarray):
        if not (images := list(images)):
            raise ValueError(f"{name}: want images, got none")
        if all(isinstance(image, str | Path) for image in images):
            return _files_pixels([Path(image).expanduser() for image in images], name, image_size)
        if all(isinstance(image, Image.Image) for image in images):
            images = _decoded_pixels(images, name, image_size)
    try:
        pixels = _array(images) if isinstance(images, Tensor | np.ndarray) else torch.stack(list(map(_array, images)))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: want images of one size, got: {str(error).splitlines()[0]}") from None
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels
    if pixels.ndim == 4 and pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or pixels.shape[2] != pixels.shape[3]:
        raise ValueError(f"{name}: want square images (N, 3, S, S) or (N, 1, S, S), got {tuple(pixels.shape)}")
    if pixels.is_complex():
        raise ValueError(f"{name}: want images of real numbers, got {pixels.dtype}")
    is_stored = pixels.dtype == torch.uint8
    pixels = pixels.contiguous() if is_stored else pixels.float().contiguous()
    if len(pixels):
        _check_range(pixels, name)
    return pixels


def _decoded_pixels(images: Sequence[Image.Image], name: str, image_size: int | None) -> Tensor:
    """Images of Pillow as viewers show them (N, C, H, W): grey, with C = 1, if none has colours."""
    channels = 1 if all(image.mode in ("1", "L") or image.mode[0] in "IF" for image in images) else 3
    arrays = []
    for i, image in enumerate(images):
        try:
            seen = as_seen(image)
        except (ValueError, OSError) as error:
            raise ValueError(f"{name}: want readable images, got {error} in image {i}") from None
        arrays.append(torch.from_numpy(np.array(seen) if image_size is None else stretched(seen, image_size).copy()))
    if len(sizes := dict.fromkeys(image.shape[:2] for image in arrays)) > 1:
        shapes = " and ".join(f"{height} x {width}" for height, width in list(sizes)[:2])
        raise ValueError(f"{name}: want images of one size, or image_size=, the side in pixels; got {shapes}")
    return torch.stack(arrays).permute(0, 3, 1, 2)[:, :channels]


def _array(image: Any) -> Tensor:
    """The values of a tensor, of an array, or of what numpy takes for one, on the CPU and in this machine's byte order."""
    if isinstance(image, Tensor):
        return image.detach().to_dense().cpu() if image.layout is not torch.strided else image.detach().cpu()
    values = np.array(as_seen(image)) if isinstance(image, Image.Image) else np.asarray(image)
    return torch.from_numpy(np.array(values, dtype=values.dtype.newbyteorder("="), order="C"))


def _check_range(pixels: Tensor, name: str) -> None:
    """Raises ValueError unless these are levels in 0 to 255, or floats in [0, 1], that are not all near black."""
    low, high = float(pixels.min()), float(pixels.max())
    if pixels.dtype == torch.uint8:
        if 0 < high <= 1:
            raise ValueError(f"{name}: want uint8 images in 0 to 255, got values from {low:g} to {high:g}")
        return
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"{name}: want images in [0, 1], or uint8, before they are normalised (give normalize=, what the network is "
            f"fed with), got values from {low:.3g} to {high:.3g}"
        )
    if 0 < high <= _TWICE_DIVIDED:
        raise ValueError(
            f"{name}: want images in [0, 1], got values up to {high:.3g} only, as of images that are divided by 255 twice"
        )


def with_common_classes(given: Mapping[str, GivenImages]) -> tuple[dict[str, GivenImages], tuple[str, ...]]:
    """The images with labels as indices into the classes of all parts, and the names of these classes.

    Images whose labels are numbers are returned unchanged, with no class names.

    Raises:
        ValueError: Only a part of the images has names of classes, or two classes that are in no part together differ by
            upper and lower case only.
    """
    named = [name for name, images in given.items() if images.classes]
    if not named:
        return dict(given), ()
    if len(named) < len(given):
        other = next(name for name in given if name not in named)
        raise ValueError(
            f"want all images in folders, or with names of classes as labels, or none; got names for {named[0]} and none "
            f"for {other}"
        )
    by_part = [set(images.classes) for images in given.values()]
    classes = tuple(sorted(set().union(*by_part)))
    check_case(classes, "classes", by_part)
    return {
        name: images._replace(labels=torch.tensor([classes.index(c) for c in images.classes])[images.labels])
        for name, images in given.items()
    }, classes


def in_three_channels(images: Iterable[GivenImages]) -> list[GivenImages]:
    """The images with grey levels repeated in three channels."""
    return [part._replace(pixels=part.pixels.expand(-1, 3, -1, -1).contiguous()) for part in images]
