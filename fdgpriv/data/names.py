"""Names, domains and descriptions of the datasets; reads no images."""

from collections.abc import Mapping

from fdgpriv.utils.suggestions import did_you_mean

DOMAINS: Mapping[str, tuple[str, ...]] = {
    "digits": ("scan", "blend", "type", "outline"),
    "folder": (),  # given by the user's folder
    "iwildcam": (),  # locations of its table
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
    "office_home": ("art", "clipart", "product", "real_world"),
    "vlcs": ("caltech", "labelme", "pascal", "sun"),
    "digits_dg": ("mnist", "mnist_m", "svhn", "syn"),
    "domainnet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "camelyon17": ("hospital_0", "hospital_1", "hospital_2", "hospital_3", "hospital_4"),
}
DEFAULT_TARGETS: Mapping[str, str] = {  # of `folder` the last one
    "digits": "blend",
    "pacs": "sketch",
    "office_home": "real_world",
    "vlcs": "sun",
    "digits_dg": "syn",
    "domainnet": "sketch",
    "camelyon17": "hospital_2",
    "iwildcam": "test",
}
ABOUT: Mapping[str, str] = {
    "digits": "Real handwritten digits (the 1,797 UCI scans that scikit-learn carries) and rendered type as four domains of "
    "32 x 32 RGB: `scan` (the scans as they are), `blend` (scans blended with patches of two photographs, as MNIST-M "
    "is), `type` (digits set in matplotlib's fonts, with colour, rotation and clutter), `outline` (contours of scans). "
    "No scan serves two domains.",
    "folder": "The user's own images",
    "pacs": "PACS (Li et al., ICCV 2017): 9,991 images of seven kinds of thing as art painting, cartoon, photo and sketch.",
    "office_home": "Office-Home (Venkateswara et al., CVPR 2017): 15,588 images of 65 kinds of thing in offices and homes, as "
    "art, clipart, product images and photographs.",
    "vlcs": "VLCS (Fang et al., ICCV 2013): 10,729 photographs of five kinds of thing, from Caltech-101, LabelMe, "
    "PASCAL VOC 2007 and SUN09.",
    "digits_dg": "Digits-DG (Zhou et al., ECCV 2020): 24,000 images of digits, from MNIST, MNIST-M, SVHN and synthetic ones.",
    "domainnet": "DomainNet (Peng et al., ICCV 2019): some 590,000 images of 345 kinds of thing, as clipart, infographics, "
    "paintings, quick drawings, photographs and sketches.",
    "camelyon17": "Camelyon17-WILDS (Bandi et al., 2018; Koh et al., ICML 2021): 455,954 patches of lymph node sections from "
    "five hospitals, numbered from 0; whether the middle has tumour.",
    "iwildcam": "iWildCam2020-WILDS (Beery et al., 2020; Koh et al., ICML 2021): 203,029 photographs of 323 camera traps, of "
    "182 species or none; the locations of the official split `train` are source domains, its `test` and `val` of other "
    "locations are targets.",
}
LAYOUT = "ROOT/<domain>/<class>/*.jpg"  # of all folder datasets but those in `LAYOUTS`
GIVEN_LAYOUT = "ROOT/<domain>/<client>/<class>/*.jpg"  # of --partition given
LAYOUTS: Mapping[str, str] = {
    "camelyon17": "ROOT/metadata.csv and ROOT/patches/patient_*/patch_patient_*.png",
    "iwildcam": "ROOT/metadata.csv, ROOT/categories.csv and ROOT/train/*.jpg",
}
FOUND_DOMAINS: Mapping[str, str] = {
    "folder": "the folders of the root",
    "iwildcam": "location_000 and so on, as the table has them; only test and val are targets",
}
DEFAULT_SIZE = 32  # pixels
LEAST_IMAGES = 20  # of a domain: some are held out, and some are public
SIZES = range(8, 1025)  # pixels


def names() -> tuple[str, ...]:
    """The names of the datasets, the default first."""
    return tuple(DOMAINS)


def check_dataset(name: str) -> None:
    """Raises ValueError, with the known names, if no dataset has this name."""
    if name not in DOMAINS:
        raise ValueError(f"want a dataset of {', '.join(DOMAINS)}; got {name!r}{did_you_mean(name, DOMAINS)}")


def check_domain(dataset: str, domain: str) -> None:
    """Raises ValueError, with the known names, if this dataset has no such domain; those in `FOUND_DOMAINS` accept all."""
    if DOMAINS[dataset] and domain not in DOMAINS[dataset]:
        known = DOMAINS[dataset]
        raise ValueError(f"want a domain of {', '.join(known)}; got {domain!r}{did_you_mean(domain, known)}")


def check_size(pixels: int) -> None:
    """Raises ValueError if `pixels` is outside the supported image sizes."""
    if pixels not in SIZES:
        raise ValueError(f"want an image size of {SIZES[0]} to {SIZES[-1]} pixels, got {pixels}")
