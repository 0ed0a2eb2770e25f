"""Loads image datasets from folders ROOT/<domain>/<class>/*.jpg: published benchmarks and the user's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.data.image_cache import Say, stored_images
from fdgpriv.data.images import SUFFIXES, Progress
from fdgpriv.data.names import DOMAINS
from fdgpriv.utils.file_names import check_name

LAYOUT = "ROOT/<domain>/<class>/*.jpg"


@dataclass(frozen=True)
class Benchmark:
    """A published dataset and its folder layout.

    Attributes:
        name: Its name on the command line.
        folder: The folder it unpacks to; the root may be this folder or its parent.
        domains: The domain folders, in the authors' order.
        classes: Number of classes.
        default_target: The target domain when the user names none.
        about: Description, for reports.
    """

    name: str
    folder: str
    domains: tuple[str, ...]
    classes: int
    default_target: str
    about: str

    def load(self, root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
        """The dataset below `root`, images (N, 3, S, S) uint8 with S = `image_size`."""
        _check_folder(root)
        places = [root, root / self.folder, root / self.folder.lower()]
        missing = {place: [name for name in self.domains if not (place / name).is_dir()] for place in places}
        found = min(places, key=lambda place: len(missing[place]))
        if missing[found]:
            raise FileNotFoundError(
                f"want the folders {', '.join(self.domains)} of {self.name} in {root} or {places[1]}; "
                f"missing: {', '.join(missing[found])}"
            )
        domains, classes = read_domains([found / name for name in self.domains], image_size, progress, say)
        if len(classes) != self.classes:
            raise ValueError(f"want the {self.classes} classes of {self.name} in {found}, got {len(classes)}")
        return Dataset(
            self.name, classes, domains, self.default_target, self.about, _limits(image_size), flip=True, translate=0.1
        )


PACS = Benchmark(
    name="pacs",
    folder="PACS",
    domains=DOMAINS["pacs"],
    classes=7,
    default_target="sketch",
    about="PACS (Li et al., ICCV 2017): 9,991 images of seven kinds of thing as art painting, cartoon, photo and sketch.",
)


def folder(root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
    """The dataset in `root`, laid out as ROOT/<domain>/<class>/*.jpg; the last domain is the default target.

    Args:
        root: Contains one folder per domain with one folder per class; all domains have the same classes.
        image_size: S of the images (N, 3, S, S), in pixels.
        progress: Called with (done, total) after each image that is decoded.
        say: Called with one line if the image cache is of no use.
    """
    _check_folder(root)
    places = _folders(root)
    if len(places) < 2:
        got = ", ".join(place.name for place in places) or "none"
        raise ValueError(f"want at least two domains in {root} ({LAYOUT}), got {got}")
    domains, classes = read_domains(places, image_size, progress, say)
    about = f"The user's own images: {len(domains)} domains, {len(classes)} classes."
    return Dataset("folder", classes, domains, domains[-1].name, about, _limits(image_size), flip=True, translate=0.1)


def read_domains(
    places: Sequence[Path], image_size: int, progress: Progress | None = None, say: Say | None = None
) -> tuple[tuple[Domain, ...], tuple[str, ...]]:
    """The domains in the folders `places`, and their classes, sorted; all domains must have the same."""
    for place in places:
        for named in (place, *_folders(place)):
            check_name(named.name, str(place.parent))
    found = {place: [klass.name for klass in _folders(place)] for place in places}
    classes = sorted({name for names in found.values() for name in names})
    if not classes:
        raise ValueError(f"want a folder per class in {places[0]} ({LAYOUT}), got none")
    for place, names in found.items():
        for name in classes:
            if name not in names:
                raise ValueError(f"want the class {name} in {place}, as in the other domains; got no such folder")
    files = {place: [_images(place / name) for name in classes] for place in places}
    paths = [path for lists in files.values() for paths in lists for path in paths]
    pixels = stored_images(paths, image_size, progress, say)
    domains, start = [], 0
    for place, lists in files.items():
        counts = torch.tensor([len(paths) for paths in lists])
        labels = torch.arange(len(classes)).repeat_interleave(counts)
        domains.append(Domain(place.name, pixels[start : start + len(labels)], labels))
        start += len(labels)
    return tuple(domains), tuple(classes)


def _check_folder(root: Path) -> None:
    if not root.exists():
        raise FileNotFoundError(f"want a folder ({LAYOUT}), got {root}, which does not exist")
    if not root.is_dir():
        raise ValueError(f"want a folder ({LAYOUT}), got the file {root}")


def _entries(place: Path) -> list[Path]:
    """The entries of the folder, sorted by name, without hidden files and __MACOSX folders."""
    try:
        return sorted(path for path in place.iterdir() if not path.name.startswith((".", "__MACOSX")))
    except OSError as error:
        raise ValueError(f"want a readable folder in {place}, got: {error.strerror}") from None


def _folders(place: Path) -> list[Path]:
    """The folders in `place`, without symbolic links to `place` or its parents."""
    parents = {place.resolve(), *place.resolve().parents}
    return [path for path in _entries(place) if path.is_dir() and not (path.is_symlink() and path.resolve() in parents)]


def _images(place: Path) -> list[Path]:
    """The image files of one class, sorted by name."""
    paths = [path for path in _entries(place) if path.suffix.lower() in SUFFIXES and not path.is_dir()]
    if not paths:
        raise ValueError(f"want at least one image ({', '.join(SUFFIXES)}) in {place}, got none")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"want a readable image in {path}, got: not a regular file")
    return paths


def _limits(image_size: int) -> str:
    return (
        f"Images are stretched to {image_size} x {image_size} pixels; figures do not compare with published ones "
        "at another size."
    )


IN_FOLDERS: Mapping[str, Callable[[Path, int, Progress | None, Say | None], Dataset]] = {
    "folder": folder,
    "pacs": PACS.load,
}
