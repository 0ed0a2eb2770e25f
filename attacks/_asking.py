"""What models say of images: of the suspects they are asked about, and of public images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
from fdgpriv.exam import Question
from fdgpriv.utility import logits


@dataclass(frozen=True, eq=False)
class Told:
    """Logits (S, N, K) of S models on the images of the pool at `index` (N,), sorted, and (S, M, K) on public ones."""

    index: Tensor
    suspects: Tensor
    public: Tensor

    def of(self, suspects: Tensor) -> Tensor:
        """(S, n, K), of some of them."""
        return self.suspects[:, torch.searchsorted(self.index, suspects)]


@dataclass(frozen=True, eq=False)
class Asking:
    """Asks models, one after the other.

    Attributes:
        network: That the models are states of.
        device: Where.
        pool: (P, 3, H, W) the images that suspects are of.
        public: (M, 3, H, W).
    """

    network: nn.Module
    device: torch.device
    pool: Tensor
    public: Tensor

    def about(self, states: Sequence[ModelState], questions: Sequence[Question], public: bool) -> Told:
        """What they say of all suspects of these questions, and of the public images where these are wanted too."""
        index = torch.cat([question.suspects for question in questions]).unique()
        told = self.logits(states, torch.cat([self.pool[index], self.public if public else self.public[:0]]))
        return Told(index, told[:, : len(index)], told[:, len(index) :])

    @torch.no_grad()
    def logits(self, states: Sequence[ModelState], images: Tensor) -> Tensor:
        """(S, N, K), finite whatever the states hold."""
        told = []
        for state in states:
            state.load_into(self.network)
            told.append(logits(self.network, images, self.device))
        return torch.stack(told).nan_to_num(0.0, 1e6, -1e6)
