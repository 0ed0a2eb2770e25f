"""Plants a leak of relevant size in the evaluated artifacts, and measures how often the attack finds it.

A planted artifact is (1 - w) times an evaluated one plus w times the artifact of few images, whose secret is the one to
predict. The adversary calibrates, and an attack that learns from simulated artifacts learns, on artifacts with the same
leak. At the w where the mean lead equals the relevant effect, units are resampled many times: the power is the share of
resamples with p <= 0.025.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.scoring import ScoresByTask, evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, ScoredObservation, Trial
from fdgpriv.simulation.mixture import Mixture, Sent
from fdgpriv.simulation.planted import Plant
from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import Absent, Evidence
from fdgpriv.statistics.resolution import POWER, power
from fdgpriv.statistics.rule import LeadTest
from fdgpriv.utils.cache import Cache
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.trial_scores import TrialScores
from fdgpriv.view import Deferred

WEIGHTS = (0.0, 0.15, 0.4, 1.0)
FEW_WEIGHTS = (0.0, 0.4, 1.0)  # if evaluating an artifact or learning from planted artifacts is expensive
PLANTED_PER_CLIENT = (1, 6)  # artifacts per client; the second number if the power with the first is below HIGH_POWER
HIGH_POWER = 0.95
_CLEAR_LEAD = 1.5  # relevant effects
_CERTAIN_P = 0.8 * LEVEL  # Simes' p of a leak is at most that, whatever resampling adds
_ALTERNATIVES, _FEW_ALTERNATIVES = 3, 1  # artifacts per control: fewer if images are reconstructed from expensive ones
_PLANTED_SIZE = 1000  # the number of images of planted artifacts in trials: it differs from all evaluated ones


def undecided(scores: AttackScores, by_scope: Mapping[str, Evidence | Absent], asking: int) -> list[str]:
    """The scopes whose verdict depends on the power for a planted leak; `asking` attacks share the question."""
    return [
        scope
        for scope, evidence in by_scope.items()
        if isinstance(evidence, Evidence)
        and scores.shared
        and not scores.exact
        and evidence.works
        and not evidence.shows_nothing
        and evidence.p is not None
        and evidence.p > _CERTAIN_P / asking  # else the question is a leak in any case
        and evidence.decided_by_planted_leak
    ]


def planted_power(
    trials: AttackTrials,
    adversaries: Sequence[AdversaryTrials],
    scores: AttackScores,
    scopes: Sequence[str],
    rng: torch.Generator,
    evaluated: Cache[list[ScoresByTask]] | None = None,
) -> dict[str, float]:
    """By scope, the power for a planted leak of relevant size; empty if no single-image artifacts are evaluated.

    Args:
        trials: The attack and its evaluator.
        adversaries: The adversaries with the evaluated trials.
        scores: The scores of one task on these trials.
        scopes: The scopes to compute.
        rng: Random numbers of the attack.
        evaluated: Cache of the scores on planted artifacts, shared by the tasks that the attack answers.
    """
    planting = _Planting(trials, adversaries, scores, rng, Cache() if evaluated is None else evaluated)
    power_by_scope: dict[str, float] = {}
    for n_images in _leaking_sizes(scores, scopes):
        power_at_size: dict[str, float] = {}
        for per_client in PLANTED_PER_CLIENT:
            power_at_size = planting.power(scopes, n_images, per_client)
            if all(power_at_size.get(scope, 0.0) >= HIGH_POWER for scope in scopes):
                break
        for scope, share in power_at_size.items():
            power_by_scope[scope] = max(power_by_scope.get(scope, 0.0), share)
        if all(power_by_scope.get(scope, 0.0) >= POWER for scope in scopes):
            break
    return power_by_scope


@dataclass(frozen=True, eq=False)
class _Planting:
    """Evaluates one task of an attack on planted artifacts; attributes as of `planted_power`."""

    trials: AttackTrials
    adversaries: Sequence[AdversaryTrials]
    scores: AttackScores
    rng: torch.Generator
    evaluated: Cache[list[ScoresByTask]]

    def power(self, scopes: Sequence[str], n_images: int, per_client: int) -> dict[str, float]:
        """By scope, the power for leaks of artifacts of `n_images` images, at most `per_client` for each client."""
        seed, is_expensive = self.trials.evaluator.seed, self.adversaries[0].adversary.expensive
        per_client = min(per_client, self._max_artifacts(n_images))  # larger numbers are the same evaluation
        smallest, *between, largest = FEW_WEIGHTS if self.trials.attack.learned or is_expensive else WEIGHTS
        by_weight = self._scored(n_images, per_client, largest)  # a leak that is not found here is found at no weight
        if not by_weight:
            return {}
        if all(_power_at_relevant_lead(self.scores, scope, by_weight, seed) == 0 for scope in scopes):
            return dict.fromkeys(scopes, 0.0)
        for weight in (*reversed(between), smallest):
            if not any(_is_relevant(self.scores, scope, by_weight[0]) for scope in scopes):
                break  # at lower weights nothing reaches the relevant effect
            by_weight = [*self._scored(n_images, per_client, weight), *by_weight]
        return {scope: _power_at_relevant_lead(self.scores, scope, by_weight, seed) for scope in scopes}

    def _max_artifacts(self, n_images: int) -> int:
        """The largest number of evaluated artifacts of `n_images` images of one client."""
        by_adversary = [
            Counter(trial.client for trial in adversary_trials.trials if trial.size == n_images)
            for adversary_trials in self.adversaries
        ]
        return max((count for counts in by_adversary for count in counts.values()), default=0)

    def _scored(self, n_images: int, per_client: int, weight: float) -> list[TrialScores]:
        """The task's scores on artifacts planted at this weight; empty if there are none."""
        key = (n_images, per_client, weight)
        all_scores = self.evaluated.get(key, lambda: self._evaluate(n_images, per_client, weight))
        return [by_task[self.scores.task] for by_task in all_scores if self.scores.task in by_task]

    def _evaluate(self, n_images: int, per_client: int, weight: float) -> list[ScoresByTask]:
        """The scores of all tasks on artifacts planted at this weight."""
        attack, adversary, size = self.trials.attack, self.adversaries[0].adversary, self.scores.size
        alternatives = _FEW_ALTERNATIVES if adversary.expensive and attack.task.draws_images else _ALTERNATIVES
        planted = [
            _planted(adversary_trials, size, n_images, weight, per_client, alternatives)
            for adversary_trials in self.adversaries
        ]
        if attack.learned:
            plant = Plant(weight, adversary.typical if size is None else size, adversary.expensive, adversary.seed)
            planted = [_with_plant(adversary_trials, n_images, plant) for adversary_trials in planted]
        planted = [adversary_trials for adversary_trials in planted if adversary_trials.trials]
        return list(evaluate_tasks(attack, planted, (), self.rng)[0].values()) if planted else []


