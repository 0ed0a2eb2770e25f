"""Linkage: re-identifies the client of an artifact among all clients' artifacts of an earlier round (hypothesis H-S3)."""

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
from fdgpriv.statistics.linking import Practice, likeness, links_more, log_odds, standard
from fdgpriv.targets.simulator import HeldImages, InRound, Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.seeds import generator

from ._simulation import Vectors, probe


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the earlier artifacts by how likely the observed one is from the same client.

    Where artifacts of both rounds can be simulated, clients of public images practise: from them the attack learns what
    in an artifact is its client's own, and scores by `log_odds`. Otherwise, or where practice shows it to link more,
    artifacts of each round are standardised about their median and whitened along the principal axes of the earlier
    ones, and the score is the cosine of the result: between rounds the model changes every client's artifact mostly in
    the same way, and axes shared by all clients of a domain weigh no more than others.

    The positive control is artifacts of the same clients simulated again, without defense.

    Attributes:
        simulations: Simulated clients of each domain; half of them choose between the two scores.
        expensive_simulations: The same where simulating an artifact takes a training.
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

    def inapplicable(self, target: Target[Simulator]) -> str | None:
        if len(target.earlier) < 2:
            return f"no {target.kind.replace('_', ' ')} of the same clients crossed in two rounds that are kept"
        return None

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        received_model = observations[0].received_model
        first = adversary.simulator(Simulator).in_first_round()  # type: ignore[type-abstract]
        # without practice, any model will do: subtracting the median removes it
        origin = received_model if first is None else first.received_model
        before = torch.stack([adversary.vector(artifact, origin) for artifact in adversary.earlier])
        peers = torch.stack([adversary.vector(artifact, received_model) for artifact in adversary.latest])
        now = adversary.vectors(observations)
        ordinary = -standard(before).square().sum(1)
        scores = likeness(now, before)
        if first is not None:
            practice = adversary.cache.get(
                (self, received_model), lambda: self.practised(adversary, first, received_model)
            )
            if links_more(practice, classify):
                scores = log_odds(now, before, practice, classify, peers)
        return Predictions(list(scores), {"mean_image": [ordinary]})

    def practised(self, adversary: Adversary, first: InRound, received_model: ModelState | None) -> Practice:
        """Artifacts of simulated clients in the last round and in the first."""
        last = InRound(adversary.simulator(Simulator), received_model)  # type: ignore[type-abstract]
        rng, rows, domains = generator(adversary.seed, 45), list[list[Tensor]](), list[int]()
        for turn in range(self.expensive_simulations if adversary.expensive else self.simulations):
            for d, domain in enumerate(adversary.held):
                size = adversary.sizes[turn % len(adversary.sizes)]
                index = torch.randint(len(domain), (size,), generator=rng)  # as varied as clients of many images
                rows.append(
                    [
                        simulator.vector(
                            simulator.make(HeldImages(domain.images, domain.labels, model), index, rng), model
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
