"""Further evaluations of an attack: at other layers, as variants, by rounds, without the defense, or unaware of it.

Each function gives the scores of all tasks that the attack answers, by condition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.scoring import PredictedBySize, PredictedTrial, ScoresByTask, averaged, evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.federation.partition import Population
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.tasks.task import TrialAnswers
from fdgpriv.threat import Capability
from fdgpriv.utils.cache import Cache
from fdgpriv.verdicts.attack_scores import ONE_ROUND
from fdgpriv.verdicts.trial_scores import LAYER, UNAWARE, UNDEFENDED, Condition
from fdgpriv.view import ViewUse

MIN_IMAGES_OVER_ROUNDS = 3  # artifacts of fewer images are not evaluated by rounds
ROUNDS = (1, 2, 5, 17)  # numbers of rounds that adversaries read; the number of recorded rounds is added

ScoresBySize = Mapping[int | None, ScoresByTask]
ScoresByCondition = dict[Condition, ScoresByTask]


def by_layer(
    trials: AttackTrials, series: ArtifactSeries[Simulator], scores: ScoresBySize, few: bool, rng: torch.Generator
) -> ScoresByCondition:
    """Scores on single images' artifacts at each layer of the network; if `few`, only at the wire's layer and the last."""
    layers = trials.evaluator.finite_layers(series) if "layer" in trials.attack.ablations else ()
    if not layers:
        return {}
    wire = trials.evaluator.template.at
    return {
        Condition(LAYER + layer, n_images=1): (
            scores[1] if layer == wire else trials.scores(series.at(layer), (1,), rng)[1]
        )
        for layer in ((wire, layers[-1]) if few else layers)
    }


def by_variant(
    trials: AttackTrials,
    kind: str,
    adversaries: Sequence[AdversaryTrials],
    scores: ScoresBySize,
    few: bool,
    rng: torch.Generator,
) -> ScoresByCondition:
    """Scores of each variant of the attack on single images' artifacts; if `few`, only of the first and the last."""
    attack = trials.attack
    single_image_trials = [
        replace(adversary, trials=trials_of_one)
        for adversary in adversaries
        if (trials_of_one := [trial for trial in adversary.trials if trial.size == 1])
    ]
    variants = list(attack.variants(kind).items()) if single_image_trials else []
    return {
        Condition(name, n_images=1): (
            scores[1] if variant == attack else evaluate_tasks(variant, single_image_trials, (), rng)[0][1]
        )
        for name, variant in ((variants[0], variants[-1]) if few and variants else variants)
    }


def by_rounds(
    trials: AttackTrials, series: ArtifactSeries[Simulator], few: bool, rng: torch.Generator
) -> ScoresByCondition:
    """Scores of adversaries that read only the last rounds of each view, by number of rounds and of images.

    If `few`, only of whole clients, for one round and for all. Trials and membership candidates are the same for each
    number of rounds. Single images are left out: one round reveals everything about them.
    """
    sizes = tuple(size for size in trials.sizes(series) if size is None or (size >= MIN_IMAGES_OVER_ROUNDS and not few))
    needed = Capability.SEES_BROADCASTS if series.is_global else Capability.SEES_ALL_ROUNDS
    if "rounds" not in trials.attack.ablations or not series.history or not sizes:
        return {}
    if needed not in trials.threat.capabilities:
        return {}
    recorded = 1 + len(series.history)
    counts = (1, recorded) if few else sorted({count for count in ROUNDS if count < recorded} | {recorded})
    adversaries = trials.adversaries(series, sizes)
    by_condition: ScoresByCondition = {}
    one_round, task = PredictedBySize(), trials.attack.task
    for count in counts:
        cut = [_cut_to_rounds(adversary, count) for adversary in adversaries]
        by_size, predicted = evaluate_tasks(trials.attack, cut, (), rng)
        one_round = one_round or predicted
        for size, by_task in by_size.items():
            scores = by_task[task.name()]
            answers = {"attack": _attack_answers(predicted[size]), ONE_ROUND: _attack_answers(one_round[size])}
            scores.shared_variance |= task.shared_variances(answers, scores.clients).of_lead
            by_condition[Condition(rounds=count, n_images=size)] = by_task
    return by_condition


