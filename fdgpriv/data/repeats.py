"""Finds equal images of a dataset: in two domains, with two labels, or repeated with one label."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from fdgpriv.data.dataset import Dataset, Domain

MOST_PAIRS = 15  # of domains, all of six
Where = tuple[int, int]  # the number of a domain, and of an image in it


def repeats(domains: Sequence[Domain], classes: Sequence[str], files: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """A sentence for each pair of domains with common images, for images with several labels, and for repeated ones.

    Of more than `MOST_PAIRS` pairs those with the most images have one.

    Args:
        domains: All domains.
        classes: The names of the classes.
        files: By domain, the names of its images' files.
    """
    common: Mapping[Where, list[list[Where]]] = defaultdict(list)
    labelled, repeated = list[list[Where]](), list[list[Where]]()
    for group in _equal_images(domains):
        first_in = {domain: (domain, image) for domain, image in reversed(group)}
        for pair in combinations(sorted(first_in), 2):
            common[pair].append([first_in[domain] for domain in pair])
        first_with = {(domain, _label(domains, (domain, image))): (domain, image) for domain, image in group}
        if len({label for _, label in first_with}) > 1:
            labelled.append(list(first_with.values()))
        if len(first_with) < len(group):
            repeated.append(group)

    def example(group: Sequence[Where], label: bool = False) -> str:
        names = [
            files[domain][image] + (f" ({classes[_label(domains, (domain, image))]})" if label else "")
            for domain, image in group[:2]
        ]
        return f"e.g. {' and '.join(names)}"

    pairs = sorted(common.items(), key=lambda pair: -len(pair[1]))
    sentences = [
        f"{_images(groups)} of {domains[a].name} {_are(groups)} also in {domains[b].name}, {example(groups[0])}"
        for (a, b), groups in sorted(pairs[:MOST_PAIRS])
    ]
    if len(pairs) > MOST_PAIRS:
        sentences.append(f"{len(pairs) - MOST_PAIRS:,} more pairs of domains have fewer images in common, or as many")
    if labelled:
        sentences.append(f"{_images(labelled)} with several labels, {example(labelled[0], label=True)}")
    if repeated:
        sentences.append(f"{_images(repeated)} several times in one class of a domain, {example(repeated[0])}")
    return tuple(sentences)


def target_among_sources(dataset: Dataset, target: str) -> str | None:
    """How many images of the target domain are also images of source domains, in a sentence; None if none is."""
    held_out = dataset.domain(target)
    sources = dataset.sources(held_out.name)
    shared = {domain.name: len(set(held_out.digests) & set(domain.digests)) for domain in sources}
    if not any(shared.values()):
        return None
    digests = {digest for domain in sources for digest in domain.digests}
    count = sum(digest in digests for digest in held_out.digests)
    names = [name for name, number in shared.items() if number]
    more = f" and {len(names) - MOST_PAIRS} more" if len(names) > MOST_PAIRS else ""
    where = ", ".join(names[:MOST_PAIRS]) + more
    return (
        f"{count:,} of the {len(held_out):,} images of the target domain {target} are also images of source domains "
        f"({where}): models are trained on what they are tested on, and its accuracy is not one on an unseen domain"
    )


def _equal_images(domains: Sequence[Domain]) -> list[list[Where]]:
    """The groups of at least two equal images, each in the order of the domains."""
    groups: Mapping[bytes, list[Where]] = defaultdict(list)
    for number, domain in enumerate(domains):
        for image, digest in enumerate(domain.digests):
            groups[digest].append((number, image))
    return [group for group in groups.values() if len(group) > 1]


def _label(domains: Sequence[Domain], where: Where) -> int:
    domain, image = where
    return int(domains[domain].labels[image])


def _images(groups: Sequence[object]) -> str:
    return f"{len(groups):,} image{'' if len(groups) == 1 else 's'}"


def _are(groups: Sequence[object]) -> str:
    return "is" if len(groups) == 1 else "are"
