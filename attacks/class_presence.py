"""Class presence: a client's classes are those of which it shares a prototype."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.attack import Attack
from fdgpriv.tasks.label_shares import LabelShares, as_shares


@dataclass(frozen=True)
class ClassPresence(Attack):
    """The shares that are expected without the artifact, over the classes that have a prototype.

    Of one image that is its class; of a client that has all classes it is nothing new.
    """

    reads = (ClassPrototypes,)
    task = LabelShares()
    threats = ("server",)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        present = []
        for observation in observations:
            assert isinstance(observation.artifact, ClassPrototypes)
            present.append(observation.artifact.present)
        shares = adversary.hedged_shares.clamp_min(1e-6) * torch.stack(present)
        return as_shares(shares, torch.tensor([observation.n_images for observation in observations]))
