"""Simulates artifacts from an adversary's auxiliary images: of single images, of groups, and of clients.

Where BatchNorm's batch statistics normalise the features, an image's style depends on the other images of its batch. An
adversary does not have those images; it normalises by public images of a domain instead (`frames`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import Domain
from fdgpriv.simulation.amplitude import AmplitudeSimulator
from fdgpriv.simulation.bn_statistics import StatisticsSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.statistics.discriminant import discriminant
from fdgpriv.threat import Capability
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound

from ._batchnorm import BATCH_SIZE, bn_layers, layer_inputs

ALPHAS = (0.5, 2.0, 10.0, 100.0)


def _domain_starts(domains: Sequence[Domain]) -> Tensor:
    """(D + 1,): the position of each domain's first image among all images, and the number of images."""
    return torch.tensor([0, *(len(domain) for domain in domains)]).cumsum(0)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of artifacts that the adversary simulated, defense included.

    Attributes:
        inputs: (M, D) vectors of the artifacts (`Adversary.vector`).
        sizes: (M,) number of images of each artifact.
    """

    inputs: Tensor
    sizes: Tensor

    def standardised(self, inputs: Tensor) -> Tensor:
        """Vectors (M, D) in units of the simulated artifacts' spread."""
        center, spread = center_and_spread(self.inputs)
        return (inputs - center) / spread

    def nearest_sizes(self, n_images: Tensor) -> Tensor:
        """(N,): the simulated sizes nearest in ratio to these numbers of images (N,)."""
        simulated_sizes = self.sizes.unique()
        nearest: Tensor = simulated_sizes[(n_images[:, None] / simulated_sizes[None, :]).log().abs().argmin(1)]
        return nearest