def _is_relevant(attack: AttackScores, scope: str, scores: TrialScores) -> bool:
    """Whether the mean lead of these scores is at least the relevant effect."""
    lead_test = attack.lead_test(scope, scores)
    return isinstance(lead_test, LeadTest) and _mean_lead(lead_test) >= attack.relevant_effect(scores)


def _mean_lead(lead_test: LeadTest) -> float:
    """The mean lead over the strongest control."""
    return float(lead_test.leads().mean(0).min())


def _leaking_sizes(attack: AttackScores, scopes: Sequence[str]) -> list[int]:
    """Numbers of images of planted artifacts, in the order of trying: 1, then the one with the largest lead if it is clear."""
    if not scopes:
        return []
    best, largest = 1, _CLEAR_LEAD
    for size, scores in attack.by_size.items():
        lead_tests = [attack.lead_test(scope, scores) for scope in scopes]
        leads = [_mean_lead(lead_test) for lead_test in lead_tests if isinstance(lead_test, LeadTest)]
        if size is None or size == 1 or not leads:
            continue
        if (ratio := min(leads) / attack.relevant_effect(scores)) >= largest:
            best, largest = size, ratio
    return [1] if best == 1 else [1, best]


def _power_at_relevant_lead(attack: AttackScores, scope: str, by_weight: Sequence[TrialScores], seed: int) -> float:
    """The power at the weight whose mean lead is the relevant effect; 0 if no weight reaches it."""
    leads_below: Array | None = None
    error_below: Array | None = None
    for scores in by_weight:
        lead_test = attack.lead_test(scope, scores)
        if not isinstance(lead_test, LeadTest):
            return 0.0
        leads, lead, relevant = lead_test.leads(), _mean_lead(lead_test), attack.relevant_effect(scores)
        error = np.sqrt(lead_test.shared)
        if lead >= relevant:
            start = leads if leads_below is None else leads_below
            low = float(start.mean(0).min())
            share = 1.0 if lead <= low else min(1.0, max(0.0, (relevant - low) / (lead - low)))
            # a convex combination's standard error is at most that of its parts
            shared = ((1 - share) * (error if error_below is None else error_below) + share * error) ** 2
            rng = np.random.default_rng(seed)
            return power((1 - share) * start + share * leads, rng, shared_variance=shared)
        leads_below, error_below = leads, error
    return 0.0


