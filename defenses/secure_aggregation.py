"""Secure aggregation: the server sees only sums of answers, never one client's answer, where it needs no more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field

from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.utils.fields import PositiveInt


@dataclass(frozen=True)
class SecureAggregation(Defense):
    """Clients add pairwise masks that cancel in the sum (fdgpriv.federation.secure_sum).

    It hides answers of which the server needs only the mean: model states of federated averaging with their sample counts
    and accuracies, and BatchNorm statistics. Sums are deterministic, so no epsilon is proved: all other
    clients together with the server learn the last client's answer. The global model is not protected.

    Attributes:
        partial: Accept that the server needs some kinds of answer one by one (styles that it relays, all of hFedF's
            updates), which then stay visible. Without it such methods are refused.
        colluders: Clients of each sum, the last by name, that tell the server the masks they have in common with others:
            it then knows the honest clients' sum, which is attacked as `honest_mean`.
        participants: Clients of each sum, none for all; set by `bound_to`.
    """

    also_called: ClassVar[tuple[str, ...]] = ("secagg", "masking")

    suggested: ClassVar[tuple[str, ...]] = ("", "partial=true")

    partial: bool = False
    colluders: Annotated[int, Field(ge=0)] = 0
    participants: PositiveInt | None = None

    def bound_to(self, sharing: Disclosure) -> Self:
        open_kinds = ", ".join(kind.replace("_", " ") for kind in sharing.individual)
        if set(sharing.individual) >= set(sharing.uploads):
            raise ValueError(
                f"secure_aggregation: not applicable to {sharing.method}, whose server needs each client's {open_kinds}"
            )
        if sharing.individual and not self.partial:
            raise ValueError(
                f"secure_aggregation: want a server that needs only sums; {sharing.method}'s needs each client's "
                f"{open_kinds}; secure_aggregation:partial=true hides the rest"
            )
        return replace(self, participants=sharing.participants)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        summed = min(len(sizes), self.participants or len(sizes))
        if summed < 2:
            raise ValueError(
                f"secure_aggregation: want sums of at least 2 participants, got {summed}: it hides nothing"
            )
        if self.colluders >= summed:
            raise ValueError(
                f"secure_aggregation: want fewer colluders than the {summed} clients of a sum, got {self.colluders}"
            )

    @property
    def colluding(self) -> int:
        return self.colluders

    @property
    def aggregates(self) -> bool:
        return True

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "Secure aggregation: the server sees sums over clients and not one client's answer. A sum is deterministic, "
            "so there is no finite epsilon, and all other clients together with the server can compute the last one's "
            "answer.",
        )
