"""Loads images that their owner has divided: ROOT/<domain>/<client>/<class>/*.jpg, or a table in CSV."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from fdgpriv.artifacts.artifact import client_name
from fdgpriv.data.dataset import Dataset
from fdgpriv.data.folder import by_name, check_folder, class_images, entries, limits, not_read
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import SUFFIXES, Progress
from fdgpriv.data.labelled_files import labelled_domains
from fdgpriv.data.names import ABOUT, GIVEN_LAYOUT
from fdgpriv.data.splits import check_no_splits
from fdgpriv.data.table import ListedFiles, is_table, table_rows
from fdgpriv.data.unread import OUTSIDE, Unread
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.user_names import check_case, plain


class _Image(NamedTuple):
    """A file with its domain, client (empty without one) and class."""

    path: Path
    domain: str
    client: str
    label: str


def given(root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset in `root` with the client of each image.

    A domain may be without clients, as ROOT/<domain>/<class>/*.jpg or with an empty client in the table; then it may only be
    a target. Clients and domains need not have all classes.

    Args:
        root: A folder laid out as ROOT/<domain>/<client>/<class>/*.jpg, or a table in CSV with the columns path (absolute,
            or from the table's folder), domain, client and class.
        image_size: S of the images (N, 3, S, S) uint8, in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use, and with one that counts what is not read.

    Raises:
        FileNotFoundError: `root` does not exist.
        ValueError: It is laid out otherwise, no domain has clients, a client is in two domains, or an image is missing,
            twice in the table, or cannot be read.
    """
    if is_table(root):
        images, unread = list(_of_table(root, ("path", "domain", "class", "client"))), Unread(root.parent)
    else:
        check_folder(root)
        unread = Unread(root)
        images = list(_of_folders(root, unread))
    _check_splits(images, root)
    clients = _clients(images, root)
    beside = [] if is_table(root) else _by_domain(images, lambda image: image.client)
    check_case(clients, f"clients of {root}", beside)
    dataset = _dataset(images, root, image_size, unread, progress, say)
    index = {client: number for number, client in enumerate(clients)}
    of_domain = {
        domain.name: [index.get(image.client, -1) for image in images if image.domain == domain.name]
        for domain in dataset.domains
    }
    without = tuple(name for name, numbers in of_domain.items() if -1 in numbers)
    domains = tuple(
        domain if domain.name in without else replace(domain, clients=torch.tensor(of_domain[domain.name]))
        for domain in dataset.domains
    )
    about = f"{dataset.about} They are divided among {len(clients)} clients as given."
    target = without[-1] if without else dataset.default_target
    return replace(dataset, domains=domains, clients=clients, targets=without, default_target=target, about=about)


