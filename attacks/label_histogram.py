"""Label histogram: infers the class distribution of the images from an artifact (hypothesis H-S2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import BatchNormStatistics, ClassifierHead, ImportanceWeights, ModelState, ModelUpdate
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.artifacts.statistics import ClientEmbedding, LabelMarginal
from fdgpriv.artifacts.style import AmplitudeSpectrum, StyleStatistics
from fdgpriv.attack import FEW_GROUP_SIZES, Attack, GroupSizes
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.statistics.kernel_ridge import KernelRidge
from fdgpriv.tasks.label_shares import LabelShares, as_shares
from fdgpriv.utils.fields import PositiveFloat, PositiveInt, TwoOrMore

from ._last_layer import centred_shares, reads_last_layer
from ._simulation import ALPHAS, Vectors, nearest_size, received_models, simulate, simulated
from ._style_labels import ReadStyles, reads_style, style_shares


@dataclass(frozen=True)
class LabelHistogram(Attack):
    """Growth of the last layer, or style, beside other clients' where these are seen, else regression on simulated clients.

    Attributes:
        simulations: Simulated clients of each size. An adversary that practises on other looks of its images simulates a
            third: what limits it are the looks.
        looks: Number of other looks for an adversary that practises on them: more than for other attacks, as labels must
            be read in any.
        in_each: Number of images in each of them.
        expensive_simulations: The same where simulating one takes a training.
        last_layer_simulations: Simulated clients that tell how a last layer grows with label shares.
        style_simulations: Simulated clients of each domain and round that tell the influence of each image on a style.
        rounds: At most so many rounds of styles are read, evenly spread.
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
        AmplitudeSpectrum,
        ClassPrototypes,
    )
    task = LabelShares()
    threats = ("server", "client", "third_party")
    learned = True

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {
            "simulations": 60,
            "expensive_simulations": 6,
            "last_layer_simulations": 9,
            "style_simulations": 24,
            "rounds": 2,
            "looks": 12,
            "in_each": 30,
        },
        "thorough": {
            "simulations": 3000,
            "expensive_simulations": 80,
            "last_layer_simulations": 60,
            "style_simulations": 200,
            "rounds": 16,
        },
    }

    simulations: Annotated[int, Field(ge=6)] = 600
    looks: PositiveInt = 24
    in_each: PositiveInt = 60
    expensive_simulations: TwoOrMore = 32
    last_layer_simulations: TwoOrMore = 24
    style_simulations: TwoOrMore = 50
    rounds: PositiveInt = 6
    alphas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = ALPHAS

    @classmethod
    def sizes(cls, series: ArtifactSeries[Simulator]) -> GroupSizes:
        return FEW_GROUP_SIZES if series.expensive else (1, 5, None)

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Tensor:
        predictions: list[Tensor | None] = [None] * len(observations)
        practising = adversary.with_looks(self.looks, self.in_each)
        for i, observation in enumerate(observations):
            if nearest_size(adversary, observation) == adversary.typical and reads_last_layer(adversary, observation):
                predictions[i] = centred_shares(adversary, observation, self.last_layer_simulations)
            elif reads_style(adversary, observation):
                predictions[i] = style_shares(practising, observation, ReadStyles(self.style_simulations, self.rounds))
        rest = [i for i, shares in enumerate(predictions) if shares is None]
        if rest:
            for i, shares in zip(rest, self._regressed(adversary, [observations[i] for i in rest]), strict=True):
                predictions[i] = shares
        return torch.stack([shares for shares in predictions if shares is not None])

    def _regressed(self, adversary: Adversary, observations: Sequence[Observation]) -> Tensor:
        """Distributions (M, K) by regression on simulated artifacts of the nearest sizes."""
        adversary = adversary.with_looks(self.looks, self.in_each)
        cheap = self.simulations // (3 if adversary.expects_other_looks else 1)
        count = self.expensive_simulations if adversary.expensive else cheap
        received = received_models(observations)
        wanted = {nearest_size(adversary, observation) for observation in observations}
        sizes_used = [size for size in adversary.sizes if size in wanted]
        clients = [
            (client, size) for size in sizes_used for client in simulated(adversary, size, count, received, self.alphas)
        ]
        inputs, shares = (torch.stack(rows) for rows in zip(*((c.vector, c.shares) for c, _ in clients), strict=True))
        sizes = torch.tensor([size for _, size in clients])
        image_of = torch.stack([c.members[0] for c, _ in clients])  # used of single images only
        look_of = torch.tensor([c.domain for c, _ in clients])
        if not adversary.expensive and not adversary.needs_all_clients and 1 in sizes_used:
            single_images = simulate(adversary, 1)
            is_single = single_images.sizes == 1
            labels = torch.nn.functional.one_hot(single_images.labels, adversary.classes).float()
            inputs, shares = torch.cat([inputs, single_images.inputs[is_single]]), torch.cat([shares, labels])
            sizes = torch.cat([sizes, single_images.sizes[is_single]])
            image_of = torch.cat([image_of, torch.stack([members[0] for members in single_images.members])[is_single]])
            look_of = torch.cat([look_of, single_images.of_artifacts[is_single]])
        groups = look_of if adversary.expects_other_looks else image_of
        n_images = torch.tensor([observation.n_images for observation in observations])
        return _regressed_shares(Vectors(inputs, sizes), shares, groups, adversary.vectors(observations), n_images)


def _regressed_shares(simulated: Vectors, shares: Tensor, groups: Tensor, vectors: Tensor, n_images: Tensor) -> Tensor:
    """Distributions (M, K) of observed artifacts by linear or kernel ridge regression, whichever errs less.

    Of single images, which are simulated several times each, what errs less is found with all of a group left out, by the
    score of the predictions: the squared error prefers a penalty under which they are alike, and the most likely label
    hardly depends on the artifact.

    Args:
        simulated: Training artifacts.
        shares: (P, K) of each label among their images.
        groups: (P,) those that a single image is read without: of its look, where the observed ones will have yet another
            (other looks of the same images remain), or of the image itself.
        vectors: (M, D) vectors of the observed artifacts.
        n_images: (M,) how many images each contains; the regression of the nearest simulated size is used.
    """
    nearest = simulated.nearest_sizes(n_images)
    predictions = torch.empty(len(vectors), shares.shape[1])
    for size in nearest.unique().tolist():
        learn, observed = simulated.sizes == size, nearest == size
        inputs, label_shares = simulated.inputs[learn], shares[learn]
        center, spread = inputs.mean(0), inputs.std(0) + 1e-8
        left_out, loss = (groups[learn], _share_wrong) if size == 1 else (None, None)
        both = [
            KernelRidge((inputs - center) / spread, label_shares, kernel, left_out, loss)
            for kernel in ("linear", "rbf")
        ]
        model = min(both, key=lambda model: model.loss)  # on all inputs: on a few a line errs less
        predictions[observed] = as_shares(model((vectors[observed] - center) / spread), n_images[observed])
    return predictions


def _share_wrong(predicted: Tensor, shares: Tensor) -> Tensor:
    """(): the share of single images whose label is not the predicted one."""
    predicted_labels = as_shares(predicted, torch.ones(len(predicted)))
    return (predicted_labels - shares).abs().sum(1).mean() / 2
