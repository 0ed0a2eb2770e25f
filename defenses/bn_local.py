"""BatchNorm statistics stay on the client: the shared model has only parameters."""

from dataclasses import dataclass
from typing import Any

from fdgpriv.defense import Defense, Guarantee

from ._buffers import with_buffers


@dataclass(frozen=True)
class BnLocal(Defense):
    """Sets `buffers=keep_local`: batch statistics, which can be inverted to images, do not leave the client."""

    def local_training(self, method: Any) -> Any:
        return with_buffers(method, "keep_local", self.name())

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "BatchNorm statistics are not shared; the parameters are, unprotected. No finite epsilon.",
        )
