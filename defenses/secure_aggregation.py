"""Secure aggregation: the server sees only sums of answers, never one client's answer, where it needs no more."""

from dataclasses import dataclass
from typing import Self

from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure


@dataclass(frozen=True)
class SecureAggregation(Defense):
    """Clients add pairwise masks that cancel in the sum (fdgpriv.federation.secure_sum).

    It hides answers of which the server needs only the mean: model states of federated averaging with their sample counts
    and accuracies, and BatchNorm statistics. Sums are deterministic, so no epsilon is proved: whoever knows the other
    clients' answers (all but one colluding with the server) sees the last one's. The global model is not protected.

    Attributes:
        partial: Accept that the server needs some kinds of answer one by one (styles that it relays, all of hFedF's
            updates), which then stay visible. Without it such methods are refused.
    """

    partial: bool = False

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
        return self

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
