"""CCST's style bank: draws a style for each copy of an image and makes the stylised copies (Algorithm 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.data.pixels import as_images, as_stored

ApplyStyles = Callable[[Tensor, Sequence[Artifact]], Tensor]  # images (N, 3, H, W), and a style for each
_BATCH_SIZE = 512  # images stylised at once


@dataclass(frozen=True, eq=False)
class Bank:
    """The styles of all clients, as held by one client. CCST takes each client as one domain.

    Attributes:
        domains: Styles by domain: one overall style, or several single-image styles.
        own_domain: Index of the client's own domain, whose styles are never applied, so that it may have none; None if it
            is not in the bank.
    """

    domains: Sequence[Sequence[Artifact]]
    own_domain: int | None

    @classmethod
    def of(cls, message: Message, client: str, with_own: bool) -> "Bank":
        """Builds the bank from a message to `client`, with or without its own domain.

        Each style that a defense attributes to the server is one client's; the client's own style may have been withheld.
        """
        domains: dict[tuple[str, int], list[Artifact]] = {}
        for i, style in enumerate(message):
            if with_own or style.client != client:
                domains.setdefault((style.client, i if style.client == SERVER else 0), []).append(style)
        if with_own:
            domains.setdefault((client, 0), [])
        return cls(list(domains.values()), list(domains).index((client, 0)) if with_own else None)

    def draw(
        self, n: int, k: int, block: int, rng: torch.Generator, keep_original: bool = False
    ) -> tuple[Tensor, Tensor]:
        """For each of n images, k domains (or all, if fewer) without replacement and one style index in each: both (n, k).

        `block` consecutive images share the style drawn for each domain. With `keep_original` the first of each image's k
        domains is the client's own, and the others are drawn.
        """
        order = torch.rand(n, len(self.domains), generator=rng)
        if keep_original:
            assert self.own_domain is not None
            order[:, self.own_domain] = -1.0
        domains = order.argsort(dim=1)[:, :k]
        blocks = -(-n // block)
        style_indices = [torch.randint(max(1, len(styles)), (blocks,), generator=rng) for styles in self.domains]
        styles = torch.stack(style_indices, dim=1).repeat_interleave(block, dim=0)[:n]
        return domains, styles.gather(1, domains)

    def transfer(self, pixels: Tensor, domains: Tensor, styles: Tensor, stylise: ApplyStyles) -> Tensor:
        """Images (n * k, 3, H, W): k consecutive copies of each, in the styles drawn; unchanged for the own domain.

        They are stored in the type of `pixels` (n, 3, H, W): with 8 bits if these have 8 bits.
        """
        copies = pixels.repeat_interleave(domains.shape[1], dim=0)
        domain_of, style_of = domains.flatten().tolist(), styles.flatten().tolist()
        others = torch.tensor(
            [row for row, domain in enumerate(domain_of) if domain != self.own_domain], dtype=torch.int64
        )
        for rows in others.split(_BATCH_SIZE) if len(others) else ():
            drawn_styles = [self.domains[domain_of[row]][style_of[row]] for row in rows.tolist()]
            copies[rows] = as_stored(stylise(as_images(copies[rows]), drawn_styles), pixels)
        return copies
