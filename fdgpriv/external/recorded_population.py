"""Builds the population of a recorded training from its clients' images and public images."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from fdgpriv.data.dataset import ClientData, Dataset, Domain, digest
from fdgpriv.data.pixels import joined
from fdgpriv.external.given_images import GivenImages, given_images, in_three_channels, with_common_classes
from fdgpriv.federation.held_out import SHARE, held_out_for
from fdgpriv.federation.message_content import whole_number
from fdgpriv.federation.partition import AUXILIARY_SHARE, Population
from fdgpriv.federation.reserve import reserve
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.user_names import by_plain_name, check_case, plain, shadow_names, unused

NO_DOMAIN = "an unnamed domain"  # of clients without a domain, unless a domain has this name
NO_TARGET = "none"  # the unseen domain, if there are no public images of one, unless a domain has this name
DATASET = "own_images"


@dataclass(frozen=True, eq=False)
class GivenFederation:
    """A federation's images as its user gives them, in three channels.

    Attributes:
        clients: By name, its training images.
        domain_of: By client, its domain. Clients without one get `NO_DOMAIN`, or the domain of all public images if no
            client has a domain.
        public: By domain, images that adversaries may hold.
        class_names: Names of the classes of images in folders, or of labels that are words; empty otherwise.
        channels: 1 or 3, of the images as given.
        notes: Sentences about what folders have besides images.
    """

    clients: Mapping[str, GivenImages]
    domain_of: dict[str, str]
    public: Mapping[str, GivenImages]
    class_names: tuple[str, ...]
    channels: int
    notes: tuple[str, ...] = ()

    @property
    def image_size(self) -> int:
        """S, in pixels."""
        return next(iter(self.clients.values())).pixels.shape[-1]

    def named_as(self, recorded: Collection[str]) -> "GivenFederation":
        """The same federation with the clients' names as they are written in the recording.

        Raises:
            ValueError: Two recorded names are one name.
        """
        spelling = {plain(name): name for name in recorded}
        if len(spelling) < len(recorded):
            other = next(name for name in recorded if spelling[plain(name)] != name)
            raise ValueError(
                f"want different names of recorded clients, got {other!a} and {spelling[plain(other)]!a}, which are one name"
            )
        names = {client: spelling.get(plain(client), client) for client in self.clients}
        return replace(
            self,
            clients={names[client]: images for client, images in self.clients.items()},
            domain_of={names[client]: domain for client, domain in self.domain_of.items()},
        )

    def members(self, domain: str) -> dict[str, int]:
        """By client of this domain, its number of images."""
        return {
            client: len(images.labels) for client, images in self.clients.items() if self.domain_of[client] == domain
        }

    def public_images(self, domain: str) -> Domain:
        """The public images of this domain; there may be none."""
        if domain in self.public:
            return Domain(domain, self.public[domain].pixels, self.public[domain].labels)
        any_images = next(iter(self.clients.values()))
        return Domain(domain, any_images.pixels[:0], any_images.labels[:0])


def given_federation(clients: Mapping[str, Any], public: Mapping[str, Any], image_size: int | None) -> GivenFederation:
    """The federation with these images.

    Args:
        clients: By name, its training images with labels, and its domain if it is known: ``(images, labels, domain)``,
            ``(folder or dataset, domain)``, or without the domain.
        public: By domain, the same without the domain.
        image_size: Side of the images of folders.

    Raises:
        ValueError: Images or labels have another form, or do not fit together.
    """
    for name, given in (("clients", clients), ("public", public)):
        if not isinstance(given, Mapping) or (name == "clients" and not given):
            raise ValueError(f"{name}: want images by name, got {type(given).__name__ if given else 'none'}")
    clients = by_plain_name(_with_text_names(clients), "clients")
    parts = {client: _with_domain(given, client) for client, given in clients.items()}
    domain_of, public = _one_name_per_domain({client: domain for client, (_, domain) in parts.items()}, public)
    sources = {f"clients[{client!r}]": part for client, (part, _) in parts.items()}
    sources |= {f"public[{domain!r}]": part for domain, part in public.items()}
    given, class_names = with_common_classes(
        {name: given_images(part, name, image_size) for name, part in sources.items()}
    )
    channels = _channels(given)
    has_domains = any(domain_of.values())
    only_domain = next(iter(public)) if len(public) == 1 and not has_domains else _no_domain(domain_of, public)
    images = in_three_channels(given.values())
    by_client = dict(zip(clients, images, strict=False))
    for client, client_images in by_client.items():
        if len(client_images.labels) < 2:
            raise ValueError(f"clients[{client!r}]: want at least 2 images, got {len(client_images.labels)}")
    return GivenFederation(
        by_client,
        {client: domain or only_domain for client, domain in domain_of.items()},
        dict(zip(public, images[len(clients) :], strict=True)),
        class_names,
        channels,
        tuple(f"Not read of {name}: {part.unread}." for name, part in given.items() if part.unread),
    )


def _with_text_names(clients: Mapping[Any, Any]) -> dict[str, Any]:
    """The clients, whose names may be numbers as in `record`."""
    names = [name if isinstance(name, str) or (n := whole_number(name)) is None else str(n) for name in clients]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"clients: want different names, got {twice!r} as a number and as text, which are one name")
    return dict(zip(names, clients.values(), strict=True))


def recorded_population(given: GivenFederation, classes: int, seed: int, units_per_domain: int) -> Population:
    """The population of these clients.

    Public images of a client's domain are divided: each client gets a part as if it had held them out, so that there are
    images of its domain that nobody trained on; a part goes to adversaries, and the rest to shadow clients. The domain that
    no client has is the unseen domain.

    Args:
        given: The images.
        classes: K, the number of the network's outputs.
        seed: Of the division.
        units_per_domain: As of `populate`.

    Raises:
        ValueError: A label is not below K, or public images are of several domains that no client has.
    """
    _check_labels(given, classes)
    sources = tuple(dict.fromkeys(given.domain_of.values()))
    if len(unseen := [name for name in given.public if name not in sources]) > 1:
        raise ValueError(f"public: want at most one domain that no client has, got {', '.join(unseen)}")
    public = {name: given.public_images(name) for name in (*sources, *(unseen or [unused(NO_TARGET, sources)]))}
    dataset = _dataset(given, public, classes)
    rng = generator(seed, 1)
    divisions = {
        name: PublicDivision.of(public[name], given.members(name), classes, units_per_domain, rng) for name in sources
    }
    clients = {
        client: _client_data(client, images, divisions[given.domain_of[client]].held_out[client], classes)
        for client, images in given.clients.items()
    }
    shadow_images = [(name, images) for name in sources for images in divisions[name].shadows]
    shadows = {
        shadow: _client_data(shadow, images, public[name].part(0, 0), classes)
        for shadow, (name, images) in zip(shadow_names(len(shadow_images), clients), shadow_images, strict=True)
    }
    domain_of = given.domain_of | dict(zip(shadows, [name for name, _ in shadow_images], strict=True))
    return Population(
        dataset=dataset,
        target=public[dataset.default_target],
        sources=sources,
        clients=clients,
        domain_of={
            name: torch.full((len(data),), sources.index(domain_of[name])) for name, data in (clients | shadows).items()
        },
        shadows=shadows,
        auxiliary={name: division.auxiliary for name, division in divisions.items()},
        other_domain=public[dataset.default_target],
        private_counts={
            name: sum(len(clients[client]) + len(clients[client].held_out_labels) for client in given.members(name))
            for name in sources
        },
    )


@dataclass(frozen=True, eq=False)
class PublicDivision:
    """How the public images of one domain are divided.

    Attributes:
        held_out: By client of the domain, images on which nobody trained.
        auxiliary: Images that adversaries hold.
        shadows: The training images of each shadow client.
    """

    held_out: Mapping[str, Domain]
    auxiliary: Domain
    shadows: Sequence[Domain]

    @classmethod
    def of(
        cls, images: Domain, members: Mapping[str, int], classes: int, units_per_domain: int, rng: torch.Generator
    ) -> "PublicDivision":
        """A random division.

        Args:
            images: All public images of the domain.
            members: By client of the domain, its number of training images.
            classes: K.
            units_per_domain: As of `populate`.
            rng: Shuffles the images.
        """
        shuffled = images.take(torch.randperm(len(images), generator=rng))
        sizes = list(members.values())
        largest = len(images) // (3 * len(members))  # two thirds are left for adversaries and shadow clients
        counts = [min(held_out_for(size, SHARE), largest) for size in sizes]
        stops = list(accumulate(counts))
        held_out = {
            client: shuffled.part(stop - count, stop)
            for client, count, stop in zip(members, counts, stops, strict=True)
        }
        rest = shuffled.part(stops[-1], len(shuffled))
        desired = max(2 * classes + 2, int(sum(sizes) * AUXILIARY_SHARE / (1 - AUXILIARY_SHARE)))
        public, spare = rest.part(0, min(len(rest), desired)), rest.part(min(len(rest), desired), len(rest))
        auxiliary, shadows = reserve(public, spare, sizes, classes, None, units_per_domain)
        return cls(held_out, auxiliary, shadows)


def _check_labels(given: GivenFederation, classes: int) -> None:
    """Raises ValueError if a label is not below the number of classes."""
    for name, (_, labels, *_) in (*given.clients.items(), *given.public.items()):
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(
                f"{name}: want labels from 0 to {classes - 1}, as the network has {classes} outputs; "
                f"got {int(labels.min())} to {int(labels.max())}"
            )


def _dataset(given: GivenFederation, public: Mapping[str, Domain], classes: int) -> Dataset:
    """All images by domain, the clients' first; the last domain is the unseen one."""
    images: dict[str, list[GivenImages | Domain]] = {
        name: [*(given.clients[client] for client in given.members(name)), domain] for name, domain in public.items()
    }
    domains = tuple(
        Domain(name, joined([part.pixels for part in parts]), torch.cat([part.labels for part in parts]))
        for name, parts in images.items()
    )
    *sources, target = public
    class_names = given.class_names or tuple(map(str, range(classes)))
    return Dataset(
        name=DATASET,
        classes=class_names,
        domains=domains,
        default_target=target,
        about=f"The images of {len(given.clients)} clients of a recorded training in {len(sources)} domains, "
        "as its user gave them.",
        limits="Whether these are the images that the clients trained on, only the user knows.",
        sha256=digest(class_names, domains),
    )


