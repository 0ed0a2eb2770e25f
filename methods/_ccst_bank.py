"""CCST's local style transfer: which domain's style each copy of an image takes, and the copies (Algorithm 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact, Message

Redraw = Callable[[Tensor, Sequence[Artifact]], Tensor]  # each image (N, 3, H, W) in its style
_ROWS = 512  # redrawn at once


@dataclass(frozen=True, eq=False)
class Bank:
    """The styles of all domains, as one client holds them.

    Attributes:
        domains: By domain, its styles: one overall style, or several of single images.
        own: Which of them is the client's own, where it is among them.
    """

    domains: Sequence[Sequence[Artifact]]
    own: int | None

    @classmethod
    def of(cls, message: Message, client: str, own: bool) -> "Bank":
        """The bank in a message to `client`, with or without its own styles."""
        domains: dict[str, list[Artifact]] = {}
        for style in message:
            if own or style.client != client:
                domains.setdefault(style.client, []).append(style)
        return cls(list(domains.values()), list(domains).index(client) if client in domains else None)

    def draw(
        self, n: int, k: int, block: int, rng: torch.Generator, keep_original: bool = False
    ) -> tuple[Tensor, Tensor]:
        """For each of n images, k domains without replacement and one style of each: both (n, k).

        `block` consecutive images have each domain's style in common. With `keep_original` the client's own domain is the
        first of each image's k, and the others are drawn.
        """
        order = torch.rand(n, len(self.domains), generator=rng)
        if keep_original:
            assert self.own is not None
            order[:, self.own] = -1.0
        domains = order.argsort(dim=1)[:, :k]
        blocks = -(-n // block)
        drawn = [torch.randint(len(styles), (blocks,), generator=rng) for styles in self.domains]
        styles = torch.stack(drawn, dim=1).repeat_interleave(block, dim=0)[:n]
        return domains, styles.gather(1, domains)

    def transfer(self, images: Tensor, domains: Tensor, styles: Tensor, redraw: Redraw) -> Tensor:
        """Images (n * k, 3, H, W): of each of n images k copies in a row, in the styles drawn; unchanged in one's own."""
        copies = images.repeat_interleave(domains.shape[1], dim=0)
        domain, style = domains.flatten().tolist(), styles.flatten().tolist()
        others = torch.tensor([row for row, d in enumerate(domain) if d != self.own], dtype=torch.int64)
        for rows in others.split(_ROWS) if len(others) else ():
            copies[rows] = redraw(copies[rows], [self.domains[domain[row]][style[row]] for row in rows.tolist()])
        return copies
