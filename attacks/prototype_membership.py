"""Prototype membership: which images make up a client's class prototypes, by ridge regression on candidates' features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.prototypes import ClassPrototypes
from fdgpriv.attack import Attack
from fdgpriv.tasks.membership import Members
from fdgpriv.utils.fields import PositiveFloat, PositiveInt
from fdgpriv.view import SeenRound

from ._prototypes import Deviations, candidate_features, class_means, features_of, peers_of, public_features
from ._simulation import Vectors, probe


@dataclass(frozen=True)
class PrototypeMembership(Attack):
    """Weights of the candidates in the observed prototypes, all of a class together, over rounds.

    The difference of a prototype from its peers' mean is regressed on how candidates' features, under the model that clients
    received, differ from the mean of the domain's public images of the class, in units of what peers differ by. A candidate
    is tried in the class with a prototype that a discriminant on public images' features names. One image is normalised by
    the running statistics, as public images are here, and compared with these.

    Attributes:
        rounds: At most so many of the last rounds are read.
        penalty: Of the ridge regression, in mean squared lengths of the candidates' differences.
    """

    reads = (ClassPrototypes,)
    task = Members()
    threats = ("server",)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"thorough": {"rounds": 16}}

    rounds: PositiveInt = 8
    penalty: PositiveFloat = 1.0

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> list[Tensor]:
        return [self._scores(adversary, observation) for observation in observations]

    def _scores(self, adversary: Adversary, observation: Observation) -> Tensor:
        """(N,): a score of each membership candidate."""
        view = adversary.view(observation)[-self.rounds :]
        peers = peers_of(view[-1], len(adversary.sources))
        domain, index = adversary.domain_of(observation), observation.membership_candidates
        present = features_of(observation.artifact).any(1)
        labels = _log_classes(adversary, view[-1], domain)[index].masked_fill(~present, -torch.inf).argmax(1)
        scores = torch.zeros(len(index))
        rounds = [(seen, Deviations.of(seen, peers)) for seen in view]
        for label in labels.unique().tolist():
            of_class = labels == label
            gram, along = torch.zeros(1), torch.zeros(1)
            for seen, deviations in rounds:
                center = class_means(adversary, seen, domain)[label]
                rows = candidate_features(adversary, seen)[index[of_class]] - center
                row = features_of(seen.artifact)[label] - center
                if deviations is not None:
                    rows, row = rows @ deviations.root, row @ deviations.root
                    if observation.n_images > 1 and bool(deviations.known[0, label]):
                        row = deviations.rows[0, label]
                gram, along = gram + rows @ rows.T, along + rows @ row
            ridge = self.penalty * gram.diagonal().mean().clamp_min(1e-9) * torch.eye(len(gram))
            scores[of_class] = torch.linalg.solve(gram + ridge, along)
        return scores


def _log_classes(adversary: Adversary, seen: SeenRound, domain: str | None) -> Tensor:
    """(P, K): log-probabilities of all candidates' classes, by a discriminant on the features of public images."""

    def computed() -> Tensor:
        features, labels = public_features(adversary, seen, domain)
        vectors = Vectors(features, torch.ones(len(features)))
        candidates = candidate_features(adversary, seen)
        return probe(vectors, labels, candidates, torch.ones(len(candidates)), adversary.classes)

    classes: Tensor = adversary.cache.get((_log_classes, seen.number, id(seen.received_model), domain), computed)
    return classes
