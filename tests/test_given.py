"""A split of one's own: clients from folders or from a table, their images and no others, and every fault one line."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from factories import refused
from PIL import Image

from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.data import load
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.partition import AUXILIARY_SHARE, populate

COUNTS = {  # by domain, client and class
    ("day", "ann", "cat"): 9, ("day", "ann", "owl"): 4, ("day", "bob", "cat"): 6,
    ("dusk", "eve", "dog"): 7, ("dusk", "eve", "cat"): 5,
    ("night", "", "cat"): 3, ("night", "", "dog"): 4,
}  # fmt: skip
Row = tuple[str, str, str, str]  # path, domain, client, class


def rows() -> list[Row]:
    """One for each image."""
    return [
        ("/".join(part for part in (*key, f"{i}.png") if part), *key)
        for key, count in COUNTS.items()
        for i in range(count)
    ]


def shade(row: Row) -> int:
    """The grey level of an image, of which there is no other."""
    return 3 * rows().index(row) + 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the images."""
    for row in rows():
        path = tmp_path / "data" / row[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (shade(row),) * 3).save(path)
    return tmp_path / "data"


def table(
    root: Path, listed: Sequence[Sequence[str]], columns: Sequence[str] = ("path", "domain", "client", "class")
) -> Path:
    file = root.parent / "images.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([columns, *listed])
    return file


def below(root: Path) -> list[list[str]]:
    """The rows with paths from the folder above."""
    return [[f"{root.name}/{path}", *rest] for path, *rest in rows()]


def read(place: Path) -> Dataset:
    return load("folder", root=place, image_size=8, divided=True)


def shades(pixels: torch.Tensor) -> list[int]:
    return sorted(int(image.float().mean().round()) for image in pixels)


def test_folders_and_a_table_are_the_same(root: Path) -> None:
    by_folder, by_table = read(root), read(table(root, below(root)[::-1]))
    assert by_folder.sha256 == by_table.sha256
    assert by_folder.clients == by_table.clients == ("ann", "bob", "eve")
    assert (by_folder.names, by_folder.classes) == (("day", "dusk", "night"), ("cat", "dog", "owl"))
    assert (by_folder.targets, by_folder.default_target) == (("night",), "night")