def _planted(
    adversary_trials: AdversaryTrials,
    size: int | None,
    n_images: int,
    weight: float,
    per_client: int,
    alternatives: int,
) -> AdversaryTrials:
    """The trials with planted leaks of artifacts of `n_images` images, at this weight.

    Args:
        adversary_trials: The evaluated trials.
        size: Number of images of the artifacts in which leaks are planted; None for whole clients'.
        n_images: Number of images of the planted artifacts.
        weight: Weight of the planted artifact in the mixture, in [0, 1].
        per_client: Maximum number of planted artifacts of each client.
        alternatives: Maximum number of artifacts of each control.
    """
    bases = _bases(adversary_trials.trials, size)
    by_client: dict[str, list[Trial]] = {}
    for trial in adversary_trials.trials:
        if trial.size == n_images and trial.client in bases:
            by_client.setdefault(trial.client, []).append(trial)
    trials = [
        _mixed_trial(trial, bases[client], weight, alternatives)
        for client, client_trials in by_client.items()
        for trial in client_trials[:per_client]
    ]
    calibration_bases = {trial.client: trial.scored for trial in adversary_trials.calibration if trial.size == size}
    if size == 1:
        calibration_bases = _pair_by_domain(calibration_bases)
    calibration = [
        CalibrationTrial(trial.client, _PLANTED_SIZE, _mixed(trial.scored, calibration_bases[trial.client], weight))
        for trial in adversary_trials.calibration
        if trial.size == n_images and trial.client in calibration_bases
    ]
    return replace(adversary_trials, trials=trials, calibration=calibration)


def _with_plant(planted: AdversaryTrials, n_images: int, plant: Plant) -> AdversaryTrials:
    """The same trials for an adversary that simulates artifacts with the same leak and knows its number of images."""
    return AdversaryTrials(
        replace(planted.adversary, sizes=(n_images,), plant=plant, cache=Cache()),
        [
            replace(
                trial,
                by_role={
                    role: [_with_n_images(scored, n_images) for scored in observations]
                    for role, observations in trial.by_role.items()
                },
            )
            for trial in planted.trials
        ],
        [replace(trial, scored=_with_n_images(trial.scored, n_images)) for trial in planted.calibration],
        planted.shifted,
        planted.misfit,
    )


def _with_n_images(scored: ScoredObservation, n_images: int) -> ScoredObservation:
    """Reveals the image count to the adversary."""
    return replace(scored, observation=replace(scored.observation, n_images=n_images))


def _pair_by_domain(by_client: Mapping[str, ScoredObservation]) -> dict[str, ScoredObservation]:
    """Pairs each client with another client's observation, of the same domain if possible."""
    pairs, clients = {}, list(by_client)
    for client, scored in by_client.items():
        peers = [other for other in clients if by_client[other].truth.domain == scored.truth.domain]
        candidates = peers if len(peers) > 1 else clients
        pairs[client] = by_client[candidates[candidates.index(client) - 1]]
    return pairs


def _bases(trials: Sequence[Trial], size: int | None) -> dict[str, Mapping[str, Sequence[ScoredObservation]]]:
    """By client, the observations in which leaks are planted, by role.

    For artifacts of single images, the leak of an attacked image is planted in another client's artifact.
    """
    by_client = {trial.client: trial.by_role for trial in trials if trial.size == size}
    if size != 1:
        return by_client
    return {
        client: {**by_role, "attack": by_role["other_client"]}
        for client, by_role in by_client.items()
        if "other_client" in by_role
    }


def _mixed_trial(
    trial: Trial, bases: Mapping[str, Sequence[ScoredObservation]], weight: float, alternatives: int
) -> Trial:
    """The trial with leaks planted in the artifacts of its client and of each control, without bounds."""
    by_role = {
        role: [_mixed(leak, base, weight) for leak, base in zip(leaks[:alternatives], bases[role], strict=False)]
        for role, leaks in trial.by_role.items()
        if role in bases and role != "autoencoder"
    }
    return replace(trial, unit=trial.client, size=_PLANTED_SIZE, by_role=by_role, given={})


def _mixed(leak: ScoredObservation, base: ScoredObservation, weight: float) -> ScoredObservation:
    """The observation of the mixture of both artifacts, with the leak's secret and the senders of both.

    Artifacts are mixed in every round in which both were shared.
    """

    def mixed(base_sent: Deferred, leak_sent: Deferred) -> Sent:
        return Mixture(base_sent.sent, leak_sent.sent, weight)

    base_rounds = {number: earlier.shared for number, earlier in base.observation.earlier.items()}
    observation = replace(
        leak.observation,
        sent=Mixture(base.observation.sent, leak.observation.sent, weight),
        n_images=base.observation.n_images,
        earlier={
            number: replace(earlier, shared=Deferred(partial(mixed, base_rounds[number], earlier.shared)))
            for number, earlier in leak.observation.earlier.items()
            if number in base_rounds
        },
        sender=base.observation.sender,
    )
    truth = replace(leak.truth, senders=leak.truth.senders + base.truth.senders)
    return ScoredObservation(observation, truth)