def _attack_answers(trials: Sequence[PredictedTrial]) -> TrialAnswers:
    """The attack's answers for these trials."""
    return [(number, *predictions["attack"]) for number, (_, predictions) in enumerate(trials)]


def undefended(
    trials: AttackTrials, kind: str, series: ArtifactSeries[Simulator], scores: ScoresBySize, rng: torch.Generator
) -> ScoresByCondition:
    """The positive control: the same attack and budget on single images without defense; empty if the run has no defense.

    Attacks on layers are evaluated at the deepest layer. Attacks on whole clients only are evaluated on artifacts of these
    clients, simulated again without defense; artifacts of all clients of an undefended run are evaluated as recorded.

    Args:
        trials: The attack and its adversary.
        kind: The kind of artifact.
        series: The artifacts as they were shared.
        scores: The scores on `series`.
        rng: Random numbers of the adversaries.
    """
    sizes = trials.sizes(series)
    without_defense = replace(trials, evaluator=trials.evaluator.undefended)
    has_defense = without_defense.evaluator is not trials.evaluator
    if 1 not in sizes and series.needs_all_clients and not has_defense:
        return {Condition(UNDEFENDED): scores[None]}
    bare_series = without_defense.evaluator.series(kind)
    if 1 not in sizes:
        population = without_defense.evaluator.population
        simulated = _with_simulated_first_round(bare_series, population, rng) if has_defense else bare_series
        if simulated is None:
            return {}
        return {Condition(UNDEFENDED): without_defense.scores(replace(simulated, wire={}), (None,), rng)[None]}
    if not has_defense:
        return {}
    if "layer" in trials.attack.ablations and (layers := without_defense.evaluator.finite_layers(bare_series)):
        bare_series = bare_series.at(layers[-1])
    trial_sizes = sizes if trials.attack.task.hides_size else (1,)
    return {Condition(UNDEFENDED, n_images=1): without_defense.scores(bare_series, trial_sizes, rng)[1]}


def _with_simulated_first_round(
    series: ArtifactSeries[Simulator], population: Population, rng: torch.Generator
) -> ArtifactSeries[Simulator] | None:
    """The series with new simulated artifacts of the first round; None if these cannot be simulated."""
    if not series.earlier:
        return series
    first = series.simulator.in_first_round()
    if first is None:
        return None
    earlier = {}
    for client in series.earlier:
        data = population.data(client)
        images = ClientImages(data.images, data.labels, first.received_model)
        earlier[client] = first.simulator.simulate(ClientSample.all_of(images), rng)
    return replace(series, earlier=earlier, history=(replace(series.history[0], wire=earlier),))


def unaware(
    trials: AttackTrials, series: ArtifactSeries[Simulator], repeats: int, few: bool, rng: torch.Generator
) -> ScoresByCondition:
    """Scores of the same attack on the same trials by an adversary that simulates and calibrates without the defense.

    Only artifacts as they are on the wire are evaluated. Empty if the defense does not alter such artifacts; if `few`, also
    if simulation is expensive.
    """
    size, sizes = 1 if series.level == "image" else None, trials.sizes(series)
    if size not in sizes or not trials.evaluator.defense.alters(series.kind) or (few and series.expensive):
        return {}
    trial_sizes = sizes if trials.attack.task.hides_size else (size,)
    adversaries = replace(trials, know_defense=False).adversaries(series, trial_sizes)
    scores = averaged([evaluate_tasks(trials.attack, adversaries, (), rng)[0][size] for _ in range(repeats)])
    return {Condition(UNAWARE, n_images=size): scores}


def _cut_to_rounds(adversary_trials: AdversaryTrials, count: int) -> AdversaryTrials:
    """The same trials for an adversary that sees only the last `count` rounds of every view, with a cache of its own."""
    adversary = adversary_trials.adversary
    cache = adversary.cache.get(("last rounds", count), Cache[Any])
    return replace(adversary_trials, adversary=replace(adversary, last_rounds=count, cache=cache, view_read=ViewUse()))
