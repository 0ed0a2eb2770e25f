"""BatchNorm statistics are frozen: they never depend on clients' images."""

from dataclasses import dataclass
from typing import Any

from fdgpriv.defense import Defense, Guarantee

from ._buffers import with_buffers


@dataclass(frozen=True)
class BnFrozen(Defense):
    """Sets `buffers=freeze`: BatchNorm uses the initial statistics throughout, so that the shared ones say nothing."""

    def local_training(self, method: Any) -> Any:
        return with_buffers(method, "freeze", self.name())

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "BatchNorm statistics are those of the initial network; the parameters are shared, unprotected. No finite epsilon.",
        )