def _with_domain(given: Any, name: str) -> tuple[Any, str]:
    """The images in the user's form, and the domain; "" for none."""
    if isinstance(given, tuple | list) and len(given) in (2, 3) and isinstance(given[-1], str):
        *images, domain = given
        if domain and not plain(domain):
            raise ValueError(f"clients[{name!r}]: want the domain's name in visible characters, got {domain!r}")
        return (images[0] if len(images) == 1 else tuple(images)), domain
    if isinstance(given, tuple | list) and len(given) == 3:
        raise ValueError(f"clients[{name!r}]: want (images, labels, domain) with the domain's name, got {given[2]!r}")
    return given, ""


def _one_name_per_domain(
    domain_of: Mapping[str, str], public: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """The clients' domains ("" for none) and the public images, with one name for each domain.

    Raises:
        ValueError: Two names of public images are one name, or two domains differ by upper and lower case only.
    """
    public = by_plain_name(public, "public")
    domain_of = {client: plain(domain) for client, domain in domain_of.items()}
    check_case(dict.fromkeys([*public, *domain_of.values()]), "domains of clients= and public=")
    return domain_of, public


def _no_domain(domain_of: Mapping[str, str], public: Mapping[str, Any]) -> str:
    return unused(NO_DOMAIN, [*domain_of.values(), *public])


def _channels(given: Mapping[str, GivenImages]) -> int:
    """The number of channels of all images; ValueError if their shapes differ."""
    first, *others = given
    for name in others:
        if given[name].pixels.shape[1:] != given[first].pixels.shape[1:]:
            shapes = [tuple(given[which].pixels.shape[1:]) for which in (first, name)]
            raise ValueError(f"want images of one shape, got {shapes[0]} of {first} and {shapes[1]} of {name}")
    return given[first].pixels.shape[1]


def _client_data(name: str, images: GivenImages | Domain, held_out: Domain, classes: int) -> ClientData:
    return ClientData(
        client=name,
        pixels=images.pixels,
        labels=images.labels,
        held_out_pixels=held_out.pixels,
        held_out_labels=held_out.labels,
        classes=classes,
    )
