"""The moving average of a hypernetwork's parameters (Bartholet et al., 2024, Alg. 4), and what it is good for.

As the paper has it the average takes the place of the parameters (``replace``): the next step starts from it, so that with
decay a the average of theta + step and theta is theta + a step. It scales the step by a and does nothing else. In the two
others the parameters train on beside their average:

* ``evaluate``: clients are sent models of the parameters in every round, and after the last round, once, the models of the
  average, which are the final ones.
* ``shadow``: clients are sent models of the average in every round. Their updates are pulled back through the average,
  which made those models, and the step so found is made by the parameters. The final models are the average's too.
"""

from copy import deepcopy
from typing import Literal

import torch

from ._hypernetwork import Hypernetwork

EMA = Literal["replace", "evaluate", "shadow", "off"]


class MovingAverage:
    """Follows a hypernetwork from round to round.

    Args:
        network: Followed; in the mode ``replace`` also overwritten.
        mode: What the average is good for.
        decay: a, the weight of the new parameters.
        warmup: w: up to and including this round the average is the parameters.
        embeddings: Whether nu is averaged too; it is copied otherwise.
    """

    def __init__(self, network: Hypernetwork, mode: EMA, decay: float, warmup: int, embeddings: bool) -> None:
        self.network, self.mode, self.decay, self.warmup, self.embeddings = network, mode, decay, warmup, embeddings
        self.average = network if mode == "off" else deepcopy(network)

    @property
    def served(self) -> Hypernetwork:
        """Makes the models that clients train; their updates are pulled back through it."""
        return self.average if self.mode == "shadow" else self.network

    @property
    def final(self) -> Hypernetwork:
        """Makes the models that the training ends with."""
        return self.average if self.mode in ("shadow", "evaluate") else self.network

    @torch.no_grad()
    def follow(self, round: int) -> None:
        """Take in the parameters after the server's step of this round."""
        if self.mode == "off":
            return
        for (name, new), mean in zip(self.network.named_parameters(), self.average.parameters(), strict=True):
            averaged = round > self.warmup and (self.embeddings or name != "embeddings")
            mean.lerp_(new, self.decay if averaged else 1.0)
            if self.mode == "replace":
                new.copy_(mean)
