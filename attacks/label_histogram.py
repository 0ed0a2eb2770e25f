"""Label histogram: infers the class distribution of the images from an artifact (hypothesis H-S2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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
from ._simulation import ALPHAS, ReceivedModels, Vectors, nearest_size, received_models, simulate, simulated
from ._style_labels import ReadStyles, reads_style, style_shares


@dataclass(frozen=True, eq=False)
class _Labelled(Vectors):
    """Simulated artifacts with the label shares of their images.

    Attributes:
        shares: (P, K) of each label among the images of each artifact.
        first_images: (P,) the index of its first image, which is the image of a single one.
        looks: (P,) the domain of its images.
    """

    shares: Tensor
    first_images: Tensor
    looks: Tensor

    def followed_by(self, others: "_Labelled") -> "_Labelled":
        """These artifacts and then the others."""
        columns = {field.name: (getattr(self, field.name), getattr(others, field.name)) for field in fields(self)}
        return _Labelled(**{name: torch.cat(rows) for name, rows in columns.items()})


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

    also_called: ClassVar[tuple[str, ...]] = ("label_inference", "label_leakage", "label_distribution")

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
        wanted = {nearest_size(adversary, observation) for observation in observations}
        sizes = [size for size in adversary.sizes if size in wanted]
        simulated_artifacts = self._simulated_clients(adversary, sizes, received_models(observations))
        if 1 in sizes and not adversary.expensive and not adversary.needs_all_clients:
            simulated_artifacts = simulated_artifacts.followed_by(_single_images(adversary))
        n_images = torch.tensor([observation.n_images for observation in observations])
        groups = simulated_artifacts.looks if adversary.expects_other_looks else simulated_artifacts.first_images
        return _regressed_shares(simulated_artifacts, groups, adversary.vectors(observations), n_images)

    def _simulated_clients(self, adversary: Adversary, sizes: Sequence[int], received: ReceivedModels) -> _Labelled:
        """The artifacts of as many simulated clients of each size as the attack is configured for."""
        cheap = self.simulations // (3 if adversary.expects_other_looks else 1)
        count = self.expensive_simulations if adversary.expensive else cheap
        clients = [
            (client, size) for size in sizes for client in simulated(adversary, size, count, received, self.alphas)
        ]
        return _Labelled(
            inputs=torch.stack([client.vector for client, _ in clients]),
            sizes=torch.tensor([size for _, size in clients]),
            shares=torch.stack([client.shares for client, _ in clients]),
            first_images=torch.stack([client.members[0] for client, _ in clients]),
            looks=torch.tensor([client.domain for client, _ in clients]),
        )


def _single_images(adversary: Adversary) -> _Labelled:
    """The artifact of each single auxiliary image."""
    artifacts = simulate(adversary, 1)
    is_single = artifacts.sizes == 1
    return _Labelled(
        inputs=artifacts.inputs[is_single],
        sizes=artifacts.sizes[is_single],
        shares=torch.nn.functional.one_hot(artifacts.labels, adversary.classes).float(),
        first_images=torch.stack([members[0] for members in artifacts.members])[is_single],
        looks=artifacts.of_artifacts[is_single],
    )


def _regressed_shares(simulated: _Labelled, groups: Tensor, vectors: Tensor, n_images: Tensor) -> Tensor:
    """Distributions (M, K) of observed artifacts by linear or kernel ridge regression, whichever errs less.

    Of single images, which are simulated several times each, what errs less is found with all of a group left out, by the
    score of the predictions: the squared error prefers a penalty under which they are alike, and the most likely label
    hardly depends on the artifact.

    Args:
        simulated: Training artifacts.
        groups: (P,) those that a single image is read without: of its look, where the observed ones will have yet another
            (other looks of the same images remain), or of the image itself.
        vectors: (M, D) vectors of the observed artifacts.
        n_images: (M,) how many images each contains; the regression of the nearest simulated size is used.
    """
    nearest = simulated.nearest_sizes(n_images)
    predictions = torch.empty(len(vectors), simulated.shares.shape[1])
    for size in nearest.unique().tolist():
        learn, observed = simulated.sizes == size, nearest == size
        inputs, label_shares = simulated.inputs[learn], simulated.shares[learn]
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
