"""Moving average of a hypernetwork's parameters (Bartholet et al., 2024, Alg. 4), with three modes of use.

* ``replace`` (the paper): the average replaces the parameters, so the next step starts from it. With decay a the average
  of theta + step and theta is theta + a step: the average only scales the step by a.
* ``evaluate``: clients receive models of the parameters in every round, and once, after the last round, the models of the
  average, which are the final ones.
* ``shadow``: clients receive models of the average in every round. Their updates are backpropagated through the average,
  and the parameters take the resulting step. The final models are those of the average.
"""

from typing import ClassVar, Literal

import torch

from fdgpriv.federation.state import Resumable
from fdgpriv.models.copied import copied

from ._hypernetwork import Hypernetwork

EMA = Literal["replace", "evaluate", "shadow", "off"]


class MovingAverage(Resumable):
    """Moving average of a hypernetwork over rounds.

    Args:
        network: The hypernetwork; overwritten in the mode ``replace``.
        mode: As above, or ``off``.
        decay: a, the weight of the new parameters.
        warmup: Up to and including this round the average equals the parameters.
        embeddings: Whether nu is averaged; otherwise it is copied.
    """

    checkpointed: ClassVar[tuple[str, ...]] = ("average",)

    def __init__(self, network: Hypernetwork, mode: EMA, decay: float, warmup: int, embeddings: bool) -> None:
        self.network, self.mode, self.decay, self.warmup, self.embeddings = network, mode, decay, warmup, embeddings
        self.average = network if mode == "off" else copied(network)

    @property
    def current(self) -> Hypernetwork:
        """The hypernetwork that generates the models sent for training, and backpropagates their updates."""
        return self.average if self.mode == "shadow" else self.network

    @property
    def final(self) -> Hypernetwork:
        """The hypernetwork that generates the final models."""
        return self.average if self.mode in ("shadow", "evaluate") else self.network

    @torch.no_grad()
    def update(self, round: int) -> None:
        """Updates the average after the server's step of this round."""
        if self.mode == "off":
            return
        for (name, new), mean in zip(self.network.named_parameters(), self.average.parameters(), strict=True):
            averaged = round > self.warmup and (self.embeddings or name != "embeddings")
            mean.lerp_(new, self.decay if averaged else 1.0)
            if self.mode == "replace":
                new.copy_(mean)