@pytest.mark.parametrize("attacked", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_each_client_has_its_images(root: Path, attacked: bool, seed: int) -> None:
    population = populate(read(root), "night", "given", 3, seed, attacked=attacked)
    assert list(population.clients) == ["ann", "bob", "eve"]
    for name, data in population.clients.items():
        mine = sorted(shade(row) for row in rows() if row[2] == name)
        used = shades(torch.cat([data.pixels, data.held_out_pixels]))
        assert set(used) <= set(mine)
        assert len(used) == len(mine) - (int(AUXILIARY_SHARE * len(mine)) if attacked else 0)
        assert len(used) == len(set(used))
        assert population.sources[population.main_domain(name)] == {"eve": "dusk"}.get(name, "day")
    assert shades(population.target.pixels) == sorted(shade(row) for row in rows() if row[1] == "night")


def test_public_images_are_no_client_s(root: Path) -> None:
    population = populate(read(root), "night", "given", 3, 0)
    used = torch.cat([torch.cat([data.pixels, data.held_out_pixels]) for data in population.clients.values()])
    for name, public in population.auxiliary.items():
        assert set(shades(public.pixels)) <= {shade(row) for row in rows() if row[1] == name} - set(shades(used))


def test_any_domain_may_be_the_target_if_all_have_clients(root: Path) -> None:
    listed = [[path, domain, client or "sam", label] for path, domain, client, label in below(root)]
    dataset = read(table(root, listed))
    assert (dataset.targets, dataset.default_target, dataset.n_sources) == ((), "night", 2)
    assert list(populate(dataset, "dusk", "given", 3, 0).clients) == ["ann", "bob", "sam"]


def test_other_partitions_read_the_table_too(root: Path) -> None:
    file = table(root, [[path, domain, label] for path, domain, _, label in below(root)], ("path", "domain", "class"))
    dataset = load("folder", root=file, image_size=8)
    assert (dataset.names, dataset.clients, dataset.targets) == (("day", "dusk", "night"), (), ())
    for domain in dataset.domains:
        assert shades(domain.pixels) == sorted(shade(row) for row in rows() if row[1] == domain.name)


def audit(root: Path, **given: object) -> AuditConfig:
    settings = {"dataset": "folder", "data_root": root, "image_size": 8, "partition": "given", "attacks": ("none",)}
    return AuditConfig(**{**settings, **given})  # type: ignore[arg-type]


def test_the_number_of_clients_is_that_of_the_data(root: Path) -> None:
    dataset, config = audit(root).load()
    assert config.setup("fedavg", dataset.n_sources).clients == 3
    assert audit(root, clients=3).load()[1].clients == 3
    with refused("--clients: want the 3 clients of the data, or no number; got 5"):
        audit(root, clients=5).load()


def test_all_means_every_domain_unless_one_has_that_name(root: Path) -> None:
    (root / "night").rename(root / "All")
    with refused("--target: want the names of the target domains, .* a domain called All; got all"):
        audit(root, targets=("all",)).load()


def test_the_split_is_part_of_the_digest(root: Path) -> None:
    listed = below(root)
    swapped = [
        [path, domain, {"ann": "bob", "bob": "ann"}.get(client, client), label]
        for path, domain, client, label in listed
    ]
    assert read(table(root, listed)).sha256 != read(table(root, swapped)).sha256


def test_a_subset_keeps_each_client(root: Path) -> None:
    dataset = read(root)
    few = dataset.few(10)
    for domain in few.domains[:2]:
        assert domain.clients is not None
        of_client = zip(domain.pixels, domain.clients.tolist(), strict=True)
        by_shade = {shade(row): row[2] for row in rows()}
        assert all(by_shade[shades(image[None])[0]] == dataset.clients[number] for image, number in of_client)
    with refused("want images of each client among 1 of each domain, got none of (ann|bob); raise --images"):
        dataset.few(1)


def changed(listed: list[list[str]], place: int, value: str) -> list[list[str]]:
    """The rows with another value in this place of the first one."""
    return [[*listed[0][:place], value, *listed[0][place + 1 :]], *listed[1:]]


@pytest.mark.parametrize(
    ("place", "value", "wanted"),
    [
        (0, "data/gone.png", r"want the images that .* lists, got no data/gone\.png of its line 2; missing: 1 of 38"),
        (0, "data/day/ann/cat/1.png", r"want each file once, got 1\.png in lines 2 and 3"),
        (1, "dusk", "want each client in one domain, got ann in day and dusk"),
        (1, "", "want a domain in line 2 of .*, got none"),
        (2, "", "want a client for each image of day, or for none; got .*1.png with one"),
        (2, "server", "want a client's name other than server and peer, got 'server'"),
        (2, "BOB", "clients of .*: want names that differ by more than upper and lower case, got 'BOB' and 'bob'"),
        (1, "DAY", "domains of .*: want names that differ by more than upper and lower case, got 'DAY' and 'day'"),
        (2, "solo", "want at least 4 images of each client .*, got 1 of solo in day"),
        (3, "a\x1bb", "class in line 2 of .*: want a name without control characters"),
    ],
)  # fmt: skip
def test_a_damaged_table_is_one_line(root: Path, place: int, value: str, wanted: str) -> None:
    with refused(wanted):
        populate(read(table(root, changed(below(root), place, value))), "night", "given", 4, 0)


def test_names_that_look_the_same_are_one(root: Path) -> None:
    listed = below(root)
    respelled = [[listed[0][0], "day\u00a0", " ann\u200b", "ca\ufefft "], *listed[1:]]
    assert read(table(root, respelled)).sha256 == read(table(root, listed)).sha256


def test_letters_in_both_cases_are_classes_where_they_lie_side_by_side(root: Path) -> None:
    listed = below(root)
    both = [[*row[:3], "CAT" if number == 0 else row[3]] for number, row in enumerate(listed)]
    assert read(table(root, both)).classes == ("CAT", "cat", "dog", "owl")
    apart = [[*row[:3], "CAT" if row[1:] == ["night", "", "cat"] else row[3]] for row in listed]
    with refused("classes of .*: want names that differ by more than upper and lower case, got 'CAT' and 'cat'"):
        read(table(root, [row for row in apart if row[1] != "day"]))


def test_missing_columns_and_clients_are_named(root: Path) -> None:
    with refused(r"want the columns path, domain, class, client in .*; missing: class, client"):
        read(table(root, [], ("path", "domain", "user", "label")))
    with refused(r"want images in .*images\.csv, got a table without rows"):
        read(table(root, []))
    nobody = [[path, domain, "", label] for path, domain, _, label in below(root)]
    with refused("want clients in .*, got only domains and classes, for another --partition"):
        read(table(root, nobody))


def test_a_folder_of_another_layout_is_one_line(root: Path) -> None:
    with refused("ROOT/<domain>/<client>/<class>/.* is read with --partition given"):
        load("folder", root=root, image_size=8)
    (root / "day" / "dan").mkdir()
    with refused(r"want folders of classes in .*dan \(ROOT/<domain>/<client>/<class>/.*\), got none"):
        read(root)
    Image.new("RGB", (8, 8)).save(root / "day" / "dan" / "0.png")
    with refused("want folders of clients or of classes in .*day, got images in dan and none in ann"):
        read(root)
    with refused("want a folder .*, got .*gone.csv, which does not exist", FileNotFoundError):
        read(root / "gone.csv")


def test_options_that_do_not_fit_are_refused(root: Path) -> None:
    for options, wanted in (
        (Options(partition="given"), "want --dataset folder; got digits"),
        (
            Options(dataset="folder", data_root=root / "day" / "ann" / "cat" / "0.png"),
            "want the folder or a table .csv of folder",
        ),
        (Options(dataset="pacs", data_root=table(root, [])), "--data-root: want the folder of pacs"),
    ):
        with refused(wanted):
            options.check()
    Options(dataset="folder", data_root=root, partition="Given").check()
    Options(dataset="folder", data_root=table(root, []), partition="given").check()
