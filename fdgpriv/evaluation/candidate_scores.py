"""Compressed CSV of what a membership attack says of each candidate image, for ROC curves and the images at most risk."""

import csv
import gzip
import io
from collections.abc import Sequence

from fdgpriv.evaluation.candidates import CandidatePool
from fdgpriv.evaluation.scores import PredictedTarget
from fdgpriv.tasks.task import Task

COLUMNS = ("role", "client", "image", "is_member", "score")
ROLES = ("attack", "other_client")


def candidate_scores(
    task: Task, clients: Sequence[str], targets: Sequence[PredictedTarget], pool: CandidatePool
) -> bytes | None:
    """A row for each candidate of each target and role; equal scores give equal bytes. None if the task has no candidates.

    Args:
        task: What was predicted.
        clients: The client of each target.
        targets: One prediction of each role for each target.
        pool: The images that candidates are indices into.
    """
    rows = [
        (role, client, pool.image_name(candidate.image), int(candidate.is_member), f"{candidate.score:.6g}")
        for role in ROLES
        for client, (_, predictions) in zip(clients, targets, strict=True)
        if role in predictions
        for candidate in task.candidates(*predictions[role])
    ]
    if not rows:
        return None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *rows])
    return gzip.compress(text.getvalue().encode(), mtime=0)
