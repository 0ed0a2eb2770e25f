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
from fdgpriv.statistics.rule import LeadTest
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
        stored: As stored.
        scope: client or domain.
    """

    stored: AttackScores
    scope: str

    @property
    def on_wire(self) -> TrialScores:
        """The scores on whole clients' artifacts, as they crossed the wire."""
        return self.stored.by_size[None]

    def null(self, order: Order, rng: Rng) -> ByName:
        """Scores of attack and controls by target (U,), where clients send these artifacts; each control's is the mean
        over as many artifacts as in a report. A control without artifacts for every target is left out.
        """
        on_wire = self.on_wire
        if set(order) != set(self.stored.domains):  # other clients are attacked here
            order = permuted(self.stored.domains, self.scope, rng)
        controls = {name: np.asarray(on_wire.headline[name]) for name in self.stored.controls(self.scope, on_wire)}
        if set(order) <= set(on_wire.crossed):
            return controls | self._permuted(order, rng)
        return {name: values for name, values in controls.items() if name != OTHERS[0]} | self._redrawn(rng)

    def _permuted(self, order: Order, rng: Rng) -> ByName:
        on_wire, domains = self.on_wire, np.asarray(list(self.stored.domains.values()))
        numbers = {client: k for k, client in enumerate(self.stored.domains)}
        targets = np.asarray([numbers[client] for client in on_wire.clients])
        scores = np.asarray([on_wire.crossed[order[client]] for client in numbers])  # (K, U)
        by_role = {"attack": scores[targets, np.arange(len(targets))]}
        same_domain = domains[:, None] == domains[targets]
        other_client = np.arange(len(domains))[:, None] != targets
        for role, allowed in zip(OTHERS, (same_domain & other_client, ~same_domain), strict=True):
            if role in self.stored.controls(self.scope, on_wire) and allowed.any(0).all():
                by_role[role] = _mean_of_alternatives(scores, allowed, rng)
        return by_role

    def _redrawn(self, rng: Rng) -> ByName:
        """The same for one artifact of all clients, which is asked about candidates that are not among its images."""
        crossed = [values for name, values in self.on_wire.crossed.items() if name.startswith(OTHERS[0])]
        if len(crossed) < 2:
            return {}
        shuffled = rng.permuted(np.asarray(crossed), axis=0)
        return {"attack": shuffled[0], OTHERS[0]: shuffled[1:].mean(0)}

    def leaking(self, rng: Rng) -> ByName:
        """For each target, the mean scores of its client's positive controls, of hits those of one drawn at random; NaN
        where the client has none.
        """
        positive = self.stored.undefended
        if positive is None:
            return {}
        clients = np.asarray(positive.clients)
        trials = [np.flatnonzero(clients == client) for client in self.on_wire.clients]
        if self.hits:
            trials = [rng.permutation(of_client)[:1] for of_client in trials]
        by_role = {}
        for role in ("attack", *self.stored.controls(self.scope, positive)):
            values = np.asarray(positive.headline[role])
            by_role[role] = np.asarray([values[of_client].mean() if len(of_client) else np.nan for of_client in trials])
        return by_role

    @property
    def hits(self) -> bool:
        """Whether the attack either hits or misses."""
        return set(self.on_wire.headline["attack"]) <= {0.0, 1.0}

    def copy(self, scores: ByName, units: list[str] | None = None) -> AttackScores:
        """The evaluation with these scores, in this scope alone and without a positive control.

        What units share adds as much variance as in the evaluation itself.
        """
        on_wire = self.on_wire
        headline = {name: values.tolist() for name, values in scores.items()}
        shared = {name: variance for name, variance in on_wire.shared_variance.items() if name in scores}
        copy = TrialScores(units or on_wire.units, units or on_wire.clients, headline, shared_variance=shared)
        return self.stored.model_copy(update={"conditions": {Condition(): copy}, "scopes": (self.scope,)})

    def leads(self, scores: ByName) -> Array:
        """(B,): the mean lead over each control."""
        return np.asarray(
            [
                self.stored.sign * (scores["attack"] - values).mean()
                for name, values in scores.items()
                if name != "attack"
            ]
        )

    def testable(self, scores: ByName) -> bool:
        """Whether these scores allow a test."""
        return "attack" in scores and isinstance(
            self.copy(scores).lead_test(self.scope, self.copy(scores).by_size[None]), LeadTest
        )


def mixed(null: ByName, leaking: ByName, draws: Array, weight: float) -> ByName:
    """`leaking` for the targets whose draw in [0, 1) is below `weight` and which have it, else `null`."""
    names = [name for name in null if name in leaking]
    take = (draws < weight) & ~np.isnan(leaking["attack"])
    return {name: np.where(take, leaking[name], null[name]) for name in names}


def _mean_of_alternatives(scores: Array, allowed: NDArray[np.bool_], rng: Rng) -> Array:
    """(U,): for each column the mean of up to ALTERNATIVES of its allowed entries, drawn at random."""
    rank = np.where(allowed, rng.random(allowed.shape), 2.0).argsort(0).argsort(0)
    chosen = allowed & (rank < ALTERNATIVES)
    mean: Array = np.where(chosen, scores, 0.0).sum(0) / chosen.sum(0)
    return mean
