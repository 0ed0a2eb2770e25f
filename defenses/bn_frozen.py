"""BatchNorm statistics are frozen: they never depend on clients' images."""

from dataclasses import dataclass

from torch import nn

from fdgpriv.defense import Defense, Guarantee, M

from ._fields import check_normalised, with_buffers


@dataclass(frozen=True)
class BnFrozen(Defense):
    """Sets `buffers=freeze`: BatchNorm uses the initial statistics throughout, so that the shared ones say nothing."""

    def local_training(self, method: M) -> M:
        return with_buffers(method, "freeze", self.name())

    def check_model(self, model: nn.Module) -> None:
        check_normalised(model, self.name())

    def guarantee(self) -> Guarantee:
        return Guarantee(
            None,
            None,
            "BatchNorm statistics are those of the initial network; the parameters are shared, unprotected. No finite epsilon.",
        )
