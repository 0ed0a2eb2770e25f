"""Linkage: re-identifies the client of an artifact among all clients' artifacts of earlier rounds (hypothesis H-S3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import BatchNormStatistics, ImportanceWeights, ModelState, ModelUpdate
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, InRound, Simulator
from fdgpriv.statistics.linking import Practice, best_decay, likeness, links_more, log_odds, remembered, standard
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.fields import PositiveInt
from fdgpriv.utils.seeds import generator

from ._simulation import Vectors, probe


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the clients of earlier artifacts by how likely the observed one is from the same client.

    Of several earlier rounds, whose artifacts it knows to be of the same clients, it takes a mean of standardised artifacts
    (`remembered`). How much older rounds count is chosen by linking the latest of them with those before.

    Of one earlier round: where artifacts of both rounds can be simulated, clients of public images practise: from them the
    attack learns what in an artifact is its client's own, and scores by `log_odds`. Otherwise, or where practice shows it
    to link more, artifacts of each round are standardised about their median and whitened along the principal axes of the
    earlier ones, and the score is the cosine of the result (`likeness`): between rounds the model changes every client's
    artifact mostly in the same way, and axes shared by all clients of a domain weigh no more than others.

    The positive control is artifacts of the same clients simulated again, without defense.

    Attributes:
        simulations: Simulated clients of each domain; half of them choose between the two scores.
        expensive_simulations: The same where simulating an artifact takes a training.
        rounds: Earlier rounds that are read, at most: the latest.
    """

    reads = (StyleStatistics, ModelState, ModelUpdate, ImportanceWeights, BatchNormStatistics)
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
        received_model = observations[0].received_model
        first = adversary.simulator(Simulator).in_first_round()  # type: ignore[type-abstract]
        # without practice, any model will do: subtracting the median removes it
        origin = received_model if first is None else first.received_model
        before = torch.stack([adversary.vector(artifact, origin) for artifact in adversary.earlier])
        peers = torch.stack([adversary.vector(artifact, received_model) for artifact in adversary.latest])
        now = adversary.vectors(observations)
        if len(known := self.known_rounds(adversary)) > 1:
            reference = remembered(known, best_decay(known))
            return Predictions(list(likeness(now, reference)), {"mean_image": [-reference.square().sum(1)]})
        ordinary = -standard(before).square().sum(1)
        scores = likeness(now, before)
        if first is not None:
            practice = adversary.cache.get(
                (self, received_model), lambda: self.practised(adversary, first, received_model)
            )
            if links_more(practice, classify):
                scores = log_odds(now, before, practice, classify, peers)
        return Predictions(list(scores), {"mean_image": [ordinary]})

    def known_rounds(self, adversary: Adversary) -> list[Tensor]:
        """The standardised artifacts (N, D) of the same clients in each earlier round kept whole, the latest first."""
        rounds = []
        for recorded, artifacts in adversary.earlier_rounds:
            if recorded.whole:
                # of any client: subtracting the median removes it
                origin = next(iter(recorded.received_models.values()), None)
                rounds.append((recorded.simulator, origin, artifacts))
        return [
            standard(torch.stack([simulator.vector(artifact, origin) for artifact in artifacts]))
            for simulator, origin, artifacts in reversed(rounds[-self.rounds :])
        ]

    def practised(self, adversary: Adversary, first: InRound, received_model: ModelState | None) -> Practice:
        """Artifacts of simulated clients in the last round and in the first."""
        last = InRound(adversary.simulator(Simulator), received_model)  # type: ignore[type-abstract]
        rng, rows, domains = generator(adversary.seed, 45), list[list[Tensor]](), list[int]()
        for turn in range(self.expensive_simulations if adversary.expensive else self.simulations):
            for d, domain in enumerate(adversary.domains):
                size = adversary.sizes[turn % len(adversary.sizes)]
                index = torch.randint(len(domain), (size,), generator=rng)  # as varied as clients of many images
                rows.append(
                    [
                        simulator.vector(
                            simulator.simulate(ClientImages(domain.images, domain.labels, model), index, rng), model
                        )
                        for simulator, model in (last, first)
                    ]
                )
                domains.append(d)
        now, before = (torch.stack(of_round) for of_round in zip(*rows, strict=True))
        return Practice(now, before, torch.tensor(domains))


def classify(known: Tensor, domains: Tensor, rows: Tensor) -> Tensor:
    """Log-probabilities (M, K) of the domains of artifacts (M, D), from simulated artifacts (S, D) of known domains."""
    ones = torch.ones(len(known)), torch.ones(len(rows))
    return probe(Vectors(known, ones[0]), domains, rows, ones[1], int(domains.max()) + 1)
