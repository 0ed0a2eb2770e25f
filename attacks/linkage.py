"""Linkage: re-identifies the client of an artifact among all clients' artifacts of earlier rounds (hypothesis H-S3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import BatchNormStatistics, ImportanceWeights, ModelState, ModelUpdate
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, ClientSample, InRound, Simulator
from fdgpriv.statistics.linking import Practice, best_decay, likeness, links_more, log_odds, remembered, standard
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.fields import PositiveInt
from fdgpriv.utils.seeds import generator

from ._simulation import Vectors, probe


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the clients of earlier artifacts by how likely the observed one is from the same client.

    From several earlier rounds, whose artifacts are linked to clients, it takes a weighted mean of standardised artifacts
    (`remembered`). The weight of older rounds is chosen by linking the latest earlier round with the rounds before it.

    With one earlier round whose artifacts can be simulated, the attack learns from simulated clients which part of an artifact
    depends on its client, and scores by `log_odds`. Otherwise, or where the following score links more simulated clients,
    artifacts of each round are standardised about their median and whitened along the principal axes of the earlier
    artifacts, and the score is the cosine of the result (`likeness`): between rounds the model changes every client's artifact
    mostly in the same way, and axes along which the domains differ weigh no more than others.

    The positive control is artifacts of the same clients simulated again, without defense.

    Attributes:
        simulations: Simulated clients of each domain; half of them choose between the two scores.
        expensive_simulations: The same where simulating an artifact takes a training.
        rounds: Earlier rounds that are read, at most: the latest.
    """

    reads = (StyleStatistics, ModelState, ModelUpdate, ImportanceWeights, BatchNormStatistics, ClassPrototypes)
    task = LinkedClient()
    threats = ("server",)
    group_sizes = (None,)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 20, "expensive_simulations": 4},
        "thorough": {"simulations": 200, "expensive_simulations": 60},
    }

    simulations: Annotated[int, Field(ge=4)] = 40
    expensive_simulations: Annotated[int, Field(ge=4)] = 12
    rounds: PositiveInt = 8

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        if len(series.earlier) < 2:
            return f"no {series.kind.replace('_', ' ')} of the same clients crossed in two rounds that are kept"
        return None

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        # any model will do as the origin of all artifacts of a round: subtracting the median removes it
        received_model = observations[0].received_model
        first_round = adversary.simulator(Simulator).in_first_round()  # type: ignore[type-abstract]
        origin = received_model if first_round is None else first_round.received_model
        earlier = torch.stack([adversary.vector(artifact, origin) for artifact in adversary.earlier])
        latest = torch.stack([adversary.vector(artifact, received_model) for artifact in adversary.latest])
        observed = torch.stack([adversary.vector(o.artifact, received_model) for o in observations])
        if len(rounds := self.known_rounds(adversary)) > 1:
            reference = remembered(rounds, best_decay(rounds))
            return Predictions(list(likeness(observed, reference)), {"mean_image": [-reference.square().sum(1)]})
        typicality = -standard(earlier).square().sum(1)
        scores = likeness(observed, earlier)
        if first_round is not None:
            practice = adversary.cache.get(
                (self, received_model), lambda: self.practised(adversary, first_round, received_model)
            )
            if links_more(practice, classify):
                scores = log_odds(observed, earlier, practice, classify, latest)
        return Predictions(list(scores), {"mean_image": [typicality]})

    def known_rounds(self, adversary: Adversary) -> list[Tensor]:
        """The standardised artifacts (N, D) of the same clients in each earlier round recorded in full, the latest first."""
        rounds = []
        for recorded, artifacts in adversary.earlier_rounds:
            if recorded.whole:
                origin = next(iter(recorded.received_models.values()), None)
                rounds.append((recorded.simulator, origin, artifacts))
        return [
            standard(torch.stack([simulator.vector(artifact, origin) for artifact in artifacts]))
            for simulator, origin, artifacts in reversed(rounds[-self.rounds :])
        ]

    def practised(self, adversary: Adversary, first_round: InRound, received_model: ModelState | None) -> Practice:
        """Artifacts of simulated clients in the last round and in the first round."""
        last_round = InRound(adversary.simulator(Simulator), received_model)  # type: ignore[type-abstract]
        rng, rows, domains = generator(adversary.seed, 45), list[list[Tensor]](), list[int]()
        for turn in range(self.expensive_simulations if adversary.expensive else self.simulations):
            for d, domain in enumerate(adversary.domains):
                size = adversary.sizes[turn % len(adversary.sizes)]
                index = torch.randint(len(domain), (size,), generator=rng)  # as varied as clients of many images
                rows.append(
                    [
                        simulator.vector(
                            simulator.simulate(
                                ClientSample(ClientImages(domain.images, domain.labels, model), index), rng
                            ),
                            model,
                        )
                        for simulator, model in (last_round, first_round)
                    ]
                )
                domains.append(d)
        in_last, in_first = (torch.stack(artifacts) for artifacts in zip(*rows, strict=True))
        return Practice(in_last, in_first, torch.tensor(domains))


def classify(simulated: Tensor, domains: Tensor, observed: Tensor) -> Tensor:
    """Log-probabilities (M, K) of the domains of observed artifacts (M, D), by simulated artifacts (S, D) of `domains` (S,)."""
    sizes = torch.ones(len(simulated)), torch.ones(len(observed))
    return probe(Vectors(simulated, sizes[0]), domains, observed, sizes[1], int(domains.max()) + 1)
