"""Label histogram: infers the class distribution of the images from an artifact (hypothesis H-S2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import BatchNormStatistics, ClassifierHead, ImportanceWeights, ModelState, ModelUpdate
from fdgpriv.artifacts.statistics import ClientEmbedding, LabelMarginal
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import FEW_GROUP_SIZES, Attack, GroupSizes
from fdgpriv.statistics.kernel_ridge import KernelRidge
from fdgpriv.targets.simulator import Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.label_shares import LabelShares
from fdgpriv.utils.fields import PositiveFloat, PositiveInt, TwoOrMore

from ._simulation import ALPHAS, Vectors, received_models, simulate, simulated


@dataclass(frozen=True)
class LabelHistogram(Attack):
    """Linear or kernel ridge regression from artifact to label distribution, fitted on clients simulated from auxiliary images.

    Attributes:
        simulations: Simulated clients of each size. An adversary that practises on other looks of its images simulates a
            third: what limits it are the looks.
        looks: Number of other looks for an adversary that practises on them: more than for other attacks, as labels must
            be read in any.
        in_each: Number of images in each of them.
        expensive_simulations: The same where simulating one takes a training.
        alphas: Dirichlet concentrations: below 1 a few classes, 100 nearly uniform.
    """

    reads = (
        StyleStatistics,
        ModelState,
        ModelUpdate,
        ClassifierHead,
        ImportanceWeights,
        ClientEmbedding,
        BatchNormStatistics,
        LabelMarginal,
    )
    task = LabelShares()
    threats = ("server", "client", "third_party")
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 60, "expensive_simulations": 6, "looks": 12, "in_each": 30},
        "thorough": {"simulations": 3000, "expensive_simulations": 80},
    }

    simulations: Annotated[int, Field(ge=6)] = 600
    looks: PositiveInt = 24
    in_each: PositiveInt = 60
    expensive_simulations: TwoOrMore = 32
    alphas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = ALPHAS

    @classmethod
    def sizes(cls, target: Target[Simulator]) -> GroupSizes:
        return FEW_GROUP_SIZES if target.expensive else (1, 5, None)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        adversary = adversary.with_looks(self.looks, self.in_each)
        cheap = self.simulations // (3 if adversary.expects_other_looks else 1)
        count = self.expensive_simulations if adversary.expensive else cheap
        received = received_models(observations)
        clients = [
            (client, size)
            for size in adversary.sizes
            for client in simulated(adversary, size, count, received, self.alphas)
        ]
        inputs, shares = (torch.stack(rows) for rows in zip(*((c.vector, c.shares) for c, _ in clients), strict=True))
        sizes = torch.tensor([size for _, size in clients])
        if not adversary.expensive and not adversary.joint and 1 in adversary.sizes:
            own = simulate(adversary, 1)
            single = own.sizes == 1
            labels = torch.nn.functional.one_hot(own.labels, adversary.classes).float()
            inputs, shares = torch.cat([inputs, own.inputs[single]]), torch.cat([shares, labels])
            sizes = torch.cat([sizes, own.sizes[single]])
        simulations = Vectors(inputs, sizes)
        n_images = torch.tensor([observation.n_images for observation in observations])
        return _regressed_shares(simulations, shares, adversary.vectors(observations), n_images)


def _regressed_shares(simulated: Vectors, shares: Tensor, vectors: Tensor, n_images: Tensor) -> Tensor:
    """Distributions (M, K) of observed artifacts by linear or kernel ridge regression, whichever errs less, cut at 0, sum 1.

    Of fewer images than there are labels, shares are whole images: the most likely one for a single image.

    Args:
        simulated: Training artifacts.
        shares: (P, K) distributions of the training artifacts.
        vectors: (M, D) vectors of the observed artifacts.
        n_images: (M,) how many images each contains; the regression of the nearest simulated size is used.
    """
    nearest = simulated.nearest_sizes(n_images)
    found = torch.empty(len(vectors), shares.shape[1])
    for size in nearest.unique().tolist():
        learn, some = simulated.sizes == size, nearest == size
        inputs = simulated.inputs[learn]
        center, spread = inputs.mean(0), inputs.std(0) + 1e-8
        both = [KernelRidge((inputs - center) / spread, shares[learn], kernel) for kernel in ("linear", "rbf")]
        # by the error on all inputs: on a few a line errs less
        model = min(both, key=lambda one: float((one.left_out - shares[learn]).square().mean()))
        predicted = model((vectors[some] - center) / spread).clamp_min(0)
        found[some] = predicted / predicted.sum(1, keepdim=True).clamp_min(1e-9)
    few = n_images < shares.shape[1]
    found[few] = _of_whole_images(found[few], n_images[few])
    return found


def _of_whole_images(shares: Tensor, n_images: Tensor) -> Tensor:
    """Shares (M, K) rounded to whole images of `n_images` (M,), those of the largest remainders up."""
    counts = shares * n_images[:, None]
    whole = counts.floor()
    left = (n_images - whole.sum(1)).round()
    rank = (counts - whole).argsort(1, descending=True).argsort(1)
    return (whole + (rank < left[:, None])) / n_images[:, None].clamp_min(1)
