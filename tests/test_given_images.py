"""Images and labels of a recorded training in the forms that users give: read as folders are read, or refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from factories import refused
from PIL import Image

from fdgpriv.data import load
from fdgpriv.external.given_images import GivenImages, given_images, with_common_classes
from fdgpriv.external.given_labels import given_labels
from fdgpriv.external.recorded_population import given_federation, recorded_population

SIDE = 8
COLOUR = (200, 100, 50)
LEVELS = torch.arange(3 * SIDE * SIDE).reshape(3, SIDE, SIDE) % 256


def read(images: Any, labels: Any = (0, 1), image_size: int | None = None) -> GivenImages:
    return given_images((images, labels), "clients['a']", image_size)


def rows(*images: Image.Image) -> list[dict[str, Any]]:
    return [{"image": image, "label": i % 2} for i, image in enumerate(images)]


def flat(mode: str) -> Image.Image:
    """An image of one colour in this mode."""
    colour = Image.new("RGB", (SIDE, SIDE), COLOUR)
    if mode == "PA":
        return colour.convert("RGBA").convert("PA")
    return colour.quantize(4) if mode == "P" else colour.convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "P", "YCbCr", "HSV", "CMYK", "RGBA", "RGBX", "LAB"])
def test_decoded_images_are_seen_in_their_colours(mode: str) -> None:
    pixels = given_images(rows(flat(mode), flat(mode)), "clients['a']", None).pixels
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (2, 3, SIDE, SIDE)
    assert (pixels.int() - torch.tensor(COLOUR)[:, None, None]).abs().max() <= 5


def test_decoded_grey_images_have_one_channel_unless_others_have_colours() -> None:
    grey = Image.new("L", (SIDE, SIDE), 90)
    words = Image.fromarray(np.full((SIDE, SIDE), 40_000, np.uint16))
    white = Image.new("1", (SIDE, SIDE), 1)
    floats = Image.fromarray(np.full((SIDE, SIDE), 0.25, np.float32))
    pixels = given_images(rows(grey, words, white, floats), "clients['a']", None).pixels
    assert pixels[:, :, 0, 0].tolist() == [[90], [156], [255], [64]]
    mixed = given_images(rows(grey, flat("RGB")), "clients['a']", None).pixels
    assert mixed[:, :, 0, 0].tolist() == [[90] * 3, list(COLOUR)]


def test_decoded_images_are_upright_opaque_and_unchanged() -> None:
    stored = Image.fromarray(np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE))
    stored.getexif()[274] = 6  # turned by a quarter
    half = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 128))
    pixels = given_images(rows(stored, half), "clients['a']", None).pixels
    assert torch.equal(pixels[0, 0], torch.from_numpy(np.rot90(np.asarray(stored), -1).copy()))
    assert stored.getexif()[274] == 6
    assert pixels[1].unique().tolist() == [127]


def test_files_and_decoded_images_of_other_sizes_are_stretched_as_folders_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, size in enumerate(((20, 14), (9, 30))):
        path = tmp_path / "root" / "day" / "ab"[number] / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(rng.integers(0, 255, (*size, 3)).astype(np.uint8)).save(path)
    paths = sorted(tmp_path.rglob("*.png"))
    (tmp_path / "root" / "night").symlink_to(tmp_path / "root" / "day")
    folder = load("folder", root=tmp_path / "root", image_size=SIDE).domains[0]
    opened = [Image.open(path) for path in paths]
    for given in (tmp_path / "root" / "day", (paths, [0, 1]), (list(map(str, paths)), ["a", "b"]), rows(*opened)):
        assert torch.equal(given_images(given, "clients['a']", SIDE).pixels, folder.pixels)
    with refused(
        "clients\\['a'\\]: want images of one size, or image_size=, the side in pixels; got 20 x 14 and 9 x 30"
    ):
        given_images(rows(*opened), "clients['a']", None)
    with refused("want image_size=, the side in pixels, with files of images; got none"):
        read(paths)


BYTES = np.stack([LEVELS, LEVELS]).astype(np.uint8)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (BYTES, BYTES),
        (BYTES.transpose(0, 2, 3, 1), BYTES),
        (list(BYTES.transpose(0, 2, 3, 1)), BYTES),
        (BYTES[:, :, ::-1], BYTES[:, :, ::-1].copy()),
        (BYTES[:, 0], BYTES[:, :1]),
        (BYTES / 255, (BYTES / 255).astype(np.float32)),
        ((BYTES / 255).astype(">f4"), (BYTES / 255).astype(np.float32)),
        ((BYTES / 255).astype(np.float16), (BYTES / 255).astype(np.float16).astype(np.float32)),
        (torch.from_numpy(BYTES / 255).requires_grad_(), (BYTES / 255).astype(np.float32)),
        (BYTES > 99, (BYTES > 99).astype(np.float32)),
        (BYTES.tolist(), None),
        (BYTES.astype(np.int64), None),
        (BYTES.astype(np.uint16) * 257, None),
        (BYTES.astype(np.float32), None),
        (BYTES / 255 * 2 - 1, None),
        (BYTES / 255 / 255, None),
        (BYTES.clip(0, 1), None),
        (np.where(BYTES == 3, np.nan, BYTES / 255), None),
        (np.where(BYTES == 3, np.inf, BYTES / 255), None),
        (BYTES * 1j, None),
        (np.concatenate([BYTES, BYTES[:, :1]], 1), None),
        ([BYTES[0], BYTES[1, :, :4, :4]], None),
        ([BYTES[0], "word"], None),
        (BYTES[:, :, :, :4], None),
        (np.array([BYTES[0], None], dtype=object), None),
    ],
)
def test_arrays_are_read_or_refused_in_one_line(images: Any, expected: Any) -> None:
    if expected is None:
        with refused("^clients\\['a'\\]: want [^\n]*got[^\n]*$"):
            read(images)
        return
    pixels = read(images).pixels
    assert pixels.dtype in (torch.uint8, torch.float32)
    assert torch.equal(pixels, torch.from_numpy(expected))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 2, 1], [0, 2, 1]),
        (np.array([0, 2, 1], np.uint8), [0, 2, 1]),
        (np.array([0, 2, 1], ">i4"), [0, 2, 1]),
        (torch.tensor([0.0, 2.0, 1.0]), [0, 2, 1]),
        (np.array([[0], [2], [1]]), [0, 2, 1]),
        (torch.eye(3)[[0, 2, 1]], [0, 2, 1]),
        (np.eye(3, dtype=bool)[[0, 2, 1]], [0, 2, 1]),
        ([True, False, True], [1, 0, 1]),
        (["0", "10", " 2"], [0, 10, 2]),
        ([np.int64(0), torch.tensor(2), 1], [0, 2, 1]),
        (np.array([0, 2, 1], dtype=object), [0, 2, 1]),
        ([-1, 0, 1], [-1, 0, 1]),  # refused where the network's outputs are known
        ([0.5, 1, 2], None),
        ([float("nan"), 1, 2], None),
        (torch.tensor([[0.5, 0.5], [1, 0], [0, 1]]), None),
        (np.array([[1, 1], [1, 0], [0, 1]]), None),
        ([0, "cat", 1], None),
        ([None, 1, 2], None),
        ([[0], [1, 2], [3]], None),
        (["cat", "\u200b", "dog"], None),
        (["cat", "a\x1bb", "dog"], None),
        (3, None),
    ],
)
def test_labels_are_whole_numbers_one_hot_or_refused(labels: Any, expected: list[int] | None) -> None:
    if expected is None:
        with refused("^images[^\n]*: want [^\n]*got[^\n]*$"):
            given_labels(labels, "images")
        return
    numbers, classes = given_labels(labels, "images")
    assert (numbers.tolist(), numbers.dtype, classes) == (expected, torch.int64, ())


def test_labels_that_are_words_are_classes_as_folders_are(tmp_path: Path) -> None:
    numbers, classes = given_labels(np.array(["dog", "cat ", "cafe\u0301", b"dog".decode()]), "images")
    assert (numbers.tolist(), classes) == ([2, 1, 0, 2], ("caf\u00e9", "cat", "dog"))
    for name in ("cat", "owl"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (SIDE, SIDE), COLOUR).save(tmp_path / name / "0.png")
    given = {"a": read(BYTES, ["dog", "cat"]), "b": given_images(tmp_path, "b", SIDE)}
    joined, names = with_common_classes(given)
    assert names == ("cat", "dog", "owl")
    assert [part.labels.tolist() for part in joined.values()] == [[1, 0], [0, 2]]
    with refused(
        "want all images in folders, or with names of classes as labels, or none; got names for a and none for c"
    ):
        with_common_classes({**given, "c": read(BYTES)})
    with refused("classes: want names that differ by more than upper and lower case, got 'Dog' and 'dog'"):
        with_common_classes({**given, "c": read(BYTES, ["Dog", "owl"])})


class Broken:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        raise KeyError("lost")


def test_pairs_tables_and_datasets_are_told_apart() -> None:
    images = [torch.from_numpy(image) for image in BYTES]
    for given in (
        (BYTES, [0, 1]),
        [BYTES, [0, 1]],
        (images, (0, 1)),
        list(zip(images, (0, 1), strict=True)),
        tuple(zip(images, torch.arange(2), strict=True)),
        {"image": BYTES, "label": [0, 1]},
        [{"img": images[0], "target": 0}, {"img": images[1], "target": 1}],
    ):
        read_images = given_images(given, "clients['a']", None)
        assert torch.equal(read_images.pixels, torch.from_numpy(BYTES))
        assert read_images.labels.tolist() == [0, 1]
    for given, wanted in (
        ({"train": 3}, "want rows with image or img or pixel_values and label or labels or target, got train"),
        (Broken(), "want a dataset whose items can be read, got KeyError: 'lost'.* of item 0"),
        (([], []), "want images, got none"),
        (iter(images), "want \\(images, labels\\), a folder .*; got list_iterator"),
    ):
        with refused(f"clients\\['a'\\]: {wanted}"):
            given_images(given, "clients['a']", None)


def test_labels_outside_the_network_s_outputs_are_refused() -> None:
    for labels, got in (([-1, 0], "-1 to 0"), ([1, 2], "1 to 2")):
        with refused(f"a: want labels from 0 to 1, as the network has 2 outputs; got {got}"):
            recorded_population(given_federation({"a": (BYTES, labels)}, {}, None), 2, 0, 4)


def test_what_a_folder_has_besides_images_is_counted_and_said(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name / "more" / "deep").mkdir(parents=True)
        for place in (".", "more", "more/deep"):
            Image.new("RGB", (SIDE, SIDE), COLOUR).save(tmp_path / name / place / "0.png")
    for unread in ("__MACOSX/x", ".DS_Store", "cat/._0.png", "cat/Thumbs.db", "dog/desktop.ini", "readme.txt"):
        (tmp_path / unread).parent.mkdir(exist_ok=True)
        (tmp_path / unread).write_bytes(b"\0")
    (tmp_path / "empty").mkdir()
    given = given_images(tmp_path, "clients['a']", SIDE)
    assert (given.labels.tolist(), given.classes) == ([0, 1], ("cat", "dog", "empty"))
    for reason in (
        "hidden (names that begin with . or __MACOSX): 3",
        "files outside the folders of classes: 1, e.g. readme.txt",
        "folders inside the folders of classes: 2, e.g. cat/more",
        "images in folders inside the folders of classes: 4, e.g. cat/more/0.png",
        "files without the name of an image (.db, .ini): 2",
    ):
        assert reason in given.unread
    (note,) = given_federation({"a": tmp_path}, {}, SIDE).notes
    assert note == f"Not read of clients['a']: {given.unread}."
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    with refused("want a folder of each class in .*, got the splits train, val"):
        given_images(tmp_path, "clients['a']", SIDE)
