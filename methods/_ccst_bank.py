"""CCST's style bank: draws a style for each copy of an image and makes the stylised copies (Algorithm 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.data.pixels import as_images, as_stored

ApplyStyles = Callable[[Tensor, Sequence[Artifact]], Tensor]  # images (N, 3, H, W), and one style for each
_ROWS = 512  # stylised at once


@dataclass(frozen=True, eq=False)
class Bank:
    """The styles of all clients, as held by one client. CCST takes each client as one domain.

    Attributes:
        domains: Styles by domain: one overall style, or several single-image styles.
        own: Index of the client's own domain, whose styles are never applied, so that it may have none; None if it is not
            in the bank.
    """

    domains: Sequence[Sequence[Artifact]]
    own: int | None

    @classmethod
    def of(cls, message: Message, client: str, own: bool) -> "Bank":
        """Builds the bank from a message to `client`, with or without its own domain.

        Each style that a defense made the server's stands for one client; the client's own may have been withheld.
        """
        domains: dict[str, list[Artifact]] = {}
        for number, style in enumerate(message):
            if own or style.client != client:
                whose = f"{SERVER} {number}" if style.client == SERVER else style.client
                domains.setdefault(whose, []).append(style)
        if own:
            domains.setdefault(client, [])
        return cls(list(domains.values()), list(domains).index(client) if own else None)

    def draw(
        self, n: int, k: int, block: int, rng: torch.Generator, keep_original: bool = False
    ) -> tuple[Tensor, Tensor]:
        """For each of n images, k domains (or all, if fewer) without replacement and one style index in each: both (n, k).

        `block` consecutive images share the style drawn for each domain. With `keep_original` the first of each image's k
        domains is the client's own, and the others are drawn.
        """
        order = torch.rand(n, len(self.domains), generator=rng)
        if keep_original:
            assert self.own is not None
            order[:, self.own] = -1.0
        domains = order.argsort(dim=1)[:, :k]
        blocks = -(-n // block)
        drawn = [torch.randint(max(1, len(styles)), (blocks,), generator=rng) for styles in self.domains]
        styles = torch.stack(drawn, dim=1).repeat_interleave(block, dim=0)[:n]
        return domains, styles.gather(1, domains)

    def transfer(self, pixels: Tensor, domains: Tensor, styles: Tensor, stylise: ApplyStyles) -> Tensor:
        """Images (n * k, 3, H, W): k consecutive copies of each, in the styles drawn; unchanged for the own domain.

        They are stored as `pixels` (n, 3, H, W) are: with 8 bits if these have 8.
        """
        copies = pixels.repeat_interleave(domains.shape[1], dim=0)
        domain, style = domains.flatten().tolist(), styles.flatten().tolist()
        others = torch.tensor([row for row, d in enumerate(domain) if d != self.own], dtype=torch.int64)
        for rows in others.split(_ROWS) if len(others) else ():
            drawn = [self.domains[domain[row]][style[row]] for row in rows.tolist()]
            copies[rows] = as_stored(stylise(as_images(copies[rows]), drawn), pixels)
        return copies
