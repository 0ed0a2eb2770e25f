"""Made-up artifacts, records, truths and questions for the tests of the core; each takes what a test wants to be otherwise."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.federation.transcript import Record
from fdgpriv.simulation.ground_truth import GroundTruth

PLACE = {"granularity": "client", "at": "layer1", "rule": "paper_eps"}


def style(
    client: str = "photo", round: int = 0, channels: int = 4, *, variances: bool = True, **changes: Any
) -> StyleStatistics:
    """Random style statistics, other ones in each round."""
    parts = torch.rand(4, channels, generator=torch.Generator().manual_seed(round))
    tensors = dict(zip(("mean", "std", "mean_var", "std_var"), parts, strict=True))
    if not variances:
        tensors |= {"mean_var": torch.empty(0), "std_var": torch.empty(0)}
    return StyleStatistics(**{"client": client, "round": round, **tensors, **PLACE, **changes})


def draft(
    images: int = 5, channels: int = 3, *, client: str = "photo", round: int = 0, scale: float = 1.0, **changes: Any
) -> StyleDraft:
    """Random styles of `images` images, to be averaged by what protects them."""
    rng = torch.Generator().manual_seed(round)
    mean = scale * torch.randn(images, channels, generator=rng)
    std = scale * torch.rand(images, channels, generator=rng)
    given = {"client": client, "round": round, "mean": mean, "std": std, "variances": True, **PLACE, **changes}
    return StyleDraft(**given)


def model_state(client: str = "photo", round: int = 0, **tensors: Tensor) -> ModelState:
    """Two tensors, one of which counts, or those that are given."""
    made = {"weight": torch.arange(6.0).view(3, 2) + round, "bn.num_batches_tracked": torch.tensor(3)}
    return ModelState(client=client, round=round, state=tensors or made)


def sample_count(client: str = "photo", round: int = 0, count: int = 17) -> SampleCount:
    return SampleCount(client=client, round=round, count=torch.tensor(count))


def crossing(artifact: Artifact, sender: str, receiver: str, verb: str = "fit") -> Record:
    return Record.of(artifact, sender, receiver, verb, samples=10, clients=1)


def truth(images: Tensor | None = None, **changes: Any) -> GroundTruth:
    """The truth of one image of class 0 (or of `images`), which is the only candidate of its line-up and a member."""
    images = torch.zeros(1, 3, 2, 2) if images is None else images
    zero = torch.zeros(1, dtype=torch.int64)
    made = GroundTruth(
        source=images,
        index=torch.arange(len(images)),
        labels=torch.zeros(len(images), dtype=torch.int64),
        histogram=torch.ones(10) / 10,
        domain=0,
        positions=zero,
        candidates=zero[None],
        pool=images,
        members=zero == 0,
        trained_by=torch.full_like(changes.get("members", zero), -1, dtype=torch.int64),
        senders=(0,),
        count=1,
        earlier_index=-1,
    )
    return replace(made, **changes)


def observation(artifact: Artifact, images: int = 1, membership_candidates: Tensor | None = None) -> Observation:
    """What is behind this artifact of so many images? One candidate, and one membership candidate unless they are given."""
    zero = torch.zeros(1, dtype=torch.int64)
    return Observation(artifact, images, zero[None], zero if membership_candidates is None else membership_candidates)
