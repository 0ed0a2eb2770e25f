"""Weights of clients in the averages that a server takes: by shared sample counts (McMahan et al., AISTATS 2017), or equal."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.federation.weights import Weights as Weights

from . import _expected_answers
from ._federation import LocalSGD


@dataclass(frozen=True)
class WeightedSGD(LocalSGD):
    """Local SGD whose results the server averages.

    Attributes:
        weights: Of clients in averages: ``samples``, their numbers of training samples n_k, which they then share; or
            ``uniform``, all equal.
    """

    weights: Weights = "samples"

    def disclosure(self) -> Disclosure:
        common = super().disclosure()
        counts = (SampleCount.kind,) if self.weights == "samples" else ()
        return replace(common, uploads=(*common.uploads, *counts), weights=self.weights)

    def counted(self, data: ClientData, round: int) -> list[SampleCount]:
        """What a client adds to its answer: n_k where clients are weighed by it."""
        if self.weights == "uniform":
            return []
        return [SampleCount(client=data.client, round=round, count=torch.tensor(len(data)))]

    def expected_count(self) -> list[ExpectedArtifact]:
        """Template of `counted`."""
        return [_expected_answers.sample_count()] if self.weights == "samples" else []

    def weights_in(self, answers: Mapping[str, Message]) -> list[float] | None:
        """The clients' weights, in the order of `answers`; None for equal ones."""
        if self.weights == "uniform":
            return None
        return [float(a.count) for message in answers.values() for a in message if isinstance(a, SampleCount)]
