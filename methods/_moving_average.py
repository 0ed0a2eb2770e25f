"""The moving average of a hypernetwork's parameters (Bartholet et al., 2024, Alg. 4), and what it is good for.

As the paper has it the average takes the place of the parameters (``replace``): the next step starts from it, so that with
decay a the average of theta + step and theta is theta + a step. It scales the step by a and does nothing else. ``shadow``
is what others call EMA: the parameters train on, the average is what clients are sent and what is evaluated.
"""

from copy import deepcopy

import torch

from ._hypernetwork import Hypernetwork

EMAS = ("replace", "shadow", "off")


class MovingAverage:
    """Follows a hypernetwork from round to round.

    Args:
        network: Followed; in the mode ``replace`` also overwritten.
        mode: One of `EMAS`.
        decay: a, the weight of the new parameters.
        warmup: w: up to and including this round the average is the parameters.
        embeddings: Whether nu is averaged too; it is copied otherwise.
    """

    def __init__(self, network: Hypernetwork, mode: str, decay: float, warmup: int, embeddings: bool) -> None:
        self.network, self.mode, self.decay, self.warmup, self.embeddings = network, mode, decay, warmup, embeddings
        self.average = network if mode == "off" else deepcopy(network)

    @property
    def served(self) -> Hypernetwork:
        """The hypernetwork that makes the clients' models."""
        return self.average if self.mode == "shadow" else self.network

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
