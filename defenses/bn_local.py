"""BatchNorm statistics stay on the client: the shared model has only parameters."""

from dataclasses import dataclass

from torch import nn

from fdgpriv.defense import Defense, Guarantee, M

from ._fields import check_normalised, with_buffers


@dataclass(frozen=True)
class BnLocal(Defense):
    """Sets `buffers=keep_local`: batch statistics, which can be inverted to images, do not leave the client."""

    def local_training(self, method: M) -> M:
        return with_buffers(method, "keep_local", self.name())

    def check_model(self, model: nn.Module) -> None:
        check_normalised(model, self.name())

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "BatchNorm statistics of models are not shared; the parameters are, unprotected, and so are those of a classifier "
            "head that a method shares by itself (LSI). No finite epsilon. Accuracies are with statistics that each "
            "evaluated domain recomputes on its own images.",
        )
