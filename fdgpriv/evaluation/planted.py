"""Plants a leak of relevant size in the evaluated artifacts, and measures how often the attack finds it.

A planted artifact is (1 - w) times an evaluated one plus w times the artifact of few images, whose secret is then asked
for. The adversary calibrates on artifacts with the same leak, and an attack that learns from simulated artifacts learns
from such, so that all it chooses is chosen anew. At the w where the mean lead equals the relevant effect, units are
drawn anew many times; the share of draws with p <= 0.025 is the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.scoring import ScoresByTask, evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, ScoredObservation, Trial
from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.questions import Evidence
from fdgpriv.statistics.resolution import POWER, power
from fdgpriv.statistics.rule import Hypothesis
from fdgpriv.targets.mixture import Mixture, Sent
from fdgpriv.targets.planted import Plant
from fdgpriv.utils.cache import Cache
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import AttackTests
from fdgpriv.verdicts.trial_scores import TrialScores
from fdgpriv.view import Deferred

WEIGHTS = (0.0, 0.15, 0.4, 1.0)
FEWER = (0.0, 0.4, 1.0)  # where evaluating one is expensive, or learning anew is
_CLEARLY = 1.5  # relevant effects
_SURE = 0.8 * LEVEL  # Simes' p of a leak is at most that, whatever resampling adds
_MOST = 6  # artifacts per client
_ONE, _SOME = 1, 3  # artifacts per control: where images are drawn from expensive ones, and elsewhere
_FIRST = 1000


def undecided(one: AttackScores, tests: AttackTests, asking: int) -> list[str]:
    """The scopes in which "no leak found" depends on whether a planted leak is found; `asking` attacks ask the same."""
    return [
        scope
        for scope, evidence in tests.scopes.items()
        if isinstance(evidence, Evidence)
        and one.shared
        and not one.exact
        and evidence.works
        and evidence.p is not None
        and evidence.p > _SURE / asking  # else the question is a leak before the correction, which then decides
        and evidence.decided_by_planted_leak
    ]


def planted_power(
    trials: AttackTrials,
    adversaries: Sequence[AdversaryTrials],
    one: AttackScores,
    scopes: Sequence[str],
    rng: torch.Generator,
    evaluated: Cache[list[ScoresByTask]] | None = None,
) -> dict[str, float]:
    """By scope, how often a planted leak of relevant size is found; empty where no single-image artifacts are evaluated.

    Args:
        trials: The attack and its evaluator.
        adversaries: With the trials that were evaluated.
        one: The scores of one task on them.
        scopes: Which are wanted.
        rng: Of the attack.
        evaluated: The scores on planted artifacts, shared by the tasks that the attack answers.
    """
    found: dict[str, float] = {}
    known = Cache[list[ScoresByTask]]() if evaluated is None else evaluated
    for few in _leaking_sizes(one, scopes):
        power_of = _power(trials, adversaries, one, scopes, few, rng, known)
        found |= {scope: max(found.get(scope, 0.0), share) for scope, share in power_of.items()}
        if all(found.get(scope, 0.0) >= POWER for scope in scopes):
            break
    return found


def _power(
    trials: AttackTrials,
    adversaries: Sequence[AdversaryTrials],
    one: AttackScores,
    scopes: Sequence[str],
    few: int,
    rng: torch.Generator,
    evaluated: Cache[list[ScoresByTask]],
) -> dict[str, float]:
    """The same for the artifacts of `few` images."""
    learned = trials.attack.learned
    alternatives = _ONE if adversaries[0].adversary.expensive and trials.attack.task.draws_images else _SOME
    size, own = one.size, adversaries[0].adversary
    plant = Plant(0.0, own.typical if size is None else size, own.expensive, own.seed)

    def evaluate(weight: float) -> list[ScoresByTask]:
        planted = [_planted(adversary, size, few, {_FIRST: weight}, alternatives) for adversary in adversaries]
        if learned:
            planted = [_learning(adversary, few, replace(plant, weight=weight)) for adversary in planted]
        planted = [adversary for adversary in planted if adversary.trials]
        return list(evaluate_tasks(trials.attack, planted, (), rng)[0].values()) if planted else []

    def scored(weight: float) -> list[TrialScores]:
        by_task = evaluated.get((few, weight), lambda: evaluate(weight))
        return [scores[one.task] for scores in by_task if one.task in scores]

    seed = trials.evaluator.seed
    least, *between, most = FEWER if learned or own.expensive else WEIGHTS
    scores = scored(most)  # what is not found even there is found at no weight
    if not scores or all(_found(one, scope, scores, seed) == 0 for scope in scopes):
        return dict.fromkeys(scopes, 0.0) if scores else {}
    for weight in (*reversed(between), least):
        if not any(_reaches(one, scope, scores[0]) for scope in scopes):
            break  # at lower weights nothing reaches the relevant effect
        scores = [*scored(weight), *scores]
    return {scope: _found(one, scope, scores, seed) for scope in scopes}


def _reaches(one: AttackScores, scope: str, scores: TrialScores) -> bool:
    """Whether the mean lead of these scores is at least the relevant effect."""
    hypothesis = one.hypothesis(scope, scores)
    return isinstance(hypothesis, Hypothesis) and _lead(hypothesis) >= one.relevant_effect(scores)


def _lead(hypothesis: Hypothesis) -> float:
    """The mean lead over the strongest control."""
    return float(hypothesis.leads().mean(0).min())


def _leaking_sizes(one: AttackScores, scopes: Sequence[str]) -> list[int]:
    """Numbers of images whose artifacts are planted until one leak is found: one, then that which leaks most, if clearly."""
    if not scopes:
        return []
    best, most = 1, _CLEARLY
    for size, scores in one.by_size.items():
        leads = [
            _lead(hypothesis) for scope in scopes if isinstance(hypothesis := one.hypothesis(scope, scores), Hypothesis)
        ]
        if size is None or size == 1 or not leads:
            continue
        if (ratio := min(leads) / one.relevant_effect(scores)) >= most:
            best, most = size, ratio
    return [1] if best == 1 else [1, best]


def _found(one: AttackScores, scope: str, by_weight: Sequence[TrialScores], seed: int) -> float:
    """How often the leak is found at the weight whose mean lead is the relevant effect; 0 where no weight reaches it."""
    before: Array | None = None
    error_before: Array | None = None
    for scores in by_weight:
        hypothesis = one.hypothesis(scope, scores)
        if not isinstance(hypothesis, Hypothesis):
            return 0.0
        leads, lead, relevant = hypothesis.leads(), _lead(hypothesis), one.relevant_effect(scores)
        if lead >= relevant:
            start = leads if before is None else before
            low = float(start.mean(0).min())
            share = 1.0 if lead <= low else min(1.0, max(0.0, (relevant - low) / (lead - low)))
            error = np.sqrt(hypothesis.shared)  # a convex combination's standard error is at most that of its parts
            shared = ((1 - share) * (error if error_before is None else error_before) + share * error) ** 2
            rng = np.random.default_rng(seed)
            return power((1 - share) * start + share * leads, rng, shared_variance=shared)
        before, error_before = leads, np.sqrt(hypothesis.shared)
    return 0.0


def _planted(
    adversary_trials: AdversaryTrials, size: int | None, few: int, weights: Mapping[int, float], alternatives: int
) -> AdversaryTrials:
    """The trials with planted leaks of artifacts of `few` images, at the weights by number, with so many of each control.

    The weight's number stands in the place of the number of images.
    """
    bases = _bases(adversary_trials.trials, size)
    chosen: dict[str, list[Trial]] = {}
    for trial in adversary_trials.trials:
        if trial.size == few and trial.client in bases:
            chosen.setdefault(trial.client, []).append(trial)
    trials = [
        _mixed_trial(trial, bases[client], weight, i, alternatives)
        for i, weight in weights.items()
        for client, some in chosen.items()
        for trial in some[:_MOST]
    ]
    known = {c.client: c.one for c in adversary_trials.calibration if c.size == size}
    if size == 1:
        known = _of_another(known)
    calibration = [
        CalibrationTrial(c.client, i, _mixed(c.one, known[c.client], weight))
        for i, weight in weights.items()
        for c in adversary_trials.calibration
        if c.size == few and c.client in known
    ]
    return replace(adversary_trials, trials=trials, calibration=calibration)


def _learning(planted: AdversaryTrials, few: int, plant: Plant) -> AdversaryTrials:
    """The same trials for an adversary that simulates artifacts with the same leak, and knows of how many images it is."""
    return AdversaryTrials(
        replace(planted.adversary, sizes=(few,), plant=plant, cache=Cache()),
        [
            replace(trial, asked={name: [_told(one, few) for one in ones] for name, ones in trial.asked.items()})
            for trial in planted.trials
        ],
        [replace(c, one=_told(c.one, few)) for c in planted.calibration],
        planted.shifted,
    )


def _told(one: ScoredObservation, n_images: int) -> ScoredObservation:
    """The observation with this number of images."""
    return replace(one, observation=replace(one.observation, n_images=n_images))


def _of_another(known: Mapping[str, ScoredObservation]) -> dict[str, ScoredObservation]:
    """By client, another client's observation, of the same domain where there is one."""
    found, names = {}, list(known)
    for name, one in known.items():
        near = [other for other in names if known[other].truth.domain == one.truth.domain]
        some = near if len(near) > 1 else names
        found[name] = known[some[some.index(name) - 1]]
    return found


