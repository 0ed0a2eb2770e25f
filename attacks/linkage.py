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
from fdgpriv.statistics.linking import learned_links_more, likelihood_ratio, likeness, standard
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.task import Predictions
from fdgpriv.utils.seeds import generator


@dataclass(frozen=True)
class Linkage(Attack):
    """Ranks the earlier artifacts by how likely the observed one is from the same client.

    Where artifacts of both rounds can be simulated cheaply, clients of public images practise: a Gaussian with a shrunken
    covariance is fitted to their pairs of artifacts, and the score is the log likelihood ratio of "a pair of one client"
    to "of two". Otherwise, or where practice shows it to link more, artifacts of each round are standardised about their
    median and whitened along the principal axes of the earlier ones, and the score is the cosine of the result: between
    rounds the model changes every client's artifact mostly in the same way, and axes shared by all clients of a domain
    weigh no more than others.

    The positive control is artifacts of the same clients simulated again, without defense.

    Attributes:
        simulations: Simulated clients of each domain; half of them choose between the two scores.
    """

    reads = (StyleStatistics, ModelState, ModelUpdate, ImportanceWeights, BatchNormStatistics)
    task = LinkedClient()
    threats = ("server",)
    group_sizes = (None,)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"simulations": 20},
        "thorough": {"simulations": 200},
    }

    simulations: Annotated[int, Field(ge=4)] = 40

    def inapplicable(self, target: Target[Simulator]) -> str | None:
        if len(target.earlier) < 2:
            return f"no {target.kind.replace('_', ' ')} of the same clients crossed in two rounds that are kept"
        return None

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        # which round's model is irrelevant: it is the same for all, so subtracting the median removes it
        received_model = observations[0].received_model
        before = torch.stack([adversary.vector(artifact, received_model) for artifact in adversary.earlier])
        now = adversary.vectors(observations)
        pairs = adversary.cache.get((Linkage, self.simulations), lambda: self.practised(adversary))
        learned = pairs is not None and learned_links_more(*pairs)
        predictions = likelihood_ratio(now, before, *pairs) if learned else likeness(now, before)
        ordinary = -standard(before).square().sum(1)
        return Predictions(list(predictions), {"mean_image": [ordinary]})

    def practised(self, adversary: Adversary) -> tuple[Tensor, Tensor] | None:
        """Artifacts (S, D) of simulated clients in the last round and in the first; None where these are not simulated."""
        simulator = adversary.simulator(Simulator)  # type: ignore[type-abstract]
        first = simulator.in_first_round()
        if first is None:
            return None
        rng, pairs = generator(adversary.seed, 45), list[tuple[Tensor, Tensor]]()
        for turn in range(self.simulations):
            for domain in adversary.held:
                size = adversary.sizes[turn % len(adversary.sizes)]
                index = torch.randint(len(domain), (size,), generator=rng)  # as varied as clients of many images
                held = HeldImages(domain.images, domain.labels)
                now, before = (one.vector(one.make(held, index, rng), None) for one in (simulator, first))
                pairs.append((now, before))
        now_rows, before_rows = zip(*pairs, strict=True)
        return torch.stack(now_rows), torch.stack(before_rows)
