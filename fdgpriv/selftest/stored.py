"""The scores that the self test works on: those of one report or of several, from a shipped file or a run's folder."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from fdgpriv.evaluation.attack_scores import CLIENT_CONTROLS, AttackScores
from fdgpriv.evaluation.scores import Scores
from fdgpriv.utils.checksum import read_json
from fdgpriv.utils.files import write_bytes
from fdgpriv.utils.records import Entry, Text, Word, one_line

_DIGITS = 6  # significant ones: errors of average images are of the order of 1e-3
_SCORES = TypeAdapter(AttackScores)


class Stored(Entry):
    """Scores of whole clients' artifacts that crossed the wire, and of the attacks' positive controls.

    Attributes:
        command, version: What computed them.
        reports: By report, the scores by key ``CELL/EVALUATION``.
    """

    command: Text
    version: Text
    reports: Annotated[list[dict[Word, AttackScores]], Field(min_length=1)]


def of_run(folder: Path) -> list[dict[str, AttackScores]]:
    """The scores in a run's folder, one report for each cell.

    Raises:
        ValueError: There are none that say how each attack reads other clients' artifacts.
    """
    reports: dict[str, dict[str, AttackScores]] = {}
    for file in sorted(folder.glob("scores/*/*@*.json")):
        if (kept := reduced(read_json(file, _SCORES))) is not None:
            reports.setdefault(file.parent.name, {})[f"{file.parent.name}/{file.stem}"] = kept
    if not reports:
        raise ValueError(f"want a run's folder with scores/CELL/*.json of an attack on whole clients, got {folder}")
    return list(reports.values())


def reduced(one: AttackScores) -> AttackScores | None:
    """What the self test needs: scores on the wire's artifacts, and as `undefended` the positive control's.

    None where the artifact did not cross, is of a single image or has no scores of other clients' artifacts, and for
    exact recovery.
    """
    whole = one.by_size.get(None)
    if not one.shared or one.exact or one.level == "image" or whole is None or not whole.crossed:
        return None
    proof = one.positive()
    kept: dict[str, object] = {
        "by_size": {None: _reduced(whole)},
        "undefended": None if proof is None else replace(_reduced(proof), crossed={}),
    }
    dropped: dict[str, object] = {
        "ablations": {},
        "by_rounds": [],
        "planted": {},
        "figures": (),
        "unaware": None,
        "tables": {},
    }
    return one.model_copy(update=kept | dropped)


def _reduced(scores: Scores) -> Scores:
    """Attack and controls, rounded."""
    names = [name for name in ("attack", *CLIENT_CONTROLS) if name in scores.headline]
    headline = {name: _rounded(scores.headline[name]) for name in names}
    crossed = {name: _rounded(values) for name, values in scores.crossed.items()}
    shared = {name: variance for name, variance in scores.shared_variance.items() if name in headline}
    return Scores(list(scores.units), list(scores.clients), headline, crossed=crossed, shared_variance=shared)


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def write(reports: Sequence[Mapping[str, AttackScores]], command: str, version: str, path: Path) -> None:
    """Writes these scores, compressed; equal scores give equal bytes."""
    stored = Stored(command=command, version=version, reports=[dict(report) for report in reports])
    write_bytes(path, gzip.compress(stored.model_dump_json(exclude_defaults=True).encode(), mtime=0))


def read(path: Path) -> Stored:
    """The scores in this file.

    Raises:
        ValueError: There is no such file, or it is another one.
    """
    if not path.is_file():
        raise ValueError(
            f"want scores of a default run in {path}, got no file; make it with --export RUN, or give --scores RUN"
        )
    try:
        return Stored.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValidationError) as error:
        told = one_line(error) if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"want scores that --export wrote in {path}, got another file: {told}") from None