def center_and_spread(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (D,) of rows (M, D), the latter with a floor for entries that hardly vary."""
    spread = rows.std(0)
    return rows.mean(0), spread + 1e-3 * spread.mean() + 1e-8


@dataclass(frozen=True, eq=False)
class SimulatedArtifacts(Vectors):
    """Simulated artifacts with their images.

    Attributes:
        members: For each artifact, the indices of its images in `images`.
        images, labels, domains: All auxiliary images, with their labels and domain numbers.
    """

    members: Sequence[Tensor]
    images: Tensor
    labels: Tensor
    domains: Tensor

    @property
    def of_artifacts(self) -> Tensor:
        """(M,): the domain of each artifact's images."""
        return torch.stack([self.domains[members[0]] for members in self.members])


def simulate(adversary: Adversary, per_size: int, received_model: ModelState | None = None) -> SimulatedArtifacts:
    """Simulates artifacts of each auxiliary image, and of `per_size` groups of each larger size; cached for all attacks.

    The images of a group come from one domain, as a client's do. Where simulation is expensive, only `per_size` single
    images are used.
    """
    domains, (images, labels) = adversary.practice, adversary.practice_images
    step = -(-len(images) // per_size) if adversary.expensive else 1
    single = torch.arange(len(images) if 1 in adversary.sizes else 0)[::step, None]
    of_domain = torch.cat([torch.full((len(domain),), d) for d, domain in enumerate(domains)])
    start = _domain_starts(domains)

    def simulated_vector(index: Tensor, rng: torch.Generator) -> Tensor:
        d = int(of_domain[index[0]])
        return adversary.vector(
            adversary.simulate(domains[d].images, domains[d].labels, index - start[d], rng, received_model),
            received_model,
        )

    def singles() -> list[Tensor]:
        rng = generator(adversary.seed, 17)
        return [simulated_vector(index, rng) for index in single]

    def group(size: int, turn: int) -> tuple[Tensor, Tensor]:
        rng, d = generator(adversary.seed, 23, size, turn), turn % len(domains)
        index = start[d] + torch.randperm(len(domains[d]), generator=rng)[:size]
        return index, simulated_vector(index, rng)

    requests = [(size, turn) for size in adversary.sizes if size > 1 for turn in range(per_size)]
    groups = [
        adversary.cache.get((simulate, *request, received_model), partial(group, *request)) for request in requests
    ]
    members = [*single, *(index for index, _ in groups)]
    inputs = [
        *adversary.cache.get((simulate, len(single), received_model), singles),
        *(vector for _, vector in groups),
    ]
    sizes = torch.tensor([len(index) for index in members])
    return SimulatedArtifacts(torch.stack(inputs), sizes, members, images, labels, of_domain)


def single_image_styles(
    adversary: Adversary, images: Tensor, received_model: ModelState | None, among: Tensor | None = None
) -> Tensor:
    """(N, D): for each image (N, 3, H, W), the first part of the vector of its own undefended artifact.

    For BatchNorm statistics this is the first BatchNorm layer: its inputs are not normalised yet, so that the other
    images of a batch do not change them, and the means of several images are averages.

    Args:
        adversary: An adversary that observes styles, amplitude spectra, or recomputed BatchNorm statistics.
        images: Any images.
        received_model: The model that statistics are computed under; None for styles and spectra.
        among: For styles that depend on the batch: images of a client, in whose batches each of `images` is placed.
    """
    if isinstance(spectra := adversary.simulator(Simulator), AmplitudeSimulator):  # type: ignore[type-abstract]
        return spectra.spectra(images).flatten(1)
    if received_model is None:
        return torch.cat(adversary.styles(images, among), dim=1)
    simulator = adversary.simulator(StatisticsSimulator, Capability.HAS_BN)
    model = simulator.network().eval()
    received_model.load_into(model)
    name, layer = next(iter(bn_layers(model).items()))
    rows = []
    for part in images.split(BATCH_SIZE):
        variance, mean = torch.var_mean(layer_inputs(model, layer, part), dim=(2, 3))
        rows.append(simulator.row({name: (mean, variance)}, received_model))
    return torch.cat(rows)


@dataclass(frozen=True, eq=False)
class Frame:
    """Computes styles under one normalisation, with those of public images as reference.

    Attributes:
        adversary: The adversary that computes them.
        received_model: The model that statistics are computed under; None for styles.
        among: The images by which all are normalised; None where each is normalised by itself.
        public_styles: (P, D) of the frame's public images.
    """

    adversary: Adversary
    received_model: ModelState | None
    among: Tensor | None
    public_styles: Tensor

    @property
    def center(self) -> Tensor:
        """(D,): the mean style of the public images."""
        return self.public_styles.mean(0)

    def styles(self, images: Tensor) -> Tensor:
        """(N, D): the styles of any images (N, 3, H, W)."""
        return single_image_styles(self.adversary, images, self.received_model, self.among)


def frames(
    adversary: Adversary, n: int, received_model: ModelState | None = None, looks: int | None = None
) -> Sequence[Frame]:
    """The possible normalisations of artifacts of n images: a single frame if they do not depend on other images, else a frame
    for each public domain, and for at most `looks` of the restyled domains.
    """
    domains = adversary.practice
    if n == 1 or not adversary.uses_batch_statistics:
        return [
            Frame(
                adversary,
                received_model,
                None,
                torch.cat([single_image_styles(adversary, domain.images, received_model) for domain in domains]),
            )
        ]
    return [
        Frame(
            adversary,
            received_model,
            domain.images,
            single_image_styles(adversary, domain.images, received_model, domain.images),
        )
        for domain in domains[: None if looks is None else len(adversary.domains) + looks]
    ]


@dataclass(frozen=True, eq=False)
class SimulatedClient:
    """Artifact and label distribution of one simulated client.

    Attributes:
        vector: (D,) of its artifact (`Adversary.vector`).
        shares: (K,) share of each label among its images.
        domain: Index of the auxiliary domain of its images.
        members: (m,) indices of its images among the practice images, as in `SimulatedArtifacts`.
    """

    vector: Tensor
    shares: Tensor
    domain: int
    members: Tensor


ReceivedModels = tuple[ModelState | None, ...]


def received_models(observations: Sequence[Observation]) -> ReceivedModels:
    """The distinct models that the senders received: a single model, unless each client has a personal model."""
    return tuple({id(observation.received_model): observation.received_model for observation in observations}.values())


def simulated(
    adversary: Adversary, size: int, count: int, received: ReceivedModels, alphas: tuple[float, ...] = ALPHAS
) -> list[SimulatedClient]:
    """Simulates `count` clients of `size` images each, each from one of the received models, defense included.

    Each client draws its images from one domain, the domains taking turns, and its label distribution from a Dirichlet
    distribution, whose concentration is each of `alphas` in turn, since the clients' label skew is unknown. Artifacts that
    need all clients are simulated in a single federation.
    """
    domains = adversary.practice
    start = _domain_starts(domains)

    def draw_client(turn: int) -> tuple[int, Tensor, torch.Generator]:
        rng = generator(adversary.seed, 16, size, turn)
        d, alpha = turn % len(domains), alphas[turn % len(alphas)]
        return d, skewed(domains[d], adversary.classes, size, alpha, rng), rng

    def simulate_clients(turns: Sequence[int]) -> list[SimulatedClient]:
        clients, rng = [draw_client(turn) for turn in turns], generator(adversary.seed, 48, size, turns[0])
        received_model = received[int(torch.randint(len(received), (), generator=rng))]
        artifacts = adversary.simulate_jointly(
            [(domains[d], index) for d, index, _ in clients], clients[0][2], received_model
        )
        return [
            SimulatedClient(
                adversary.vector(artifact, received_model),
                domains[d].labels[index].bincount(minlength=adversary.classes) / len(index),
                d,
                start[d] + index,
            )
            for artifact, (d, index, _) in zip(artifacts, clients, strict=True)
        ]

    groups = [tuple(range(count))] if adversary.needs_all_clients else [(turn,) for turn in range(count)]
    cached = [
        adversary.cache.get((simulated, size, turns, alphas, received), partial(simulate_clients, turns))
        for turns in groups
    ]
    return [client for clients in cached for client in clients]


def skewed(domain: Domain, classes: int, size: int, alpha: float, rng: torch.Generator) -> Tensor:
    """Indices of `size` images of a domain, in label shares drawn from a Dirichlet of this concentration.

    Where the domain has fewer images they are drawn with replacement, so that a simulated client trains as many steps.
    """
    draws = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
    skew = torch.from_numpy(draws.dirichlet([alpha] * classes)).float() + 1e-9
    return torch.multinomial(skew[domain.labels], size, replacement=size > len(domain), generator=rng)


def simulated_in_round(
    adversary: Adversary, seen: SeenRound, domain: Domain, turn: int, size: int, model: ModelState, rng: torch.Generator
) -> tuple[Artifact, Tensor]:
    """Artifact of a client of a domain, simulated in an earlier round from this model, and its labels (size,).

    Its label skew is that of `ALPHAS` whose turn it is.
    """
    index = skewed(domain, adversary.classes, size, ALPHAS[turn % len(ALPHAS)], rng)
    artifact = adversary.simulate(domain.images, domain.labels, index, rng, model, simulator=seen.simulator)
    return artifact, domain.labels[index]


def nearest_size(adversary: Adversary, observation: Observation) -> int:
    """Of the sizes that the adversary simulates, the nearest in ratio to the number of images of an observation."""
    return min(sorted(set(adversary.sizes)), key=lambda size: abs(math.log(size / max(1, observation.n_images))))


def simulated_by_domain(adversary: Adversary, per_size: int, received: ReceivedModels) -> tuple[Vectors, Tensor]:
    """Artifacts of every size, and their domains (M,); expensive artifacts are the `simulated` clients, shared by attacks."""
    if not adversary.expensive:
        artifacts = simulate(adversary, per_size)
        return artifacts, artifacts.of_artifacts
    clients = [(client, size) for size in adversary.sizes for client in simulated(adversary, size, per_size, received)]
    inputs, sizes = torch.stack([client.vector for client, _ in clients]), torch.tensor([size for _, size in clients])
    return Vectors(inputs, sizes), torch.tensor([client.domain for client, _ in clients])


def probe(simulated: Vectors, labels: Tensor, vectors: Tensor, n_images: Tensor, classes: int) -> Tensor:
    """Log-probabilities (M, classes) of the labels of observed artifacts, by discriminant analysis.

    Args:
        simulated: Training artifacts.
        labels: (P,) labels of the training artifacts.
        vectors: (M, D) vectors of the observed artifacts.
        n_images: (M,) number of images of each; training artifacts of the nearest size are used.
        classes: Number of labels.
    """
    inputs, vectors = simulated.standardised(simulated.inputs), simulated.standardised(vectors)
    nearest = simulated.nearest_sizes(n_images)
    log_probabilities = torch.empty(len(vectors), classes)
    for size in nearest.unique().tolist():
        training, selected = simulated.sizes == size, nearest == size
        log_probabilities[selected] = discriminant(inputs[training], labels[training], vectors[selected], classes)
    return log_probabilities
