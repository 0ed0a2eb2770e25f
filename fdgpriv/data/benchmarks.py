"""Published domain generalization benchmarks that are folders of images, as their authors, Dassl or DomainBed lay them out."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fdgpriv.data.dataset import Dataset
from fdgpriv.data.folder import check_folder, entries, limits, not_read, read_domains
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import Progress
from fdgpriv.data.names import ABOUT, DEFAULT_TARGETS, DOMAINS
from fdgpriv.data.unread import OUTSIDE, Unread
from fdgpriv.utils.file_names import composed

SPLITS = ("train", "crossval", "val", "test")  # as folders between domain and class; all are read


@dataclass(frozen=True)
class Benchmark:
    """A published dataset and its folders, ROOT/<domain>/<class>/*.jpg or ROOT/<domain>/<split>/<class>/*.jpg.

    Names of folders are compared without regard to case, with blanks and hyphens as underscores.

    Attributes:
        name: Its name on the command line; its domains, default target and description are those of `names`.
        unpacked: The folders that it unpacks to; the root may be one of these or the folder that one lies in.
        also: By domain, other names of its folder.
        classes: Number of classes.
        flip, translate: The augmentations that keep the class (see Dataset).
        split: Whether folders may lie between domain and class, named as splits are; of DomainNet ``train`` is a class.
    """

    name: str
    unpacked: tuple[str, ...]
    also: Mapping[str, str]
    classes: int
    flip: bool = True
    translate: float = 0.1
    split: bool = True

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains, in the authors' order."""
        return DOMAINS[self.name]

    @property
    def default_target(self) -> str:
        """The target domain when the user names none."""
        return DEFAULT_TARGETS[self.name]

    def load(self, root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
        """The dataset below `root`, images (N, 3, S, S) uint8 with S = `image_size`.

        Raises:
            FileNotFoundError: A domain's folder is missing.
            ValueError: The classes are not the published ones in number, or not the same in all domains.
        """
        check_folder(root)
        unpacked = [
            path for path in entries(root, Unread(root)).folders if _plain(path.name) in map(_plain, self.unpacked)
        ]
        folder, by_domain = max(
            ((path, self._domains_in(path)) for path in (root, *unpacked)), key=lambda candidate: len(candidate[1])
        )
        if missing := [name for name in self.domains if name not in by_domain]:
            raise FileNotFoundError(
                f"want the folders {', '.join(self.domains)} of {self.name} in {root} or {root / self.unpacked[0]}; "
                f"missing: {', '.join(missing)}"
            )
        unread, used = Unread(folder), [path for paths in by_domain.values() for path in paths]
        inside = entries(folder, unread)
        unread.add(OUTSIDE, inside.files)
        unread.add(f"folders of no domain of {self.name}", [path for path in inside.folders if path not in used])
        splits = {
            name: [split for path in by_domain[name] for split in self._splits(path, unread)] for name in self.domains
        }
        domains, classes, warnings = read_domains(splits, image_size, unread, progress, say)
        if len(classes) != self.classes:
            raise ValueError(f"want the {self.classes} classes of {self.name} in {root}, got {len(classes)}")
        return Dataset(
            self.name,
            classes,
            domains,
            self.default_target,
            ABOUT[self.name] + not_read(unread, say),
            limits(image_size),
            flip=self.flip,
            translate=self.translate,
            warnings=warnings,
        )

    def _domains_in(self, folder: Path) -> dict[str, list[Path]]:
        """By domain, its folders in this one; without those that are missing."""
        named: dict[str, list[Path]] = defaultdict(list)
        for path in entries(folder, Unread(folder)).folders:
            named[_plain(path.name)].append(path)
        by_domain = {name: named.get(name) or named.get(self.also.get(name, "")) for name in self.domains}
        return {name: paths for name, paths in by_domain.items() if paths}

    def _splits(self, domain: Path, unread: Unread) -> list[Path]:
        """The folders that hold a domain's classes: its splits, or the domain itself."""
        inside = entries(domain, unread)
        splits = [path for path in inside.folders if self.split and _plain(path.name) in SPLITS]
        if not splits:
            return [domain]
        unread.add(OUTSIDE, inside.files)
        unread.add("folders beside splits", [path for path in inside.folders if path not in splits])
        return splits


def _plain(name: str) -> str:
    return composed(name).lower().replace(" ", "_").replace("-", "_")


BENCHMARKS = (
    Benchmark(
        name="pacs",
        unpacked=("PACS", "kfold", "images"),
        also={},
        classes=7,
    ),
    Benchmark(
        name="office_home",
        unpacked=("office_home", "OfficeHome", "OfficeHomeDataset_10072016", "office_home_dg"),
        also={},
        classes=65,
    ),
    Benchmark(
        name="vlcs",
        unpacked=("VLCS",),
        also={"caltech": "caltech101", "pascal": "voc2007", "sun": "sun09"},
        classes=5,
    ),
    Benchmark(
        name="digits_dg",
        unpacked=("digits_dg",),
        also={},
        classes=10,
        flip=False,
    ),
    Benchmark(
        name="domainnet",
        unpacked=("domainnet", "domain_net"),
        also={},
        classes=345,
        split=False,
    ),
)
