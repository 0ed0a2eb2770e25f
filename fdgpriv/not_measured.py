"""What a run does not tell: what was not attacked, not trained, or trained once only."""

from fdgpriv.artifact import ModelState, StyleStatistics
from fdgpriv.exam.proctor import Proctor
from fdgpriv.plan import Plan
from fdgpriv.roles import Attack
from fdgpriv.states import ModelUpdate
from fdgpriv.training import Trained


def not_measured(plan: Plan, trained: Trained, proctor: Proctor) -> tuple[str, ...]:
    """In sentences, of one run."""
    found = []
    if trained.failed is not None:
        found.append(f"Training failed, so nothing was attacked: {trained.failed}.")
    elif trained.diverged is not None:
        found.append(f"Nothing was attacked: {trained.diverged}.")
    elif not plan.attacks:
        found.append("Nothing was attacked: --attack none was asked for.")
    if trained.utility is not None and (idle := _idle(proctor)):
        found.append(f"No model was trained on what these clients hold, they were in no round: {', '.join(idle)}.")
    kinds = {record.kind for record in proctor.transcript.records}
    for kind in sorted(kinds.difference(*(part.reads for part in map(Attack.named, Attack.names())))):
        found.append(f"{kind}: no attack of this version reads it.")
    if StyleStatistics.kind in kinds and not proctor.shares_styles:
        found.append("Style statistics crossed, but no model they were taken under was kept: use keep=all.")
    if len(plan.seeds) == 1:
        found.append("Training was done once per seed: intervals of accuracies are over images, not over trainings.")
    else:
        found.append(
            "The intervals of this one training's accuracies are over images; those over seeds are over trainings."
        )
    return tuple(found)


def _idle(proctor: Proctor) -> list[str]:
    """The clients that never sent a model, nor an update of one, where others did."""
    records = proctor.transcript.records
    heard = {r.sender for r in records if r.kind in (ModelState.kind, ModelUpdate.kind)}
    return [name for name in proctor.population.clients if heard and name not in heard]