def _bases(trials: Sequence[Trial], size: int | None) -> dict[str, Mapping[str, Sequence[ScoredObservation]]]:
    """By client, the evaluated artifact that a leak is planted in, and those of its controls.

    Where artifacts of single images are shared, another client's.
    """
    asked = {trial.client: trial.asked for trial in trials if trial.size == size}
    if size != 1:
        return asked
    return {
        client: {**ones, "attack": ones["other_client"]} for client, ones in asked.items() if "other_client" in ones
    }


def _mixed_trial(
    trial: Trial, bases: Mapping[str, Sequence[ScoredObservation]], weight: float, size: int, alternatives: int
) -> Trial:
    asked = {
        name: [_mixed(one, base, weight) for one, base in zip(ones[:alternatives], bases[name], strict=False)]
        for name, ones in trial.asked.items()
        if name in bases and name != "autoencoder"
    }
    return replace(trial, unit=trial.client, size=size, asked=asked, given={})


def _mixed(one: ScoredObservation, base: ScoredObservation, weight: float) -> ScoredObservation:
    """The observation of the mixture, with the secret of the few images; the senders are those of both.

    Artifacts are mixed in every round in which both were shared.
    """

    def mixed(base: Deferred, leak: Deferred) -> Sent:
        return Mixture(base.sent, leak.sent, weight)

    shared = {round: earlier.shared for round, earlier in base.observation.earlier.items()}
    observation = replace(
        one.observation,
        sent=Mixture(base.observation.sent, one.observation.sent, weight),
        n_images=base.observation.n_images,
        earlier={
            round: replace(earlier, shared=Deferred(partial(mixed, shared[round], earlier.shared)))
            for round, earlier in one.observation.earlier.items()
            if round in shared
        },
        sender=base.observation.sender,
    )
    truth = replace(one.truth, senders=one.truth.senders + base.truth.senders)
    return ScoredObservation(observation, truth)
