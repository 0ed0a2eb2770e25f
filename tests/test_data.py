"""Datasets by name, and image folders: what is read, and that every fault is one line that names the file."""

import csv
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import refused
from PIL import Image

from fdgpriv.config import AuditConfig
from fdgpriv.data import load
from fdgpriv.data.dataset import Dataset, Domain, digest
from fdgpriv.data.names import DOMAINS
from fdgpriv.data.repeats import MOST_PAIRS, repeats

SIDE = 12
COLOURS = {"dog": (200, 40, 40), "cat": (40, 200, 40), "owl": (40, 40, 200)}


def picture(path: Path, colour: tuple[int, int, int] = (9, 99, 199), size: tuple[int, int] = (20, 14)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two domains of three classes: two PNG files each in one, one JPEG file each in the other."""
    for name, colour in COLOURS.items():
        picture(tmp_path / "data" / "night" / name / "b.png", colour)
        picture(tmp_path / "data" / "night" / name / "a.PNG", colour)
        picture(tmp_path / "data" / "day" / name / "c.jpg", colour)
    return tmp_path / "data"


def test_domains_and_classes_follow_the_folders(root: Path) -> None:
    dataset = load("folder", root=root, image_size=SIDE)
    assert dataset.names == ("day", "night")
    assert dataset.default_target == "night"
    assert dataset.classes == ("cat", "dog", "owl")
    assert dataset.flip
    night = dataset.domain("night")
    assert night.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert night.images.shape == (6, 3, SIDE, SIDE)
    assert night.images.is_contiguous()
    for image, label in zip(night.images, night.labels.tolist(), strict=True):
        expected = torch.tensor(COLOURS[dataset.classes[label]]) / 255
        assert torch.allclose(image, expected[:, None, None].expand_as(image), atol=1e-6)


def test_an_image_is_stretched_and_smoothed(root: Path) -> None:
    stripes = np.zeros((64, 32, 3), dtype=np.uint8)
    stripes[:, 16:] = 240
    stripes[::2] //= 2  # every second row half as bright: gone after antialiasing
    Image.fromarray(stripes).save(root / "day" / "cat" / "c.jpg", quality=100, subsampling=0)
    image = load("folder", root=root, image_size=8).domain("day").images[0]
    assert float(image[:, :, :3].max()) < 0.05
    assert torch.allclose(image[:, :, 5:], torch.tensor(180 / 255), atol=0.05)


def test_a_large_jpeg_is_read_like_the_same_png(root: Path) -> None:
    y, x = np.mgrid[0:400, 0:400]
    waves = (127 + 100 * np.sin(x / 40) * np.cos(y / 60))[..., None].repeat(3, 2).astype(np.uint8)
    Image.fromarray(waves).save(root / "day" / "cat" / "c.jpg", quality=95)
    Image.fromarray(waves).save(root / "night" / "cat" / "a.PNG")
    dataset = load("folder", root=root, image_size=24)
    assert float((dataset.domain("day").images[0] - dataset.domain("night").images[0]).abs().max()) < 0.03


def test_a_folder_has_the_digest_of_what_is_loaded(root: Path, tmp_path: Path) -> None:
    first = load("folder", root=root, image_size=SIDE)
    assert first.sha256 == digest(first.classes, first.domains)
    moved = root.rename(tmp_path / "elsewhere")
    assert load("folder", root=moved, image_size=SIDE).sha256 == first.sha256
    assert load("folder", root=moved, image_size=SIDE).few(1).sha256 == first.sha256
    others = {load("folder", root=moved, image_size=SIDE + 1).sha256}
    file = next((moved / "day" / "cat").iterdir())
    with Image.open(file) as image:
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).rotate(90).save(file)
    others.add(load("folder", root=moved, image_size=SIDE).sha256)
    assert len({first.sha256, *others}) == 3


def test_a_link_is_a_domain_and_progress_is_counted(root: Path, tmp_path: Path) -> None:
    (root / "day").rename(tmp_path / "elsewhere")
    (root / "day").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    told: list[tuple[int, int]] = []
    found = load("folder", root=root, image_size=SIDE, progress=lambda done, total: told.append((done, total)))
    assert found.names == ("day", "night")
    assert told == [(i + 1, 9) for i in range(9)]


def truncated(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def huge(path: Path) -> None:
    """A PNG file of a few bytes that declares 50,000 x 50,000 pixels."""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "gone.png")


FLOATS_ABOVE_1 = Image.fromarray(np.full((4, 4), 200, dtype=np.float32))


@pytest.mark.parametrize(
    "spoil",
    [
        *(truncated, huge, broken_link, Path.unlink, os.mkfifo),
        lambda path: path.write_bytes(bytes(range(256)) * 4),
        lambda path: Image.new("RGB", (4, 4)).save(path, format="TGA"),
        lambda path: Image.new("L", (10_000, 9_500)).save(path, format="PNG"),  # under Pillow's own limit, over ours
        lambda path: FLOATS_ABOVE_1.save(path, format="TIFF"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_file_that_is_no_image_is_named(spoil: Callable[[Path], None], root: Path) -> None:
    path = root / "day" / "dog" / "c.jpg"
    if spoil is os.mkfifo:
        path.unlink()
    spoil(path)
    with pytest.raises(ValueError, match=r"^want ") as caught:
        load("folder", root=root, image_size=SIDE)
    message = str(caught.value)
    assert str(path if spoil is not Path.unlink else path.parent) in message
    assert "\n" not in message
    assert caught.value.__cause__ is None


def test_a_wrong_root_is_named(root: Path) -> None:
    for place, told, error in (
        ("night", "ROOT/<domain>/<class>/", ValueError),
        ("night/cat", "ROOT/<domain>/<class>/", ValueError),
        ("nowhere", "nowhere, which does not exist", FileNotFoundError),
        ("day/cat/c.jpg", r"got the file .*c\.jpg", ValueError),
    ):
        with refused(told, error):
            load("folder", root=root / place)
    picture(root / "night" / "yak" / "a.png")
    with refused("want the class yak in .*day, as in the other domains"):
        load("folder", root=root)


def test_names_and_sizes_are_checked(root: Path) -> None:
    for wrong, told in (
        ({"name": "mnist"}, r"digits, .*got 'mnist'"),
        ({"name": "pacs"}, "want the folder of pacs"),
        ({"name": "digits", "root": root}, "digits is built in"),
        ({"name": "digits", "image_size": 4}, "want an image size of 8 to 1024 pixels, got 4"),
    ):
        with refused(told):
            load(**wrong)  # type: ignore[arg-type]


LAID_OUT = [  # dataset, folders of the domains, classes, default target, folder that it unpacks to, splits
    ("pacs", ("art_painting", "cartoon", "photo", "sketch"), 7, "sketch", "PACS", ()),
    ("office_home", ("Art", "Clipart", "Product", "Real World"), 65, "real_world", "OfficeHomeDataset_10072016", ()),
    ("office_home", ("art", "clipart", "product", "real_world"), 65, "real_world", "office_home_dg", ("train", "val")),
    ("vlcs", ("Caltech101", "LabelMe", "VOC2007", "SUN09"), 5, "sun", "VLCS", ()),
    ("digits_dg", ("mnist", "mnist_m", "svhn", "syn"), 10, "syn", "digits_dg", ("train", "val")),
    pytest.param(
        "domainnet", ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"), 345, "sketch", "domainnet", (),
        marks=pytest.mark.slow,
    ),
    ("vlcs", ("CALTECH", "LABELME", "PASCAL", "SUN"), 5, "sun", "vlcs", ("Crossval", "Test", "TRAIN")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "places", "classes", "target", "unpacked", "splits"), LAID_OUT)
def test_benchmarks_are_read_as_they_are_laid_out(
    name: str, places: Sequence[str], classes: int, target: str, unpacked: str, splits: Sequence[str], tmp_path: Path
) -> None:
    """One image of each class and split, whose brightness says which split."""
    sources = []
    for value in (40, 120, 200):
        Image.new("RGB", (8, 8), (value,) * 3).save(tmp_path / f"{value}.png")
        sources.append(tmp_path / f"{value}.png")
    for place in places:
        for turn, split in enumerate(sorted(splits) or [""]):
            for k in range(classes):
                folder = tmp_path / unpacked / place / split / f"{k:03d}"
                folder.mkdir(parents=True)
                (folder / "a.png").hardlink_to(sources[turn])
        if splits:
            (tmp_path / unpacked / place / "full" / "000").mkdir(parents=True)  # VLCS repeats all its images there
        elif name == "domainnet":  # a class there
            (tmp_path / unpacked / place / "344").rename(tmp_path / unpacked / place / "train")
    for root in (tmp_path, tmp_path / unpacked):
        found = load(name, root=root, image_size=8)
        assert found.names == DOMAINS[name]
        assert (found.name, found.default_target, found.flip) == (name, target, name != "digits_dg")
        assert found.translate == 0.1
        named = tuple(f"{k:03d}" for k in range(classes))
        assert found.classes == (named if name != "domainnet" else (*named[:-1], "train"))
        for domain in found.domains:
            assert domain.labels.tolist() == [k for k in range(classes) for _ in splits or ("",)]
            assert domain.pixels[:, 0, 0, 0].tolist() == [40, 120, 200][: max(1, len(splits))] * classes


@pytest.fixture
def vlcs(tmp_path: Path) -> Path:
    """One image of each class in the split train."""
    for place in ("CALTECH", "LABELME", "PASCAL", "SUN"):
        for k in range(5):
            picture(tmp_path / place / "train" / f"{k}" / "a.png")
    return tmp_path


def test_a_class_may_be_missing_from_a_split(vlcs: Path) -> None:
    picture(vlcs / "SUN" / "test" / "3" / "b.png")
    assert load("vlcs", root=vlcs).domain("sun").labels.tolist() == [0, 1, 2, 3, 3, 4]
    (vlcs / "PASCAL" / "train" / "3" / "a.png").unlink()
    (vlcs / "PASCAL" / "train" / "3").rmdir()
    with refused(r"want the class 3 in .*PASCAL/train, as in the other domains"):
        load("vlcs", root=vlcs)
    for path in vlcs.glob("*/*/3"):
        path.rename(vlcs / f"elsewhere-{path.parts[-3]}-{path.parts[-2]}")
    with refused("want the 5 classes of vlcs in .*, got 4"):
        load("vlcs", root=vlcs)
    (vlcs / "SUN").rename(vlcs / "MOON")
    with refused("want the folders caltech, labelme, pascal, sun of vlcs .*missing: sun$", FileNotFoundError):
        load("vlcs", root=vlcs)


def test_an_image_in_two_splits_is_refused(vlcs: Path) -> None:
    """It might be a client's and an adversary's."""
    (vlcs / "SUN" / "test" / "3").mkdir(parents=True)
    Image.new("RGB", (9, 9), (1, 2, 3)).save(vlcs / "SUN" / "test" / "3" / "a.png")
    assert len(load("vlcs", root=vlcs).domain("sun")) == 6  # the same name, another image
    source = vlcs / "SUN" / "train" / "3" / "a.png"
    (vlcs / "SUN" / "test" / "3" / "a.png").write_bytes(source.read_bytes())
    with refused("want each image in one split, got the same in .*SUN/test/3/a.* and .*SUN/train/3/a"):
        load("vlcs", root=vlcs)


HEADER = "patient,node,x_coord,y_coord,tumor,slide,center,split"


def patches(root: Path, rows: list[str]) -> None:
    """A copy of Camelyon17-WILDS with these rows, and a file for each."""
    root.mkdir(parents=True, exist_ok=True)
    lines = [f",{HEADER}", *(f"{i},{row}" for i, row in enumerate(rows))]
    (root / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for row in rows:
        patient, node, x, y, *_ = row.split(",")
        stem = f"patient_{patient}_node_{node}"
        picture(root / "patches" / stem / f"patch_{stem}_x_{x}_y_{y}.png")


def test_hospitals_are_the_domains_of_camelyon17(tmp_path: Path) -> None:
    rows = [f"{4 + i:03d},{i % 4},{3000 + i},{40 * i},{i % 2},{i},{(3 * i) % 5},0" for i in range(12)]
    patches(tmp_path / "camelyon17_v1.0", rows)
    for root in (tmp_path, tmp_path / "camelyon17_v1.0"):
        found = load("camelyon17", root=root, image_size=8)
        assert found.names == DOMAINS["camelyon17"]
        assert found.classes == ("normal", "tumor")
        assert found.default_target == "hospital_2"
        for center, domain in enumerate(found.domains):
            assert domain.labels.tolist() == [i % 2 for i in range(12) if (3 * i) % 5 == center]


def test_a_damaged_table_of_camelyon17_is_named(tmp_path: Path) -> None:
    good, table = "004,4,1,2,1,0,3,0", tmp_path / "metadata.csv"
    for rows, wanted in (
        (["004,4,1,2,1,0,7,0"], "want center 0 to 4 and tumor 0 or 1 in line 2 of .*, got 7 and 1"),
        (["004,4,1,2,5,0,3,0"], "want center 0 to 4 and tumor 0 or 1 in line 2 of .*, got 3 and 5"),
        ([good, good], "want each file once, got patch_patient_004_node_4_x_1_y_2.png in lines 2 and 3"),
        ([good], "want images of each hospital in .*, got none of hospital_0, hospital_1, hospital_2, hosp"),
    ):
        patches(tmp_path, rows)
        with refused(wanted):
            load("camelyon17", root=tmp_path)
    for content, wanted in (
        (f"{HEADER}\n../../x,4,1,2,1,0,3,0\n".encode(), "want a whole number for patient in line 2 of "),
        (f"{HEADER}\n{'x' * 200_000}\n".encode(), "field"),
        (f"{HEADER}\n004,4,1,2,1,0,3,".encode() + b"\xff\n", r"want UTF-8 in .*metadata\.csv, got other bytes"),
        (b"patient,node\n", "missing: x_coord, y_coord, tumor, center"),
        (
            f"{HEADER}\n004,4,3.000,2,1,0,3,0\n".encode(),
            "want a whole number for x_coord .*'3.000'",
        ),  # of a spreadsheet
        (f"{HEADER}\n004,4,2.18E+04,2,1,0,3,0\n".encode(), r"want a whole number for x_coord .*'2.18E\+04'"),
        (f"{HEADER}\n004,4,3\n".encode(), "want a whole number for y_coord in line 2 of .*''"),
        (
            f"{HEADER}\n004,4,3,2,1,0,3,0\n".encode("utf-16"),
            r"want UTF-8 in .*metadata\.csv, .*; save it as CSV in UTF-8",
        ),
    ):
        table.write_bytes(content)
        with refused(wanted):
            load("camelyon17", root=tmp_path)
    table.unlink()
    with refused(r"want metadata\.csv of camelyon17", FileNotFoundError):
        load("camelyon17", root=tmp_path)


SAVED_AGAIN: list[tuple[str, Callable[[list[list[str]]], list[list[str]]], str, str]] = [
    ("zeros lost", lambda rows: [[row[0], str(int(row[1])), *row[2:]] for row in rows], ",", "utf-8"),
    ("commas", lambda rows: [[row[0], *(f"{int(value)},00" for value in row[1:])] for row in rows], ";", "utf-8"),
    ("byte order mark", lambda rows: [row[1:] for row in rows], ",", "utf-8-sig"),
    ("tabs and empty rows", lambda rows: [*rows, [""] * len(rows[0])], "\t", "utf-8"),
    ("another order", lambda rows: [row[::-1] for row in rows], ";", "utf-8"),
]


@pytest.mark.parametrize(("how", "change", "separator", "encoding"), SAVED_AGAIN, ids=[one[0] for one in SAVED_AGAIN])
def test_a_table_that_was_saved_again_is_the_same(
    how: str, change: Callable[[list[list[str]]], list[list[str]]], separator: str, encoding: str, tmp_path: Path
) -> None:
    rows = [f"{4 + i:03d},{i % 4},{3000 + i},{40 * i},{i % 2},{i},{i % 5},0" for i in range(10)]
    patches(tmp_path, rows)
    published = tmp_path / "metadata.csv"
    want = load("camelyon17", root=tmp_path, image_size=8)
    header = ["", *HEADER.split(",")]
    body = change([[str(i), *row.split(",")] for i, row in enumerate(rows)])
    header = {"byte order mark": header[1:], "another order": header[::-1]}.get(how, header)
    with published.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=separator).writerows([header, *body])
    saved = load("camelyon17", root=tmp_path, image_size=8)
    for one, other in zip(want.domains, saved.domains, strict=True):
        assert torch.equal(one.pixels, other.pixels)
        assert torch.equal(one.labels, other.labels)


def test_missing_and_unlisted_patches_are_told(tmp_path: Path) -> None:
    patches(tmp_path, [f"{4 + i:03d},{i % 4},{3000 + i},{40 * i},{i % 2},{i},{i % 5},0" for i in range(10)])
    picture(tmp_path / "patches" / "patient_004_node_0" / "patch_patient_004_node_0_x_1_y_1.png")
    lines: list[str] = []
    about = load("camelyon17", root=tmp_path, image_size=8, say=lines.append).about
    assert about.endswith("Not read: patches that metadata.csv does not list: 1.")
    assert "e.g. patches/patient_004_node_0/patch_patient_004_node_0_x_1_y_1.png" in lines[0]
    (tmp_path / "patches/patient_007_node_3/patch_patient_007_node_3_x_3003_y_120.png").unlink()
    with refused(r"got no patches/patient_007_node_3/patch.*_120\.png of its line 5; missing: 1 of 10"):
        load("camelyon17", root=tmp_path)


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_composed_and_decomposed_names_are_one(tmp_path: Path) -> None:
    """As macOS and others write the same name."""
    for place in (f"a/{COMPOSED}/1", f"a/{DECOMPOSED}/2", f"{COMPOSED}/{DECOMPOSED}/3"):
        picture(tmp_path / f"{place}.png", (int(place[-1]), 0, 0))
    for place in ("a/tea/4", f"{COMPOSED}/tea/5", f"{DECOMPOSED}/tea/6"):
        picture(tmp_path / f"{place}.png", (int(place[-1]), 0, 0))
    dataset = load("folder", root=tmp_path, image_size=8)
    assert (dataset.names, dataset.classes) == (("a", COMPOSED), (COMPOSED, "tea"))
    assert dataset.domain(DECOMPOSED) is dataset.domain(COMPOSED)
    labels = {int(image[0, 0, 0]): int(k) for d in dataset.domains for image, k in zip(d.pixels, d.labels, strict=True)}
    assert labels == {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}
    config, options = AuditConfig(dataset="folder", data_root=tmp_path, targets=(DECOMPOSED,)), {"image_size": 8}
    assert replace(config, **options).load()[1].targets == (COMPOSED,)
    with pytest.raises(ValueError, match="want each domain once"):
        replace(config, targets=(DECOMPOSED, COMPOSED), **options).load()


def test_what_is_not_read_is_counted_by_reason(root: Path) -> None:
    before = load("folder", root=root, image_size=SIDE)
    for path in ("a.txt", "day/list.csv", "day/cat/b.txt", "day/cat/._c.jpg", "day/dog/deep/c.png", ".git/config"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x", encoding="utf-8")
    (root / "day" / "circle").symlink_to(root, target_is_directory=True)
    (root / "itself").symlink_to(root / "itself")
    lines: list[str] = []
    dataset = load("folder", root=root, image_size=SIDE, say=lines.append)
    assert (dataset.names, dataset.classes, dataset.sha256) == (before.names, before.classes, before.sha256)
    (line,) = lines
    assert line.startswith(f"not read in {root}: ")
    counts = "hidden (names that begin with . or __MACOSX): 2; links to folders that they lie in: 1; "
    counts += "files outside the folders of classes: 3; folders inside the folders of classes: 1; "
    counts += "images in folders inside the folders of classes: 1; "
    counts += "files without the name of an image (.txt): 1"
    assert dataset.about.endswith(f" Not read: {counts}.")
    assert "(.txt): 1, e.g. day/cat/b.txt" in line


@pytest.mark.parametrize(
    "splits", [("train", "val", "test"), ("Training", "dev"), ("TEST_SET", "train-images", "labels")]
)
def test_splits_are_neither_domains_nor_classes(splits: tuple[str, ...], root: Path, tmp_path: Path) -> None:
    wanted = f"a folder of each domain (ROOT/<domain>/<class>/*.jpg) in {tmp_path / 'splits'}, got the splits "
    for split in splits:
        shutil.copytree(root / "day", tmp_path / "splits" / split)
        shutil.copytree(root / "day", tmp_path / "inside" / "images" / split)
    with refused("^want " + re.escape(wanted)):
        load("folder", root=tmp_path / "splits", image_size=SIDE)
    with refused(r"^want a folder of each class .* in .*inside/images, got the splits "):
        load("folder", root=tmp_path / "inside", image_size=SIDE)
    shutil.copytree(root / "day", tmp_path / "inside" / "photo")
    with refused(r"^want a folder of each class .* in .*inside/images, got the splits "):
        load("folder", root=tmp_path / "inside", image_size=SIDE)
    with refused("^want the names of clients in .*, got the splits "):
        load("folder", root=tmp_path / "inside", image_size=SIDE, divided=True)
    table = tmp_path / "images.csv"
    files = [path for split in splits for path in (tmp_path / "splits" / split).rglob("*.*")]
    rows = [f"{path},{path.parent.parent.name},{path.parent.name}" for path in files]
    table.write_text("\n".join(["path,domain,class", *rows]), encoding="utf-8")
    with refused("^want the names of domains in .*images.csv, got the splits "):
        load("folder", root=table, image_size=SIDE)


def test_a_single_split_s_name_is_a_class_like_others(root: Path) -> None:
    for domain in ("day", "night"):
        (root / domain / "dog").rename(root / domain / "train")
    assert load("folder", root=root, image_size=SIDE).classes == ("cat", "owl", "train")


def test_an_image_that_is_there_twice_is_told(tmp_path: Path) -> None:
    for number, place in enumerate(("a/x", "a/y", "b/x", "b/y", "c/x", "c/y")):
        for name in ("1", "2"):
            picture(tmp_path / place / f"{name}.png", (40 * number, 10 * int(name), 0))
    assert load("folder", root=tmp_path, image_size=8).warnings == ()
    (tmp_path / "c/x/link.png").hardlink_to(tmp_path / "a/x/1.png")  # in two domains,
    Image.open(tmp_path / "b/y/2.png").save(tmp_path / "c/y/saved.bmp")  # also in another format,
    (tmp_path / "b/x/copy.png").write_bytes((tmp_path / "b/y/1.png").read_bytes())  # with two labels,
    (tmp_path / "a/y/again.png").symlink_to(tmp_path / "a/y/2.png")  # and twice in a class
    dataset, config = AuditConfig(dataset="folder", data_root=tmp_path, image_size=8).load()
    assert config.targets == ("c",)
    assert dataset.warnings == (
        "2 of the 6 images of the target domain c are also images of source domains (a, b): models are trained on what "
        "they are tested on, and its accuracy is not one on an unseen domain",
        "1 image of a is also in c, e.g. a/x/1.png and c/x/link.png",
        "1 image of b is also in c, e.g. b/y/2.png and c/y/saved.bmp",
        "1 image with several labels, e.g. b/x/copy.png (x) and b/y/1.png (y)",
        "1 image several times in one class of a domain, e.g. a/y/2.png and a/y/again.png",
    )


def test_pairs_of_domains_with_common_images() -> None:
    """Eight domains share one black image, and two of them a white one."""
    labels, black = torch.zeros(2).long(), torch.zeros(3, 2, 2)
    domains = [
        Domain(f"d{d}", torch.stack([black, black + (1.0 if d in (4, 7) else d / 9 + 0.05)]), labels) for d in range(8)
    ]
    sentences = repeats(domains, ["x"], [[f"d{d}/0.png", f"d{d}/1.png"] for d in range(8)])
    assert len(sentences) == MOST_PAIRS + 1
    assert "2 images of d4 are also in d7, e.g. d4/0.png and d7/0.png" in sentences
    assert sentences[-1] == "13 more pairs of domains have fewer images in common, or as many"  # 28 pairs in all


def test_fewer_than_two_classes_are_refused(tmp_path: Path) -> None:
    for domain in "ab":
        picture(tmp_path / domain / "x" / "1.png")
    with refused(f"want folders of at least two classes in the domains of {tmp_path} .*, got x$"):
        load("folder", root=tmp_path)
    patches(tmp_path / "c", [f"{4 + i:03d},0,{i},0,1,{i},{i},0" for i in range(5)])
    with pytest.raises(ValueError, match=r"want images of at least two classes in .*c/patches, got tumor"):
        load("camelyon17", root=tmp_path / "c")


@pytest.mark.slow
def test_the_real_pacs_has_its_published_counts() -> None:
    """The whole benchmark at 32 px, where it is at hand."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("FDGPRIV_TEST_DATA", shared))
    if not (root / "PACS").is_dir():
        pytest.skip(f"PACS is not in {root}; name the folder that holds it in FDGPRIV_TEST_DATA")
    pacs = load("pacs", root=root)
    assert [len(domain) for domain in pacs.domains] == [2048, 2344, 1670, 3929]
    assert pacs.classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert min(pacs.domains, key=lambda domain: float(domain.images.std(dim=1).mean())).name == "sketch"
    assert max(pacs.domains, key=lambda domain: float(domain.images.mean())).name == "sketch"


def test_few_images_are_the_same_and_of_all_classes(digits: Dataset) -> None:
    for count in (7, 10_000):
        few, again = digits.few(count), digits.few(count)
        for domain, fewer, same in zip(digits.domains, few.domains, again.domains, strict=True):
            assert (fewer.name, len(fewer)) == (domain.name, min(count, len(domain)))
            assert torch.equal(fewer.images, same.images)
            known = {image.numpy().tobytes(): int(k) for image, k in zip(domain.images, domain.labels, strict=True)}
            assert [known[image.numpy().tobytes()] for image in fewer.images] == fewer.labels.tolist()
        assert few.about.endswith(f"Here at most {count} images of each domain.")
    by_class = [domain.take(domain.labels.argsort(stable=True)) for domain in digits.domains]  # as folders are read
    for domain in replace(digits, domains=tuple(by_class)).few(100).domains:
        assert set(domain.labels.tolist()) == set(range(10))
