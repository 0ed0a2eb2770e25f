"""The population of a recorded training: its clients' images as the user gives them, and public images divided for attacks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fdgpriv.data.dataset import ClientData, Dataset, Domain, digest
from fdgpriv.data.pixels import joined
from fdgpriv.external.given_images import GivenImages, given_images, in_three_channels, with_common_classes
from fdgpriv.federation.held_out import SHARE, held_out_for
from fdgpriv.federation.partition import AUXILIARY_SHARE, Population
from fdgpriv.federation.reserve import reserve
from fdgpriv.utils.seeds import generator

NO_DOMAIN = "an unnamed domain"  # of clients that are given without one
NO_TARGET = "none"  # the unseen domain where no public images of one are given
DATASET = "own_images"


@dataclass(frozen=True, eq=False)
class GivenFederation:
    """A federation's images as its user gives them, in three channels.

    Attributes:
        clients: By name, its training images.
        domain_of: By client, its domain. Clients that are given without one are of `NO_DOMAIN`; if none has one, and the
            public images are of one domain, of that.
        public: By domain, images that adversaries may hold.
        class_names: Of images in folders; empty otherwise.
        channels: 1 or 3, of the images as given.
    """

    clients: Mapping[str, GivenImages]
    domain_of: Mapping[str, str]
    public: Mapping[str, GivenImages]
    class_names: tuple[str, ...]
    channels: int

    @property
    def image_size(self) -> int:
        """S, in pixels."""
        return next(iter(self.clients.values())).pixels.shape[-1]


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
    parts = {client: _with_domain(given, client) for client, given in clients.items()}
    sources = {f"clients[{client!r}]": part for client, (part, _) in parts.items()}
    sources |= {f"public[{domain!r}]": part for domain, part in public.items()}
    given, class_names = with_common_classes(
        {name: given_images(part, name, image_size) for name, part in sources.items()}
    )
    channels = _channels(given)
    only_domain = next(iter(public)) if len(public) == 1 and not any(d for _, d in parts.values()) else NO_DOMAIN
    images = in_three_channels(given.values())
    by_client = dict(zip(clients, images, strict=False))
    for client, of_client in by_client.items():
        if len(of_client.labels) < 2:
            raise ValueError(f"clients[{client!r}]: want at least 2 images, got {len(of_client.labels)}")
    return GivenFederation(
        by_client,
        {client: domain or only_domain for client, (_, domain) in parts.items()},
        dict(zip(public, images[len(clients) :], strict=True)),
        class_names,
        channels,
    )


def recorded_population(given: GivenFederation, classes: int, seed: int, enough: int) -> Population:
    """The population of these clients.

    Public images of a client's domain are divided: each client gets some as if it had held them out, so that there are
    images of its domain that nobody trained on; adversaries hold some; shadow clients are made of the others. Those of a
    domain that no client has are of the unseen domain.

    Args:
        given: The images.
        classes: K, the number of the network's outputs.
        seed: Of the division.
        enough: As of `populate`.

    Raises:
        ValueError: A label is not below K, or several domains of public images are no client's.
    """
    clients, domain_of = given.clients, given.domain_of
    for name, (_, labels, _) in (*clients.items(), *given.public.items()):
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(
                f"{name}: want labels from 0 to {classes - 1}, as the network has {classes} outputs; "
                f"got {int(labels.min())} to {int(labels.max())}"
            )
    sources = tuple(dict.fromkeys(domain_of.values()))
    if len(unseen := [name for name in given.public if name not in sources]) > 1:
        raise ValueError(f"public: want at most one domain that no client has, got {', '.join(unseen)}")
    first = next(iter(clients.values()))
    empty = GivenImages(first.pixels[:0], first.labels[:0])
    domains = {name: Domain(name, *given.public.get(name, empty)[:2]) for name in (*sources, *(unseen or [NO_TARGET]))}
    target = domains[unseen[0] if unseen else NO_TARGET]
    local: dict[str, ClientData] = {}
    shadows: dict[str, ClientData] = {}
    auxiliary: dict[str, Domain] = {}
    of_shadow: dict[str, int] = {}
    rng = generator(seed, 1)
    for d, name in enumerate(sources):
        members = [client for client in clients if domain_of[client] == name]
        images = domains[name].take(torch.randperm(len(domains[name]), generator=rng))
        sizes = [len(clients[client].labels) for client in members]
        most = len(images) // (
            3 * len(members)
        )  # of each client, so that two thirds are left for adversaries and shadows
        start = 0
        for client, size in zip(members, sizes, strict=True):
            stop = start + min(held_out_for(size, SHARE), most)
            local[client] = _client_data(client, clients[client], images.part(start, stop), classes)
            start = stop
        rest = images.part(start, len(images))
        held = min(len(rest), max(2 * classes + 2, int(sum(sizes) * AUXILIARY_SHARE / (1 - AUXILIARY_SHARE))))
        auxiliary[name], shadow_parts = reserve(
            rest.part(0, held), rest.part(held, len(rest)), sizes, classes, None, enough
        )
        for part in shadow_parts:
            shadow = f"shadow-{len(shadows):02d}"
            given_part = GivenImages(part.pixels, part.labels)
            shadows[shadow] = _client_data(shadow, given_part, images.part(0, 0), classes)
            of_shadow[shadow] = d
    whole = [
        Domain(
            name,
            joined([*(clients[client].pixels for client in clients if domain_of[client] == name), domain.pixels]),
            torch.cat([*(clients[client].labels for client in clients if domain_of[client] == name), domain.labels]),
        )
        for name, domain in domains.items()
    ]
    named = given.class_names or tuple(map(str, range(classes)))
    dataset = Dataset(
        name=DATASET,
        classes=named,
        domains=tuple(whole),
        default_target=target.name,
        about=f"The images of {len(clients)} clients of a recorded training in {len(sources)} domains, as its user gave them.",
        limits="Whether these are the images that the clients trained on, only the user knows.",
        sha256=digest(named, whole),
    )
    return Population(
        dataset=dataset,
        target=target,
        sources=sources,
        clients={client: local[client] for client in clients},
        domain_of={client: torch.full((len(data),), sources.index(domain_of[client])) for client, data in local.items()}
        | {shadow: torch.full((len(data),), of_shadow[shadow]) for shadow, data in shadows.items()},
        shadows=shadows,
        auxiliary=auxiliary,
        other_domain=target,
        held={
            name: sum(
                len(local[client]) + len(local[client].held_out_labels)
                for client in clients
                if domain_of[client] == name
            )
            for name in sources
        },
    )


def _with_domain(given: Any, name: str) -> tuple[Any, str]:
    """The images in the user's form, and the domain; "" for none."""
    if isinstance(given, tuple | list) and len(given) in (2, 3) and isinstance(given[-1], str):
        *images, domain = given
        return (images[0] if len(images) == 1 else tuple(images)), domain
    if isinstance(given, tuple | list) and len(given) == 3:
        raise ValueError(f"clients[{name!r}]: want (images, labels, domain) with the domain's name, got {given[2]!r}")
    return given, ""


def _channels(given: Mapping[str, GivenImages]) -> int:
    """The number of channels of all images; ValueError if their shapes differ."""
    first, *others = given
    for name in others:
        if given[name].pixels.shape[1:] != given[first].pixels.shape[1:]:
            shapes = [tuple(given[which].pixels.shape[1:]) for which in (first, name)]
            raise ValueError(f"want images of one shape, got {shapes[0]} of {first} and {shapes[1]} of {name}")
    return given[first].pixels.shape[1]


def _client_data(name: str, images: GivenImages, held_out: Domain, classes: int) -> ClientData:
    return ClientData(
        client=name,
        pixels=images.pixels,
        labels=images.labels,
        held_out_pixels=held_out.pixels,
        held_out_labels=held_out.labels,
        classes=classes,
    )
