"""A/A reports: the artifacts of clients permuted, so that no attack reads its target's; and leaks planted in them.

The permutation is within each domain for the client scope and over all clients for the domain scope. Attack and controls
then read artifacts that are exchangeable: the true lead over ``other_client``, or over ``other_domain``, is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fdgpriv.evaluation.trial_layout import ALTERNATIVES, OTHERS
from fdgpriv.statistics.rule import Hypothesis
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import Condition, TrialScores

Rng: TypeAlias = np.random.Generator
Array: TypeAlias = NDArray[np.float64]
Order: TypeAlias = Mapping[str, str]  # whose artifact each client sends
ByName: TypeAlias = dict[str, Array]


def permuted(domains: Mapping[str, str], scope: str, rng: Rng) -> Order:
    """Whose artifact each client sends: one of its domain in the client scope, anyone's in the domain scope."""
    groups: dict[str, list[str]] = {}
    for client, domain in domains.items():
        groups.setdefault(domain if scope == "client" else "", []).append(client)
    return {
        client: group[i]
        for group in groups.values()
        for client, i in zip(group, rng.permutation(len(group)), strict=True)
    }


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One attack's scores in one scope.

    Attributes:
        one: As stored.
        scope: client or domain.
    """

    one: AttackScores
    scope: str

    @property
    def whole(self) -> TrialScores:
        """Of the artifacts on the wire."""
        return self.one.by_size[None]

    def null(self, order: Order, rng: Rng) -> ByName:
        """TrialScores of attack and controls by target (U,), where clients send these artifacts; each control's is the mean
        over as many artifacts as in a report. A control without artifacts for every target is left out.
        """
        whole = self.whole
        if set(order) != set(self.one.domains):  # other clients are attacked here
            order = permuted(self.one.domains, self.scope, rng)
        found = {name: np.asarray(whole.headline[name]) for name in self.one.controls(self.scope, whole)}
        if set(order) <= set(whole.crossed):
            return found | self._permuted(order, rng)
        return {name: one for name, one in found.items() if name != OTHERS[0]} | self._redrawn(rng)

    def _permuted(self, order: Order, rng: Rng) -> ByName:
        whole, domain = self.whole, np.asarray(list(self.one.domains.values()))
        place = {client: k for k, client in enumerate(self.one.domains)}
        own = np.asarray([place[client] for client in whole.clients])
        scores = np.asarray([whole.crossed[order[client]] for client in place])  # (K, U)
        found = {"attack": scores[own, np.arange(len(own))]}
        alike = domain[:, None] == domain[own]
        alone = np.arange(len(domain))[:, None] != own
        for name, may in zip(OTHERS, (alike & alone, ~alike), strict=True):
            if name in self.one.controls(self.scope, whole) and may.any(0).all():
                found[name] = _mean_of_some(scores, may, rng)
        return found

    def _redrawn(self, rng: Rng) -> ByName:
        """The same for one artifact of all clients, which is asked about candidates that are not among its images."""
        crossed = [values for name, values in self.whole.crossed.items() if name.startswith(OTHERS[0])]
        if len(crossed) < 2:
            return {}
        mixed = rng.permuted(np.asarray(crossed), axis=0)
        return {"attack": mixed[0], OTHERS[0]: mixed[1:].mean(0)}

    def leaking(self, rng: Rng) -> ByName:
        """For each target, the mean scores of its client's positive controls, of hits those of one drawn at random; NaN
        where the client has none.
        """
        proof = self.one.undefended
        if proof is None:
            return {}
        known = np.asarray(proof.clients)
        rows = [np.flatnonzero(known == client) for client in self.whole.clients]
        if self.hits:
            rows = [rng.permutation(some)[:1] for some in rows]
        found = {}
        for name in ("attack", *self.one.controls(self.scope, proof)):
            values = np.asarray(proof.headline[name])
            found[name] = np.asarray([values[some].mean() if len(some) else np.nan for some in rows])
        return found

    @property
    def hits(self) -> bool:
        """Whether the attack either hits or misses."""
        return set(self.whole.headline["attack"]) <= {0.0, 1.0}

    def copy(self, scores: ByName, units: list[str] | None = None) -> AttackScores:
        """The evaluation with these scores, in this scope alone and without a positive control.

        What units share adds as much variance as in the evaluation itself.
        """
        whole = self.whole
        headline = {name: values.tolist() for name, values in scores.items()}
        shared = {name: variance for name, variance in whole.shared_variance.items() if name in scores}
        now = TrialScores(units or whole.units, units or whole.clients, headline, shared_variance=shared)
        return self.one.model_copy(update={"conditions": {Condition(): now}, "scopes": (self.scope,)})

    def leads(self, scores: ByName) -> Array:
        """(B,): the mean lead over each control."""
        return np.asarray(
            [self.one.sign * (scores["attack"] - values).mean() for name, values in scores.items() if name != "attack"]
        )

    def testable(self, scores: ByName) -> bool:
        """Whether these scores allow a test."""
        return "attack" in scores and isinstance(
            self.copy(scores).hypothesis(self.scope, self.copy(scores).by_size[None]), Hypothesis
        )


def mixed(null: ByName, leaking: ByName, draws: Array, weight: float) -> ByName:
    """`leaking` for the targets whose draw in [0, 1) is below `weight` and which have it, else `null`."""
    names = [name for name in null if name in leaking]
    take = (draws < weight) & ~np.isnan(leaking["attack"])
    return {name: np.where(take, leaking[name], null[name]) for name in names}


def _mean_of_some(scores: Array, may: NDArray[np.bool_], rng: Rng) -> Array:
    """(U,): for each column the mean of up to ALTERNATIVES of its entries that `may` be used, drawn at random."""
    rank = np.where(may, rng.random(may.shape), 2.0).argsort(0).argsort(0)
    some = may & (rank < ALTERNATIVES)
    mean: Array = np.where(some, scores, 0.0).sum(0) / some.sum(0)
    return mean
