"""FedGMA: the server scales the mean update by the agreement of the clients' signs (Tenison et al., TMLR 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers
from fdgpriv.federation.setup import Setup
from fdgpriv.utils.fields import Fraction, PositiveFloat

from ._averaging import Aggregation, FederatedAveraging
from ._federation import average, model_state


@dataclass(frozen=True)
class FedGMA(FederatedAveraging):
    """Gradient masked averaging as in the paper; buffers, which have no gradient, are averaged plainly.

    The released codes of two benchmarks multiply an agreement above `agreement` by one plus itself, drop all others, take
    signs of buffers too, or use the threshold as the step size; nothing of that is in the paper.

    Attributes:
        agreement: tau, the agreement in [0, 1] from which on an entry moves by the whole mean update.
        server_lr: eta, the factor of the masked update.
    """

    paper_setup: ClassVar[Setup] = Setup(clients=30, partition="single", backbone="resnet18", image_size=224)

    agreement: Fraction = 0.4
    server_lr: PositiveFloat = 1.0

    @property
    def coupling(self) -> None:
        return None

    def disclosure(self) -> Disclosure:
        common = super().disclosure()
        return replace(common, individual=common.uploads)

    def aggregation(self, federation: Federation) -> "MaskedAverage":
        return MaskedAverage(self)


class MaskedAverage(Aggregation):
    """The step of FedGMA's server."""

    method: FedGMA

    def merge(self, model: nn.Module, answers: Answers, round: int) -> None:
        states, weights = list(model_state(answers).values()), self.method.weights_in(answers)
        merged = average(states, weights)
        for name, parameter in model.named_parameters():
            if name in merged:
                sent = parameter.detach().cpu()
                mask = agreement_mask([state[name] - sent for state in states], self.method.agreement)
                merged[name] = sent + self.method.server_lr * mask * (merged[name] - sent)
        model.load_state_dict(merged, strict=False)


def agreement_mask(updates: Sequence[Tensor], threshold: float) -> Tensor:
    """Factor in [0, 1] of each entry's mean update: 1 where the agreement A = |mean of signs| is at least `threshold`, else A.

    Args:
        updates: Trained minus received entries of M clients, all of one shape.
        threshold: In [0, 1].
    """
    agreement = torch.stack([update.sign() for update in updates]).mean(0).abs()
    return torch.where(agreement >= threshold, 1.0, agreement)