def listed(table: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset that a table in CSV lists, with the columns path, domain and class; arguments as of `given`."""
    images = list(_of_table(table, ("path", "domain", "class")))
    _check_splits(images, table)
    return _dataset(images, table, image_size, Unread(table.parent), progress, say)


def _dataset(
    images: Sequence[_Image], root: Path, image_size: int, unread: Unread, progress: Progress | None, say: Say | None
) -> Dataset:
    """The dataset without clients; its domains and classes are in the order of their names, images as they come."""
    classes = tuple(sorted({image.label for image in images}))
    check_case(classes, f"classes of {root}", _by_domain(images, lambda image: image.label))
    names = sorted({image.domain for image in images})
    if len(names) < 2:
        raise ValueError(f"want at least two domains in {root}, got {', '.join(names) or 'none'}")
    files = {
        name: [(image.path, classes.index(image.label)) for image in images if image.domain == name] for name in names
    }
    domains, warnings = labelled_domains(files, classes, image_size, progress, say)
    about = f"{ABOUT['folder']}: {len(domains)} domains, {len(classes)} classes.{not_read(unread, say)}"
    return Dataset(
        "folder", classes, domains, names[-1], about, limits(image_size), flip=True, translate=0.1, warnings=warnings
    )


def _check_splits(images: Sequence[_Image], root: Path) -> None:
    """Raises ValueError if domains, clients or classes are splits."""
    for wanted, names in (
        ("domains", [image.domain for image in images]),
        ("clients", [image.client for image in images]),
        ("classes", [image.label for image in images]),
    ):
        check_no_splits(dict.fromkeys(names), root, f"the names of {wanted}")


def _by_domain(images: Iterable[_Image], name: Callable[[_Image], str]) -> list[set[str]]:
    """The names of the images of each domain."""
    by_domain: dict[str, set[str]] = {}
    for image in images:
        by_domain.setdefault(image.domain, set()).add(name(image))
    return list(by_domain.values())


def _clients(images: Sequence[_Image], root: Path) -> tuple[str, ...]:
    """The names of the clients, by domain.

    Raises:
        ValueError: There are none, one is in two domains or has no proper name, or a domain has images with and without.
    """
    domain_of: dict[str, str] = {}
    with_clients: dict[str, bool] = {}
    for path, domain, client, _ in images:
        if with_clients.setdefault(domain, bool(client)) != bool(client):
            raise ValueError(
                f"want a client for each image of {domain}, or for none; got {path} {'with' if client else 'without'} one"
            )
        if client and (first := domain_of.setdefault(client, domain)) != domain:
            raise ValueError(f"want each client in one domain, got {client} in {first} and {domain} of {root}")
    for client in domain_of:
        client_name(client, str(root))
    if not domain_of:
        raise ValueError(
            f"want clients in {root} ({GIVEN_LAYOUT}), got only domains and classes, for another --partition"
        )
    return tuple(sorted(domain_of, key=lambda client: (domain_of[client], client)))


def _of_table(table: Path, columns: Sequence[str]) -> Iterator[_Image]:
    """The images in the order of folders, whatever that of the rows."""
    files, images = ListedFiles(table, "images"), []
    for line, values in table_rows(table, columns):
        for column, value in zip(columns, values, strict=True):
            check_name(value, f"{column} in line {line} of {table}")
            if not plain(value) and column != "client":
                raise ValueError(f"want a {column} in line {line} of {table}, got none")
        path, *names = values
        domain, label, client = (*map(plain, names), "")[:3]
        files.add(table.parent / path, line)
        images.append(_Image(table.parent / path, domain, client, label))
    if not images:
        raise ValueError(f"want images in {table}, got a table without rows")
    check_case(dict.fromkeys(image.domain for image in images), f"domains of {table}")
    files.check([image.path for image in images if image.path.is_file()], Unread(table.parent))
    yield from sorted(images, key=lambda image: (image.domain, image.client, image.label, image.path))


def _of_folders(root: Path, unread: Unread) -> Iterator[_Image]:
    places, files = entries(root, unread)
    unread.add(OUTSIDE, files)
    for domain, folders in by_name(places).items():
        check_name(domain, str(root))
        inside = [path for folder in folders for path in _folders(folder, unread)]
        classes = [path for path in inside if _has_images(path)]
        if classes and len(classes) < len(inside):
            other = next(path for path in inside if path not in classes)
            raise ValueError(
                f"want folders of clients or of classes in {folders[0]}, got images in {classes[0].name} and none in "
                f"{other.name}"
            )
        for place in inside:
            client, labels = ("", [place]) if classes else (plain(place.name), _folders(place, unread))
            if not labels:
                raise ValueError(f"want folders of classes in {place} ({GIVEN_LAYOUT}), got none")
            for label in labels:
                for path in class_images(label, unread):
                    yield _Image(path, domain, client, plain(label.name))


def _folders(place: Path, unread: Unread) -> list[Path]:
    """The folders in this one; counts its files."""
    inside = entries(place, unread)
    unread.add(OUTSIDE, inside.files)
    for folder in inside.folders:
        check_name(folder.name, str(place))
    return inside.folders


def _has_images(place: Path) -> bool:
    return any(path.suffix.lower() in SUFFIXES for path in entries(place, Unread(place)).files)
