"""Statements on what one run does not measure: what was not attacked, not trained, or trained only once."""

from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.utils.failures import Failed, attempt


def not_measured(
    evaluator: Evaluator, failed: str | None, diverged: str | None, attacked: bool, once: bool, few: bool
) -> list[str]:
    """Sentences on what one run leaves open.

    Args:
        evaluator: The run's evaluator.
        failed, diverged: The reason why training ended early, if it did.
        attacked: Whether attacks were selected.
        once: Whether training was done with one seed only.
        few: Whether further evaluations are left out where simulation is expensive.
    """
    sentences, shares = [], evaluator.method.disclosure().shares
    if failed is not None:
        sentences.append(f"Training failed, so nothing was attacked: {failed}.")
    elif diverged is not None:
        sentences.append(f"Nothing was attacked: {diverged}.")
    elif not attacked:
        sentences.append("Nothing was attacked: --attack none was asked for.")
    elif not shares:
        sentences.append("Nothing was attacked: no client shares anything.")
    if not shares:
        sentences.append("There is no model for everyone: accuracies are those of the clients' own models.")
    if failed is None and diverged is None and (idle := _idle(evaluator)):
        sentences.append(f"No model was trained on what these clients hold, they were in no round: {', '.join(idle)}.")
    kinds = {record.kind for record in evaluator.transcript.records}
    for kind in sorted(kinds.difference(*map(_kinds, Attack.importable().values()))):
        reason = evaluator.method.disclosure().not_evaluated.get(kind, "no attack of this version uses it")
        sentences.append(f"{kind}: {reason}.")
    if StyleStatistics.kind in kinds and not evaluator.shares_styles:
        sentences.append(
            "Style statistics were shared, but the model they were computed under was not kept: use keep=all."
        )
    trained = failed is None and diverged is None
    if trained and attacked and evaluator.shares_styles and (missing := _overflowing_layers(evaluator)):
        sentences.append(f"No attack was evaluated on styles at {', '.join(missing)}, which are not finite.")
    if few and attacked and (costly := _altered_and_expensive(evaluator)):
        sentences.append(
            f"The attacker that does not know the defense was not evaluated on {', '.join(costly)}, which it would have to "
            "train again: --preset thorough does."
        )
    if attacked and shares:
        sentences.append(
            "Not evaluated: a server that departs from the protocol (for instance one that chooses the models it sends), an "
            "adversary that controls several clients, and the difference of a client's artifacts before and after it gains "
            "one image."
        )
    if once:
        sentences.append(
            "Training was done once per seed: intervals of accuracies are over images, not over trainings."
        )
    else:
        sentences.append(
            "The intervals of this one training's accuracies are over images; those over seeds are over trainings."
        )
    return sentences


def _kinds(attack: type[Attack]) -> tuple[str, ...]:
    """The kinds of artifact that the attack reads; none if its class is invalid."""
    kinds = attempt(attack.kinds)
    return () if isinstance(kinds, Failed) else kinds


def _overflowing_layers(evaluator: Evaluator) -> list[str]:
    """The layers at which styles could be computed, but are not finite."""
    series = evaluator.series(StyleStatistics.kind)
    finite = evaluator.finite_layers(series)
    return [layer for layer in series.simulator.layers() if layer not in finite]


def _altered_and_expensive(evaluator: Evaluator) -> list[str]:
    """Names of the artifacts that the defense changes and that are expensive to simulate."""
    return [
        series.called.replace("_", " ")
        for series in evaluator.artifact_series.values()
        if series.expensive and evaluator.defense.alters(series.kind)
    ]


def _idle(evaluator: Evaluator) -> list[str]:
    """The clients that never shared a model or an update, if other clients did."""
    records = evaluator.transcript.records
    senders = {r.sender for r in records if r.kind in (ModelState.kind, ModelUpdate.kind)}
    if evaluator.method.pools_images:
        return []
    return [name for name in evaluator.population.clients if senders and name not in senders]
