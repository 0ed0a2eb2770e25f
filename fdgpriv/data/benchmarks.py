"""Published domain generalization benchmarks that are folders of images, as their authors, Dassl or DomainBed lay them out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fdgpriv.data.dataset import Dataset
from fdgpriv.data.folder import check_folder, folders, limits, read_domains
from fdgpriv.data.image_cache import Say
from fdgpriv.data.images import Progress
from fdgpriv.data.names import DOMAINS

SPLITS = ("train", "crossval", "val", "test")  # as folders between domain and class; all are read


@dataclass(frozen=True)
class Benchmark:
    """A published dataset and its folders, ROOT/<domain>/<class>/*.jpg or ROOT/<domain>/<split>/<class>/*.jpg.

    Names of folders are compared without regard to case, with blanks and hyphens as underscores.

    Attributes:
        name: Its name on the command line; its domains are those of `names.DOMAINS`.
        unpacked: The folders that it unpacks to; the root may be one of these or the folder that one lies in.
        also: By domain, other names of its folder.
        classes: Number of classes.
        default_target: The target domain when the user names none.
        about: Description, for reports.
        flip, translate: The augmentations that keep the class (see Dataset).
        split: Whether folders may lie between domain and class, named as splits are; of DomainNet ``train`` is a class.
    """

    name: str
    unpacked: tuple[str, ...]
    also: Mapping[str, str]
    classes: int
    default_target: str
    about: str
    flip: bool = True
    translate: float = 0.1
    split: bool = True

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains, in the authors' order."""
        return DOMAINS[self.name]

    def load(self, root: Path, image_size: int, progress: Progress | None = None, say: Say | None = None) -> Dataset:
        """The dataset below `root`, images (N, 3, S, S) uint8 with S = `image_size`.

        Raises:
            FileNotFoundError: A domain's folder is missing.
            ValueError: The classes are not the published ones in number, or not the same in all domains.
        """
        check_folder(root)
        places = [root, *(place for place in folders(root) if _plain(place.name) in map(_plain, self.unpacked))]
        found = max(map(self._domains_in, places), key=len)
        if missing := [name for name in self.domains if name not in found]:
            raise FileNotFoundError(
                f"want the folders {', '.join(self.domains)} of {self.name} in {root} or {root / self.unpacked[0]}; "
                f"missing: {', '.join(missing)}"
            )
        domains, classes = read_domains(
            {name: self._splits(place) for name, place in found.items()}, image_size, progress, say
        )
        if len(classes) != self.classes:
            raise ValueError(f"want the {self.classes} classes of {self.name} in {root}, got {len(classes)}")
        return Dataset(
            self.name,
            classes,
            domains,
            self.default_target,
            self.about,
            limits(image_size),
            flip=self.flip,
            translate=self.translate,
        )

    def _domains_in(self, place: Path) -> dict[str, Path]:
        """The folders of the domains in this one; without those that are missing."""
        by_name = {_plain(entry.name): entry for entry in folders(place)}
        found = {name: by_name.get(name, by_name.get(self.also.get(name, ""))) for name in self.domains}
        return {name: entry for name, entry in found.items() if entry}

    def _splits(self, domain: Path) -> list[Path]:
        """The folders that hold a domain's classes: its splits, or the domain itself."""
        return [entry for entry in folders(domain) if self.split and _plain(entry.name) in SPLITS] or [domain]


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")


BENCHMARKS = (
    Benchmark(
        name="pacs",
        unpacked=("PACS", "kfold", "images"),
        also={},
        classes=7,
        default_target="sketch",
        about="PACS (Li et al., ICCV 2017): 9,991 images of seven kinds of thing as art painting, cartoon, photo and sketch.",
    ),
    Benchmark(
        name="office_home",
        unpacked=("office_home", "OfficeHome", "OfficeHomeDataset_10072016", "office_home_dg"),
        also={},
        classes=65,
        default_target="real_world",
        about="Office-Home (Venkateswara et al., CVPR 2017): 15,588 images of 65 kinds of thing in offices and homes, as "
        "art, clipart, product images and photographs.",
    ),
    Benchmark(
        name="vlcs",
        unpacked=("VLCS",),
        also={"caltech": "caltech101", "pascal": "voc2007", "sun": "sun09"},
        classes=5,
        default_target="sun",
        about="VLCS (Fang et al., ICCV 2013): 10,729 photographs of five kinds of thing, from Caltech-101, LabelMe, "
        "PASCAL VOC 2007 and SUN09.",
    ),
    Benchmark(
        name="digits_dg",
        unpacked=("digits_dg",),
        also={},
        classes=10,
        default_target="syn",
        about="Digits-DG (Zhou et al., ECCV 2020): 24,000 images of digits, from MNIST, MNIST-M, SVHN and synthetic ones.",
        flip=False,
    ),
    Benchmark(
        name="domainnet",
        unpacked=("domainnet", "domain_net"),
        also={},
        classes=345,
        default_target="sketch",
        about="DomainNet (Peng et al., ICCV 2019): some 590,000 images of 345 kinds of thing, as clipart, infographics, "
        "paintings, quick drawings, photographs and sketches.",
        split=False,
    ),
)
