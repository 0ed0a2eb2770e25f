"""The truth that predictions are scored against; no attack sees it."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.metrics.networks import SHIPPED, MetricNetworks


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The truth that the prediction for an observation is scored against.

    Attributes:
        source: (N, 3, H, W) images among which the artifact's are, shared by ground truths.
        index: (n,) indices of the artifact's images, or of a fixed sample of these if there are many.
        labels: (n,) of those images.
        histogram: (K,) label distribution of all of the artifact's images.
        domain: Index of the main domain among the sources.
        positions: (T,) position of the true image in each line-up.
        candidates: (T, N) indices into the pool: the line-ups.
        pool: (P, 3, H, W) all candidate images, shared by all ground truths.
        members: (N,) whether each membership candidate is an image of the attacked client.
        trained_by: (N,) number of the client that trained on each membership candidate; -1 for held-out images.
        senders: Numbers of the clients whose artifacts are read: the attacked client's, a control's, or both of a mixture.
        count: Number of images of the artifact.
        earlier_index: Index of the client's artifact in `Adversary.earlier`; -1 if there is none.
        membership_candidates: (N,) indices into the pool.
        contributions: (n, D) contribution of each of `images` to the artifact, before any defense; (0, 0) if the task
            does not need it.
        mean_image: (3, H, W) mean of all images of the artifact; empty if the task does not need it, and for a global
            artifact.
        metric_networks: Networks that compare images with these.
    """

    source: Tensor
    index: Tensor
    labels: Tensor
    histogram: Tensor
    domain: int
    positions: Tensor
    candidates: Tensor
    pool: Tensor
    members: Tensor
    trained_by: Tensor
    senders: tuple[int, ...]
    count: int
    earlier_index: int
    membership_candidates: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    contributions: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    mean_image: Tensor = field(default_factory=lambda: torch.empty(0))
    metric_networks: MetricNetworks = SHIPPED

    @property
    def images(self) -> Tensor:
        """(n, 3, H, W): the artifact's images, or the sample of them."""
        return self.source[self.index]

    @property
    def non_members(self) -> Tensor:
        """(N,): which membership candidates are non-members: neither members nor images that a sender trained on."""
        return ~(self.members | torch.isin(self.trained_by, torch.tensor(self.senders, dtype=torch.int64)))

    @property
    def line_up(self) -> Tensor:
        """(N, 3, H, W): the first line-up's images."""
        return self.pool[self.candidates[0]]
