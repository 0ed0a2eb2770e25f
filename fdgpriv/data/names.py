"""Names and domains of the datasets; reads no images."""

from collections.abc import Mapping

DOMAINS: Mapping[str, tuple[str, ...]] = {
    "digits": ("scan", "blend", "type", "outline"),
    "folder": (),  # given by the user's folder
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
    "office_home": ("art", "clipart", "product", "real_world"),
    "vlcs": ("caltech", "labelme", "pascal", "sun"),
    "digits_dg": ("mnist", "mnist_m", "svhn", "syn"),
    "domainnet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "camelyon17": ("hospital_0", "hospital_1", "hospital_2", "hospital_3", "hospital_4"),
}
DEFAULT_SIZE = 32  # pixels
SIZES = range(8, 1025)  # pixels


def names() -> tuple[str, ...]:
    """The names of the datasets, the default first."""
    return tuple(DOMAINS)


def check_dataset(name: str) -> None:
    """Raises ValueError, with the known names, if no dataset has this name."""
    if name not in DOMAINS:
        raise ValueError(f"want a dataset of {', '.join(DOMAINS)}; got {name!r}")


def check_domain(dataset: str, domain: str) -> None:
    """Raises ValueError, with the known names, if this dataset has no such domain; `folder` accepts all."""
    if DOMAINS[dataset] and domain not in DOMAINS[dataset]:
        raise ValueError(f"want a domain of {', '.join(DOMAINS[dataset])}; got {domain!r}")


def check_size(pixels: int) -> None:
    """Raises ValueError if `pixels` is outside the supported image sizes."""
    if pixels not in SIZES:
        raise ValueError(f"want an image size of {SIZES[0]} to {SIZES[-1]} pixels, got {pixels}")
