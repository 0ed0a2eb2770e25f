"""iWildCam as WILDS lays it out: official splits, locations as domains, and every fault one line."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from factories import refused
from PIL import Image

from fdgpriv.config import AuditConfig
from fdgpriv.data import load
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.partition import populate

HEADER = "split,location_remapped,location,sequence_remapped,y,category_id,datetime,filename"
NAMES = ("empty", "ocelot", "great tinamou", "paca")
COUNTS = {("train", 5): 30, ("train", 12): 24, ("train", 7): 19, ("val", 3): 6, ("test", 1): 5, ("test", 9): 4,
          ("id_val", 5): 3, ("id_test", 12): 2}  # fmt: skip
Row = tuple[str, int, int, str]  # split, location, label, file


def rows() -> Iterator[Row]:
    """One for each image: its label by turns, its name not in the order of anything."""
    for (split, location), count in COUNTS.items():
        for i in range(count):
            yield split, location, (i + location) % 4, f"{(7 * i + 3) % 97:02d}-{split}-{location}.jpg"


def colour(row: Row) -> tuple[int, int, int]:
    _, location, label, name = row
    return 20 * location, 60 * label, 2 * int(name[:2])


def wilds(root: Path, *listed: Row) -> Path:
    """A copy of iWildCam with these rows, by default all, and a JPEG of one colour for each."""
    listed = listed or tuple(rows())
    (root / "train").mkdir(parents=True, exist_ok=True)
    lines = [
        f"{split},{place},{place * 11},1,{label},{label},2013-06-05,{name}" for split, place, label, name in listed
    ]
    (root / "metadata.csv").write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    categories = [f"{label},{100 + label},{name}" for label, name in enumerate(NAMES)]
    (root / "categories.csv").write_text(
        "\n".join(["y,category_id,name", *categories, "99999,7,start"]), encoding="utf-8"
    )
    for row in listed:
        Image.new("RGB", (16, 12), colour(row)).save(root / "train" / row[3], quality=100, subsampling=0)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return wilds(tmp_path / "iwildcam_v2.0")


@pytest.fixture
def dataset(root: Path) -> Dataset:
    return load("iwildcam", root=root, image_size=8)


def test_the_official_split_makes_the_domains(root: Path, dataset: Dataset) -> None:
    assert dataset.names == ("location_005", "location_012", "test", "val")
    assert (dataset.default_target, dataset.targets, dataset.n_sources) == ("test", ("test", "val"), 2)
    assert dataset.classes == NAMES
    wanted = {"location_005": [("train", 5)], "location_012": [("train", 12)], "test": [("test", 1), ("test", 9)],
              "val": [("val", 3)]}  # fmt: skip
    for domain in dataset.domains:
        of_domain = [row for row in rows() if row[:2] in wanted[domain.name]]
        assert domain.labels.tolist() == [row[2] for row in of_domain]
        shades = torch.tensor([colour(row) for row in of_domain])
        assert (domain.pixels.float().mean((2, 3)) - shades).abs().max() < 4  # JPEG
    assert load("iwildcam", root=root.parent, image_size=8).sha256 == dataset.sha256


def test_what_is_not_read_is_counted(root: Path) -> None:
    (root / "train" / "stray.jpg").write_bytes(b"")
    lines: list[str] = []
    about = load("iwildcam", root=root, image_size=8, say=lines.append).about
    for count in (
        "images of locations with fewer than 20: 19",
        "images of the split id_val: 3",
        "images of the split id_test: 2",
        "images that metadata.csv does not list: 1",
    ):
        assert count in about
    assert "train/stray.jpg" in lines[0]


@pytest.mark.parametrize("target", ["test", "val"])
def test_targets_are_never_sources(dataset: Dataset, target: str) -> None:
    population = populate(dataset, target, "single", 4, 0)
    assert population.sources == ("location_005", "location_012")
    assert population.target is dataset.domain(target)


def test_a_location_is_no_target(dataset: Dataset) -> None:
    for of in (dataset, replace(dataset, domains=dataset.domains[:3])):
        with refused("want a target domain of iwildcam: test, val; got 'location_005'"):
            populate(of, "location_005", "single", 4, 0)


def test_targets_of_an_audit(root: Path) -> None:
    config = AuditConfig(dataset="iwildcam", data_root=root, image_size=8, targets=("all",), attacks=("none",))
    loaded, checked = config.load()
    assert checked.targets == ("test", "val")
    assert loaded.n_sources == 2


def test_each_source_domain_has_a_client(root: Path) -> None:
    config = AuditConfig(dataset="iwildcam", data_root=root, preset="quick")
    assert [config.setup("fedavg", domains).clients for domains in (2, 6, 7, 243)] == [6, 6, 7, 243]
    assert replace(config, clients=5).setup("fedavg", 243).clients == 5


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("split,", "fold,", "want the columns split, location_remapped, y, filename in .*; missing: split"),
        ("train,5", "dev,5", "want a split of train, test, val, id_val, id_test in line 2 of .*, got 'dev'"),
        ("train,5", "train,five", "want a whole number for location_remapped in line 2 of .*, got 'five'"),
        (
            "\ntest,1,",
            "\ntest,5,",
            "want the location 5 in one of train, test, val; got test in line .* and train before",
        ),
        (",03-train-5", ",../03-train-5", "want the name of a file in line 2 of .*, got '../03-train-5.jpg'"),
        (",03-train-5", ",99-train-5", r"got no train/99-train-5.jpg of its line 2; missing: 1 of 93"),
        (",10-train-5", ",03-train-5", "want each file once, got 03-train-5.jpg in lines 2 and 3 of "),
        (
            "\ntrain,12",
            "\nid_val,12",
            "want at least two locations of the split train with 20 images or more in .*, got 1",
        ),
        ("\nval,3", "\nid_val,3", "want images of each target split in .*, got none of val"),
    ],
)
def test_a_damaged_table_is_one_line(root: Path, old: str, new: str, wanted: str) -> None:
    table = root / "metadata.csv"
    text = table.read_text(encoding="utf-8")
    table.write_text(text.replace(old, new, -1 if old.startswith("\n") else 1), encoding="utf-8")
    with refused(wanted):
        load("iwildcam", root=root, image_size=8)


def test_missing_and_damaged_files_are_named(root: Path) -> None:
    categories, table, image = root / "categories.csv", root / "metadata.csv", root / "train" / "03-train-5.jpg"
    named = categories.read_text(encoding="utf-8")
    image.write_bytes(b"no image")
    with refused(r"want a readable image in .*03-train-5\.jpg"):
        load("iwildcam", root=root, image_size=8)
    for content, wanted in (
        (
            named.replace("2,102,great tinamou\n", ""),
            "want the names of the classes of all images in .*, got none of 2",
        ),
        (named.replace("y,", "label,"), r"want the columns y, name in .*categories\.csv; missing: y"),
        (named.replace("1,101", "one,101"), "want a whole number for y in line 3 of .*"),
    ):
        categories.write_text(content, encoding="utf-8")
        with refused(wanted):
            load("iwildcam", root=root, image_size=8)
    categories.unlink()
    with refused("want categories.csv of iwildcam beside metadata.csv", FileNotFoundError):
        load("iwildcam", root=root, image_size=8)
    table.unlink()
    with refused(r"want metadata\.csv of iwildcam in ", FileNotFoundError):
        load("iwildcam", root=root, image_size=8)
