"""Shuffle: the server receives each round's answers in random order and does not learn who sent which."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fdgpriv.artifacts.parameters import ClassifierHead, ModelUpdate
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure

NEED_NAMES = (ModelUpdate.kind, ClassifierHead.kind)  # hFedF's embeddings and LSI's translator belong to one client


@dataclass(frozen=True)
class Shuffle(Defense):
    """Permutes the answers of the clients asked, as a mix network between clients and server would.

    An answer is not changed, so that what it alone says of its sender's images is not protected. Answers of one client in
    several rounds can no longer be combined by its name, only by their likeness, which `linkage` measures.
    """

    def bound_to(self, sharing: Disclosure) -> Self:
        named = [kind for kind in sharing.uploads if kind in (*NEED_NAMES, *sharing.named)]
        if named:
            raise ValueError(
                f"shuffle: not applicable to {sharing.method}, whose server needs to know whose {named[0]} it receives"
            )
        return self

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        if len(sizes) < 2:
            raise ValueError(f"shuffle: want at least 2 clients, of which any may be the sender; got {len(sizes)}")

    @property
    def anonymous(self) -> bool:
        return True

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "Shuffle: senders are anonymous, answers are unchanged. No finite epsilon without noise on them.",
        )
