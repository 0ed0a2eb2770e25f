"""Further evaluations of an attack: at other layers, as variants, on several rounds, without the defense or ignorant of it.

Each gives the scores of every task that the attack answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.scores import ONE_ROUND, ByTask, Predicted, PredictedTarget, averaged, evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.federation.partition import Population
from fdgpriv.targets.simulator import HeldImages, Simulator
from fdgpriv.targets.target import Target
from fdgpriv.tasks.task import Answers
from fdgpriv.threat import Capability
from fdgpriv.utils.cache import Cache
from fdgpriv.view import ViewUse

SMALLEST_OF_ROUNDS = 2  # only artifacts of more images than that are evaluated over rounds
ROUNDS = (1, 2, 5, 17)  # numbers of rounds that are combined, besides all recorded ones

BySize = Mapping[int | None, ByTask]


def by_layer(
    trials: AttackTrials, target: Target[Simulator], scores: BySize, few: bool, rng: torch.Generator
) -> dict[str, ByTask]:
    """Scores on single images' artifacts at each layer of the network; if `few`, only at the wire's layer and the last."""
    layers = target.simulator.layers() if "layer" in trials.attack.ablations else ()
    wire = trials.evaluator.template.at if layers else ""
    found: dict[str, ByTask] = {}
    for layer in (wire, layers[-1]) if few and layers else layers:
        found[layer] = scores[1] if layer == wire else trials.scores(target.at(layer), (1,), rng)[1]
    return found


def by_variant(
    attack: Attack,
    kind: str,
    adversaries: Sequence[AdversaryTrials],
    scores: BySize,
    few: bool,
    rng: torch.Generator,
) -> dict[str, ByTask]:
    """Scores of each variant of the attack on single images' artifacts; if `few`, only of the first and the last."""
    single = [replace(one, trials=trials) for one in adversaries if (trials := [t for t in one.trials if t.size == 1])]
    found: dict[str, ByTask] = {}
    variants = list(attack.variants(kind).items()) if single else []
    for name, variant in (variants[0], variants[-1]) if few and variants else variants:
        found[name] = scores[1] if variant == attack else evaluate_tasks(variant, single, (), rng)[0][1]
    return found


def by_rounds(
    trials: AttackTrials, target: Target[Simulator], few: bool, rng: torch.Generator
) -> list[tuple[int, int | None, ByTask]]:
    """Scores of views that are cut to their last rounds, by number of rounds and of images.

    If `few`, those of whole clients, for one round and for all. Trials and membership candidates are the same for each
    number of rounds. Single images are left out: one round reveals everything about them.
    """
    sizes = tuple(size for size in trials.sizes(target) if size is None or (size > SMALLEST_OF_ROUNDS and not few))
    seen = Capability.SEES_BROADCASTS if target.is_global else Capability.SEES_ALL_ROUNDS
    if "rounds" not in trials.attack.ablations or not target.history or not sizes:
        return []
    if seen not in trials.threat.capabilities:
        return []
    every = 1 + len(target.history)
    wanted = (1, every) if few else sorted({count for count in ROUNDS if count < every} | {every})
    adversaries = trials.adversaries(target, sizes)
    found, of_one_round, task = [], Predicted(), trials.attack.task
    for count in wanted:
        short = [_cut(one, count) for one in adversaries]
        scores, predicted = evaluate_tasks(trials.attack, short, (), rng)
        of_one_round = of_one_round or predicted
        for size, at in scores.items():
            own = at[task.name()]
            answers = {"attack": _answers(predicted[size]), ONE_ROUND: _answers(of_one_round[size])}
            own.shared_variance |= task.shared_variances(answers, own.clients).of_lead
            found.append((count, size, at))
    return found


def _answers(targets: Sequence[PredictedTarget]) -> Answers:
    """The attack's answers for these targets."""
    return [(number, *predictions["attack"]) for number, (_, predictions) in enumerate(targets)]


def undefended(
    trials: AttackTrials, name: str, target: Target[Simulator], scores: BySize, rng: torch.Generator
) -> ByTask | None:
    """The positive control: the same attack and budget on single images without defense; None where there is no defense.

    Attacks on layers are evaluated at the deepest one. Attacks on whole clients only are evaluated on artifacts of these
    clients, simulated again without defense; joint artifacts of an undefended run are used as they are.

    Args:
        trials: The attack and its adversary.
        name: Of the target.
        target: As it was shared.
        scores: On it.
        rng: Of the adversaries.
    """
    sizes = trials.sizes(target)
    bare = replace(trials, evaluator=trials.evaluator.undefended)
    no_defense = bare.evaluator is trials.evaluator
    if 1 not in sizes and target.joint and no_defense:
        return scores[None]
    own = bare.evaluator.target(name)
    if 1 not in sizes:
        again = own if no_defense else _begun_again(own, bare.evaluator.population, rng)
        return None if again is None else bare.scores(replace(again, wire={}), (None,), rng)[None]
    if no_defense:
        return None
    if "layer" in trials.attack.ablations and (layers := own.simulator.layers()):
        own = own.at(layers[-1])  # at the deepest layer, as without a defense
    return bare.scores(own, sizes if trials.attack.task.hides_size else (1,), rng)[1]


def _begun_again(own: Target[Simulator], population: Population, rng: torch.Generator) -> Target[Simulator] | None:
    """The target with its artifacts of the first round simulated again, too; None where how they were made is not known."""
    if not own.earlier:
        return own
    first = own.simulator.in_first_round()
    if first is None:
        return None
    earlier = {}
    for client in own.earlier:
        data = population.data(client)
        held = HeldImages(data.images, data.labels, first.received_model)
        earlier[client] = first.simulator.make(held, torch.arange(len(data)), rng)
    return replace(own, earlier=earlier, history=(replace(own.history[0], wire=earlier),))


def unaware(
    trials: AttackTrials, target: Target[Simulator], repeats: int, few: bool, rng: torch.Generator
) -> ByTask | None:
    """Scores of the same attack on the same trials by an adversary that simulates and calibrates without the defense.

    They are of the artifacts on the wire only, and None where the defense leaves such artifacts as they are. If `few`,
    they are also None where simulation is expensive.
    """
    size, sizes = 1 if target.level == "image" else None, trials.sizes(target)
    if size not in sizes or not trials.evaluator.defense.alters(target.kind) or (few and target.expensive):
        return None
    wanted = sizes if trials.attack.task.hides_size else (size,)
    adversaries = replace(trials, know_defense=False).adversaries(target, wanted)
    return averaged([evaluate_tasks(trials.attack, adversaries, (), rng)[0][size] for _ in range(repeats)])


def _cut(adversary_trials: AdversaryTrials, count: int) -> AdversaryTrials:
    """The trials of an adversary that has only the last `count` rounds of every view, and what it learns of these."""
    adversary = adversary_trials.adversary
    cache = adversary.cache.get(("last rounds", count), Cache[Any])
    return replace(adversary_trials, adversary=replace(adversary, last_rounds=count, cache=cache, view_read=ViewUse()))
