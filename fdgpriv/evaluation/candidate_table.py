"""Table of a membership attack's score of each candidate image, for ROC curves and the images at most risk."""

from collections.abc import Sequence

import pyarrow as pa

from fdgpriv.evaluation.candidates import CandidatePool
from fdgpriv.evaluation.scoring import PredictedTrial
from fdgpriv.results.score_tables import SCHEMAS
from fdgpriv.tasks.task import Task

ROLES = ("attack", "other_client")
_SCHEMA = SCHEMAS["candidates"]


def candidate_table(
    evaluation: str, task: Task, clients: Sequence[str], trials: Sequence[PredictedTrial], pool: CandidatePool
) -> pa.Table:
    """A row of ``candidates`` for each candidate of each trial and role; no rows if the task has no candidates.

    Args:
        evaluation: The name of the evaluation.
        task: The predicted task.
        clients: The client of each trial.
        trials: One prediction of each role for each trial.
        pool: The pool of candidate images.
    """
    rows = [
        (evaluation, role, client, pool.image_name(candidate.image), bool(candidate.is_member), float(candidate.score))
        for role in ROLES
        for client, (_, predictions) in zip(clients, trials, strict=True)
        if role in predictions
        for candidate in task.candidates(*predictions[role])
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_SCHEMA)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)], _SCHEMA)
