"""BatchNorm statistics stay on the client: the shared model has only parameters."""

from dataclasses import dataclass

from fdgpriv.defense import Defense, Guarantee, M

from ._fields import with_buffers


@dataclass(frozen=True)
class BnLocal(Defense):
    """Sets `buffers=keep_local`: batch statistics, which can be inverted to images, do not leave the client."""

    def local_training(self, method: M) -> M:
        return with_buffers(method, "keep_local", self.name())

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "BatchNorm statistics are not shared; the parameters are, unprotected. No finite epsilon. Accuracies are with "
            "statistics that each evaluated domain recomputes on its own images.",
        )
